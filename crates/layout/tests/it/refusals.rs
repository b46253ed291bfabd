//! What must not be planned: refused on every PE alike, naming the tensor.

use syncline_layout::simulate::Cluster;
use syncline_layout::{
    Dims, Layout, LayoutError, LayoutFile, NdBox, Piece, PlanOptions, Shard, TransferPlan,
};
use syncline_tensor::Dtype;

fn dims(values: &[u64]) -> Dims {
    Dims::from_slice(values).unwrap()
}

/// A piece of a one-dimensional tensor.
fn piece(start: u64, stop: u64, local: u64) -> Piece {
    let global = NdBox { start: dims(&[start]), size: dims(&[stop - start]) };
    Piece { global, local: dims(&[local]) }
}

fn shard(rank: u32, size: u64, pieces: &[Piece]) -> Shard {
    Shard { rank, shape: dims(&[size]), pieces: pieces.to_vec() }
}

fn whole(rank: u32, shape: &[u64]) -> Shard {
    let shape = dims(shape);
    Shard { rank, shape, pieces: vec![Piece { global: NdBox::whole(shape), local: shape.zeros() }] }
}

fn layout(tensors: &[(&str, Dtype, &[u64])]) -> Layout {
    let mut builder = Layout::builder();
    for (name, dtype, shape) in tensors {
        builder.tensor(name, *dtype, shape, vec![whole(0, shape)]).unwrap();
    }
    builder.finish()
}

fn of_shards(shards: Vec<Shard>) -> Result<Layout, LayoutError> {
    let mut builder = Layout::builder();
    builder.tensor("w", Dtype::F32, &[8], shards)?;
    Ok(builder.finish())
}

/// The error of the whole plan, which every part must share.
fn refused(from: &Layout, to: &Layout) -> LayoutError {
    refused_with(from, to, &PlanOptions::default())
}

fn refused_with(from: &Layout, to: &Layout, options: &PlanOptions) -> LayoutError {
    let error = TransferPlan::new(from, to, options).unwrap_err();
    for rank in 0..4 {
        let part = TransferPlan::for_rank(from, to, options, rank).unwrap_err();
        assert_eq!(part, error);
    }
    error
}

#[test]
fn a_change_of_dtype_must_be_declared() {
    let (from, to) = (layout(&[("w", Dtype::F32, &[8])]), layout(&[("w", Dtype::BF16, &[8])]));
    let error = refused(&from, &to);
    assert!(matches!(&error, LayoutError::DtypeMismatch { tensor, .. } if tensor == "w"));
    assert!(error.to_string().contains("f32") && error.to_string().contains("bf16"));
    let options = PlanOptions::default().convert(Dtype::F32, Dtype::BF16);
    let plan = TransferPlan::new(&from, &to, &options).unwrap();
    assert_eq!(plan.tensors()[0].wire_dtype(), Dtype::BF16);
    assert_eq!(plan.bytes_total(), 16);
    assert_ne!(plan.fingerprint(), {
        let options = options.convert(Dtype::BF16, Dtype::F32);
        TransferPlan::new(&from, &to, &options).unwrap().fingerprint()
    });
}

#[test]
fn a_declared_conversion_must_exist() {
    let (from, to) = (layout(&[("w", Dtype::F32, &[8])]), layout(&[("w", Dtype::I32, &[8])]));
    let options = PlanOptions::default().convert(Dtype::F32, Dtype::I32);
    let error = refused_with(&from, &to, &options).to_string();
    assert!(error.contains("`w`: no conversion from f32 to i32"), "{error}");
    // The PE that holds the tensor and one that holds nothing.
    for rank in [0, 3] {
        let part = TransferPlan::for_rank(&from, &to, &options, rank).unwrap_err();
        assert_eq!(part.to_string(), error);
    }
}

#[test]
fn growing_elements_travel_small() {
    let (from, to) = (layout(&[("w", Dtype::F8E4M3, &[8])]), layout(&[("w", Dtype::F32, &[8])]));
    let options = PlanOptions::default().convert(Dtype::F8E4M3, Dtype::F32);
    let plan = TransferPlan::new(&from, &to, &options).unwrap();
    assert_eq!((plan.tensors()[0].wire_dtype(), plan.bytes_total()), (Dtype::F8E4M3, 8));
}

#[test]
fn shapes_must_be_the_same() {
    for (from, to) in [(&[4, 6][..], &[6, 4][..]), (&[8], &[6]), (&[6], &[8]), (&[4, 6], &[24])] {
        let (from, to) = (layout(&[("w", Dtype::F32, from)]), layout(&[("w", Dtype::F32, to)]));
        let error = refused(&from, &to);
        assert!(matches!(&error, LayoutError::ShapeMismatch { tensor, .. } if tensor == "w"));
    }
}

#[test]
fn names_must_match_both_ways() {
    let one = layout(&[("w", Dtype::F32, &[8])]);
    let two = layout(&[("w", Dtype::F32, &[8]), ("x", Dtype::F32, &[8])]);
    assert_eq!(refused(&one, &two), LayoutError::UnknownTensor { tensor: "x".to_owned() });
    assert_eq!(refused(&two, &one), LayoutError::MissingTensor { tensor: "x".to_owned() });
}

#[test]
fn expert_counts_must_be_the_same() {
    let experts = |count: usize| {
        let names: Vec<String> =
            (0..count).map(|expert| format!("layers.0.experts.{expert}.w")).collect();
        let tensors: Vec<(&str, Dtype, &[u64])> =
            names.iter().map(|name| (name.as_str(), Dtype::F32, &[8u64][..])).collect();
        layout(&tensors)
    };
    for (from, to) in [(8, 6), (6, 8)] {
        let tensor = "layers.0.experts.6.w".to_owned();
        let (source, target) = (experts(from), experts(to));
        let (from, to) = (from as u64, to as u64);
        assert_eq!(refused(&source, &target), LayoutError::ExpertCount { tensor, from, to });
    }
}

#[test]
fn a_destination_must_be_covered() {
    let from = of_shards(vec![shard(0, 3, &[piece(0, 3, 0)]), shard(1, 3, &[piece(5, 8, 0)])]);
    let to = of_shards(vec![shard(2, 8, &[piece(0, 8, 0)])]);
    let error = refused(&from.unwrap(), &to.unwrap());
    let missing = NdBox { start: dims(&[3]), size: dims(&[2]) };
    let tensor = "w".to_owned();
    assert_eq!(error, LayoutError::NotCovered { tensor, rank: 2, missing: Box::new(missing) });
    assert!(error.to_string().contains("[3:5]"));
}

#[test]
fn overlapping_sources_do_not_hide_a_hole() {
    // Six elements of eight, and two of them twice: the volumes add up, the cover does not.
    let from = of_shards(vec![shard(0, 4, &[piece(0, 4, 0)]), shard(1, 4, &[piece(2, 6, 0)])]);
    let to = of_shards(vec![shard(2, 8, &[piece(0, 8, 0)])]);
    assert!(matches!(refused(&from.unwrap(), &to.unwrap()), LayoutError::NotCovered { .. }));
}

#[test]
fn a_destination_shard_must_be_filled() {
    let from = of_shards(vec![whole(0, &[8])]).unwrap();
    let to = of_shards(vec![shard(0, 10, &[piece(0, 8, 0)])]).unwrap();
    assert!(matches!(refused(&from, &to), LayoutError::ShardNotFilled { elements: 2, .. }));
}

#[test]
fn pieces_must_not_overlap_nor_leave_their_bounds() {
    let error = |shards| of_shards(shards).unwrap_err();
    let overlap = error(vec![shard(0, 8, &[piece(0, 4, 0), piece(4, 8, 3)])]);
    assert!(matches!(overlap, LayoutError::OverlappingPieces { what: "shard", .. }));
    let overlap = error(vec![shard(0, 8, &[piece(0, 4, 0), piece(3, 7, 4)])]);
    assert!(matches!(overlap, LayoutError::OverlappingPieces { what: "tensor", .. }));
    let outside = error(vec![shard(0, 8, &[piece(1, 9, 0)])]);
    assert!(matches!(outside, LayoutError::OutOfBounds { what: "tensor", .. }));
    let outside = error(vec![shard(0, 8, &[piece(0, 8, 1)])]);
    assert!(matches!(outside, LayoutError::OutOfBounds { what: "shard", .. }));
    let twice = error(vec![whole(1, &[8]), whole(1, &[8])]);
    assert!(matches!(twice, LayoutError::DuplicateShard { rank: 1, .. }));
    let dims = error(vec![whole(0, &[4, 2])]);
    assert!(matches!(dims, LayoutError::DimsMismatch { found: 2, expected: 1, .. }));
}

#[test]
fn sizes_that_overflow_are_refused() {
    let huge = [1 << 40, 1 << 40];
    let refused = Layout::builder().tensor("w", Dtype::F32, &huge, vec![]).unwrap_err();
    assert!(matches!(refused, LayoutError::TooLarge { .. }));
    let far = Piece {
        global: NdBox { start: dims(&[u64::MAX]), size: dims(&[u64::MAX]) },
        local: dims(&[0]),
    };
    let refused = of_shards(vec![shard(0, 8, &[far])]).unwrap_err();
    assert!(matches!(&refused, LayoutError::OutOfBounds { .. }), "{refused}");
    let refused = Layout::builder().tensor("w", Dtype::F32, &[1; 9], vec![]).unwrap_err();
    assert!(matches!(refused, LayoutError::TooManyDims { dims: 9, .. }));
}

#[test]
fn ranks_that_no_group_has_are_refused() {
    for rank in [1 << 20, u32::MAX] {
        let refused = of_shards(vec![whole(0, &[8]), whole(rank, &[8])]).unwrap_err().to_string();
        let expected = format!("`w`, rank {rank}: ranks are below 1048576");
        assert!(refused.contains(&expected), "{refused}");
    }
    assert_eq!(of_shards(vec![whole((1 << 20) - 1, &[8])]).unwrap().world(), 1 << 20);
}

#[test]
fn shards_past_all_bounds_are_refused() {
    let small = Piece { global: NdBox::whole(dims(&[4, 4])), local: dims(&[0, 0]) };
    let refused = |dtype, shape: &[u64]| {
        let shard = Shard { rank: 3, shape: dims(shape), pieces: vec![small] };
        Layout::builder().tensor("w", dtype, &[4, 4], vec![shard]).map(|_| ()).unwrap_err()
    };
    // The last one only in bytes.
    for (dtype, shape) in [
        (Dtype::U8, [1 << 32, 1 << 32]),
        (Dtype::U8, [1 << 32, 1 << 31]),
        (Dtype::F32, [1 << 31, 1 << 30]),
    ] {
        let error = refused(dtype, &shape).to_string();
        let expected =
            format!("`w`, rank 3: the shard of shape {shape:?} has more than {}", i64::MAX);
        assert!(error.contains(&expected), "{error}");
    }
    // A layout of another type that lies alike is checked for itself.
    let mut builder = Layout::builder();
    let shard = || vec![Shard { rank: 0, shape: dims(&[1 << 31, 1 << 30]), pieces: vec![small] }];
    builder.tensor("small", Dtype::U8, &[4, 4], shard()).unwrap();
    let error = builder.tensor("large", Dtype::F32, &[4, 4], shard()).unwrap_err();
    assert!(matches!(&error, LayoutError::ShardTooLarge { tensor, .. } if tensor == "large"));
}

#[test]
fn empty_arrays_have_strides_too() {
    let far = [0, 1 << 40, 1 << 40];
    let refused = Layout::builder().tensor("w", Dtype::F32, &far, vec![]).unwrap_err();
    assert!(matches!(refused, LayoutError::TooLarge { .. }), "{refused}");
    let shard = Shard { rank: 1, shape: dims(&far), pieces: vec![] };
    let refused = Layout::builder().tensor("w", Dtype::F32, &[4, 4, 4], vec![shard]).unwrap_err();
    assert!(matches!(refused, LayoutError::ShardTooLarge { rank: 1, .. }), "{refused}");
}

#[test]
fn what_a_layout_has_in_all_can_be_counted() {
    let replicas = |count| (0..count).map(|rank| whole(rank, &[1 << 62])).collect::<Vec<_>>();
    let mut builder = Layout::builder();
    builder.tensor("first", Dtype::U8, &[1 << 62], replicas(1)).unwrap();
    let error = builder.tensor("second", Dtype::U8, &[1 << 62], replicas(1)).unwrap_err();
    assert!(error.to_string().contains("`second`: with its shards"), "{error}");
    let error = Layout::builder().tensor("w", Dtype::U8, &[1 << 62], replicas(8)).unwrap_err();
    assert_eq!(error, LayoutError::LayoutTooLarge { tensor: "w".to_owned() });
    let layout = builder.finish();
    let plan = TransferPlan::new(&layout, &layout, &PlanOptions::default()).unwrap();
    assert_eq!(plan.bytes_total(), 1 << 62);
}

#[test]
fn a_tensor_that_is_refused_leaves_the_layout_as_it_was() {
    let mut builder = Layout::builder();
    builder.tensor("w", Dtype::F32, &[8], vec![whole(0, &[8])]).unwrap();
    let twice = builder.tensor("w", Dtype::F32, &[4], vec![whole(0, &[4])]).unwrap_err();
    assert_eq!(twice, LayoutError::DuplicateTensor { tensor: "w".to_owned() });
    assert_eq!(builder.finish().tensor("w").unwrap().shape()[..], [8]);
}

#[test]
fn members_that_a_form_does_not_have_are_refused() {
    const MESH: &str = r#"
        x-note = "for others"
        [mesh]
        axes = [["tp", 2]]
        [[tensor]]
        match = "w"
        x-why = {a = 1}
        shard = [{dim = 0, axis = "tp", x-a = 1}]
        [[weight]]
        name = "w"
        dtype = "f32"
        shape = [4]
    "#;
    const EXPLICIT: &str = r#"{"format": "syncline-layout", "version": 1, "x-a": {"b": 1, "b": 2}, "tensors": [
        {"name": "w", "dtype": "f32", "shape": [4], "x-b": 1, "shards": [
          {"rank": 0, "shape": [4], "x-c": 1, "pieces": [{"global": [[0, 4]], "local": [0], "x-d": 1}]}]}]}"#;
    const CLUSTER: &str = "
        pes_per_node = 8
        x-note = 1
        [memory]
        gb_per_s = 1000
        [intra]
        gb_per_s = 400
        latency_us = 3
        x-note = 1";
    let json = r#"{"mesh": {"axes": [["tp", 2]], "x-a": 1}, "tensor": [{"match": "w"}]}"#;
    for text in [MESH, EXPLICIT, json] {
        LayoutFile::parse(text).unwrap();
    }
    Cluster::from_toml(CLUSTER).unwrap();
    let layout = |text: &str| LayoutFile::parse(text).unwrap_err().to_string();
    let cluster = |text: &str| Cluster::from_toml(text).unwrap_err().to_string();
    let of: [(&dyn Fn(&str) -> String, &str, &str, &str, &str); 16] = [
        (
            &layout,
            MESH,
            "[[weight]]",
            "[[weights]]",
            "unknown member `weights` (did you mean `weight`?)",
        ),
        (
            &layout,
            MESH,
            "axes",
            "ofset = 1\naxes",
            "line 4, column 9: mesh: unknown member `ofset`",
        ),
        (
            &layout,
            MESH,
            "match",
            "staeg = 1\nmatch",
            "tensor[0]: unknown member `staeg` (did you mean `stage`?)",
        ),
        (
            &layout,
            MESH,
            "dim = 0",
            "dim = 0, strid = 2",
            "tensor[0].shard[0]: unknown member `strid`",
        ),
        (&layout, MESH, "dtype", "dtyp = 1\ndtype", "weight[0]: unknown member `dtyp`"),
        (&layout, MESH, "dtype", "dtype = 1\ndtype", "duplicate key"),
        (
            &layout,
            json,
            "\"tensor\"",
            "\"tensors\"",
            "unknown member `tensors` (did you mean `tensor`?)",
        ),
        (
            &layout,
            json,
            "\"axes\"",
            "\"axes\": [], \"axes\"",
            "mesh: the member `axes` is given twice",
        ),
        (
            &layout,
            EXPLICIT,
            "\"tensors\"",
            "\"tensor\": [], \"tensors\"",
            "unknown member `tensor`",
        ),
        (
            &layout,
            EXPLICIT,
            "\"dtype\"",
            "\"alias\": [], \"dtype\"",
            "tensors[0]: unknown member `alias`",
        ),
        (
            &layout,
            EXPLICIT,
            "\"rank\"",
            "\"ranks\": 1, \"rank\"",
            "tensors[0].shards[0]: unknown member `ranks`",
        ),
        (
            &layout,
            EXPLICIT,
            "\"global\"",
            "\"globl\": 1, \"global\"",
            "shards[0].pieces[0]: unknown member `globl`",
        ),
        (
            &layout,
            EXPLICIT,
            "\"rank\": 0",
            "\"rank\": 0, \"rank\": 0",
            "shards[0]: the member `rank` is given twice",
        ),
        (&cluster, CLUSTER, "[intra]", "[inta]", "unknown member `inta` (did you mean `intra`?)"),
        (
            &cluster,
            CLUSTER,
            "latency_us",
            "latency",
            "intra: unknown member `latency` (did you mean `latency_us`?)",
        ),
        (
            &cluster,
            CLUSTER,
            "pes_per_node = 8",
            "pes_per_node = 8\npes_per_node = 8",
            "duplicate key",
        ),
    ];
    for (read, text, from, to, expected) in of {
        assert!(text.contains(from), "{from}");
        let error = read(&text.replacen(from, to, 1));
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
}

#[test]
fn bad_json_says_where() {
    for (text, place) in [
        ("{", "line 1"),
        (r#"{"format": "other", "version": 1, "tensors": []}"#, "syncline-layout"),
        (r#"{"format": "syncline-layout", "version": 2, "tensors": []}"#, "version 2"),
        (
            r#"{"format": "syncline-layout", "version": 1, "tensors": [{"name": "w", "dtype": "f99", "shape": [], "shards": []}]}"#,
            "`w`: unknown dtype `f99`",
        ),
        (
            r#"{"format": "syncline-layout", "version": 1, "tensors": [{"name": "w", "dtype": "f32", "shape": [-3], "shards": []}]}"#,
            "line 1",
        ),
        (
            r#"{"format": "syncline-layout", "version": 1, "tensors": [{"name": "w", "dtype": "f32", "shape": [4], "shards": [
                {"rank": 0, "shape": [4], "pieces": [{"global": [[3, 1]], "local": [0]}]}]}]}"#,
            "stops before it starts",
        ),
    ] {
        let error = Layout::from_json(text).unwrap_err().to_string();
        assert!(error.contains(place), "{error}");
    }
}
