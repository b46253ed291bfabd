//! What the mesh form compiles to.

use syncline_layout::{Dims, Layout, LayoutError, MeshLayout, TensorSpec};
use syncline_tensor::Dtype;

use crate::arrays::checked_plan;

fn spec(name: &str, shape: &[u64]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype: Dtype::BF16,
        shape: Dims::from_slice(shape).unwrap(),
    }
}

fn compile(text: &str, specs: &[TensorSpec]) -> Result<Layout, LayoutError> {
    MeshLayout::from_toml(text)?.compile(specs)
}

/// The ranks that hold a tensor, with their local shapes.
fn held(layout: &Layout, name: &str) -> Vec<(u32, Vec<u64>)> {
    let shards = layout.tensor(name).unwrap().placement().shards();
    shards.iter().map(|shard| (shard.rank, shard.shape.to_vec())).collect()
}

#[test]
fn ranks_count_the_first_axis_fastest() {
    let text = r#"
        mesh = {axes = [["tp", 2], ["dp", 2]], offset = 10}
        [[tensor]]
        match = "w"
        shard = [{dim = 0, axis = "tp"}]
    "#;
    let layout = compile(text, &[spec("w", &[5, 2])]).unwrap();
    let rows: Vec<u64> = held(&layout, "w").iter().map(|(_, shape)| shape[0]).collect();
    assert_eq!(rows, [3, 2, 3, 2]);
    assert_eq!(held(&layout, "w")[0].0, 10);
    assert_eq!(layout.world(), 14);
}

#[test]
fn json_and_toml_are_one_form() {
    let toml = r#"
        [mesh]
        axes = [["tp", 3]]
        [[tensor]]
        match = "w"
        shard = [{dim = -1, axis = "tp", stride = 2}]
        [[weight]]
        name = "w"
        dtype = "f32"
        shape = [2, 12]
    "#;
    let json = r#"{"mesh": {"axes": [["tp", 3]]},
        "tensor": [{"match": "w", "shard": [{"dim": -1, "axis": "tp", "stride": 2}]}],
        "weight": [{"name": "w", "dtype": "f32", "shape": [2, 12]}]}"#;
    let (toml, json) = (MeshLayout::from_toml(toml).unwrap(), MeshLayout::from_json(json).unwrap());
    let compiled = |mesh: &MeshLayout| mesh.compile(mesh.specs()).unwrap().to_json();
    assert_eq!(compiled(&toml), compiled(&json));
}

#[test]
fn layers_go_to_stages_in_runs() {
    let specs: Vec<TensorSpec> =
        (0..5).map(|layer| spec(&format!("model.layers.{layer}.w"), &[4])).collect();
    let even = compile("[mesh]\naxes = [[\"pp\", 2]]", &specs).unwrap();
    let ranks = |layout: &Layout| -> Vec<u32> {
        (0..5).map(|layer| held(layout, &format!("model.layers.{layer}.w"))[0].0).collect()
    };
    assert_eq!(ranks(&even), [0, 0, 0, 1, 1]);
    let given = compile("[mesh]\naxes = [[\"pp\", 2]]\nstages = [1, 4]", &specs).unwrap();
    assert_eq!(ranks(&given), [0, 1, 1, 1, 1]);
    let top = compile("stages = [4, 1]\n[mesh]\naxes = [[\"pp\", 2]]", &specs).unwrap();
    assert_eq!(ranks(&top), [0, 0, 0, 0, 1]);
    let wrong = compile("[mesh]\naxes = [[\"pp\", 2]]\nstages = [1, 3]", &specs).unwrap_err();
    assert!(matches!(wrong, LayoutError::CountMismatch { placed: 4, found: 5, .. }));
    let wrong = compile("[mesh]\naxes = [[\"pp\", 3]]\nstages = [1, 4]", &specs).unwrap_err();
    assert!(matches!(wrong, LayoutError::BadMesh { .. }));
}

#[test]
fn experts_go_to_ep_positions_and_may_be_renumbered() {
    let specs: Vec<TensorSpec> = (0..8)
        .map(|expert| spec(&format!("layers.{}.experts.{}.w", expert / 4, expert % 4), &[6]))
        .collect();
    let text = "[mesh]\naxes = [[\"ep\", 3], [\"pp\", 2]]\nrenumber = true";
    let layout = compile(text, &specs).unwrap();
    let place = |name: &str| {
        let tensor = layout.tensor(name).unwrap();
        let rank = tensor.placement().shards()[0].rank;
        (rank, tensor.local_name(rank).to_owned())
    };
    assert_eq!(place("layers.0.experts.1.w"), (0, "layers.0.experts.1.w".to_owned()));
    assert_eq!(place("layers.0.experts.2.w"), (1, "layers.0.experts.0.w".to_owned()));
    assert_eq!(place("layers.1.experts.3.w"), (5, "layers.0.experts.0.w".to_owned()));
    let again = Layout::from_json(&layout.to_json()).unwrap();
    assert_eq!(again.fingerprint(), layout.fingerprint());
    let wrong = compile("[mesh]\naxes = [[\"ep\", 2]]\nexperts = [2, 3]", &specs).unwrap_err();
    assert!(matches!(wrong, LayoutError::CountMismatch { what: "experts", placed: 5, .. }));
}

#[test]
fn rules_can_name_a_stage() {
    let specs = [
        spec("embed", &[4]),
        spec("layers.0.w", &[4]),
        spec("layers.1.w", &[4]),
        spec("head", &[4]),
    ];
    let text = r#"
        mesh = {axes = [["pp", 2]]}
        [[tensor]]
        match = "embed"
        stage = "first"
        [[tensor]]
        match = "head"
        stage = "last"
    "#;
    let layout = compile(text, &specs).unwrap();
    assert_eq!(held(&layout, "embed"), [(0, vec![4])]);
    assert_eq!(held(&layout, "head"), [(1, vec![4])]);
    let error = compile(&text.replace("\"last\"", "2"), &specs).unwrap_err().to_string();
    assert!(error.contains("`head`") && error.contains("stage"), "{error}");
}

#[test]
fn the_first_rule_that_matches_counts() {
    let text = r#"
        mesh = {axes = [["tp", 2]]}
        [[tensor]]
        match = "a.*"
        [[tensor]]
        match = "**"
        shard = [{dim = 0, axis = "tp"}]
    "#;
    let layout = compile(text, &[spec("a.w", &[4]), spec("b.w", &[4])]).unwrap();
    assert_eq!(held(&layout, "a.w")[1].1, [4]);
    assert_eq!(held(&layout, "b.w")[1].1, [2]);
}

const TIED: &str = r#"
    mesh = {axes = [["tp", 2], ["pp", 2]]}
    [[tensor]]
    match = "embed"
    stage = "first"
    shard = [{dim = 0, axis = "tp"}]
    [[tensor]]
    match = "head"
    stage = "last"
    shard = [{dim = 0, axis = "tp"}]
    tied_to = "embed"
"#;

#[test]
fn tied_tensors_are_one_with_several_names() {
    for specs in [vec![spec("embed", &[4])], vec![spec("embed", &[4]), spec("head", &[4])]] {
        let layout = compile(TIED, &specs).unwrap();
        assert_eq!(layout.tensors().len(), 1);
        let tensor = layout.tensor("head").unwrap();
        assert_eq!(tensor.name(), "embed");
        assert_eq!(held(&layout, "embed").len(), 4);
        assert_eq!((tensor.local_name(1), tensor.local_name(3)), ("embed", "head"));
    }
    // On one stage the two names are one shard.
    let one_stage = TIED.replace("[\"pp\", 2]", "[\"pp\", 1]");
    let layout = compile(&one_stage, &[spec("embed", &[4])]).unwrap();
    assert_eq!(held(&layout, "embed").len(), 2);
}

#[test]
fn tied_and_untied_layouts_lead_to_each_other() {
    let tied = compile(TIED, &[spec("embed", &[8])]).unwrap();
    let apart = TIED.replace("tied_to = \"embed\"", "");
    let untied = compile(&apart, &[spec("embed", &[8]), spec("head", &[8])]).unwrap();
    let plan = checked_plan(&tied, &untied);
    assert_eq!((plan.bytes_total(), plan.bytes_moved()), (32, 0));
    let plan = checked_plan(&untied, &tied);
    assert_eq!(plan.bytes_total(), 32);
}

#[test]
fn ties_that_do_not_fit_are_refused() {
    let refused = |text: &str, specs: &[TensorSpec]| compile(text, specs).unwrap_err().to_string();
    let error = refused(TIED, &[spec("embed", &[4]), spec("head", &[6])]);
    assert!(error.contains("`head`") && error.contains("[6]"), "{error}");
    let error = refused(TIED, &[spec("head", &[4])]);
    assert!(error.contains("`head`") && error.contains("does not exist"), "{error}");
    let otherwise = TIED.replace("[\"pp\", 2]", "[\"pp\", 1]").replacen(
        "shard = [{dim = 0, axis = \"tp\"}]",
        "",
        1,
    );
    let error = refused(&otherwise, &[spec("embed", &[4])]);
    assert!(error.contains("sharded otherwise"), "{error}");
}

#[test]
fn of_several_bad_ties_every_pe_names_the_first() {
    let rules: String =
        (0..8).map(|at| format!("[[tensor]]\nmatch = \"a{at}\"\ntied_to = \"b{at}\"\n")).collect();
    let text = format!("mesh = {{axes = [[\"tp\", 1]]}}\n{rules}");
    let specs: Vec<TensorSpec> = (0..8).map(|at| spec(&format!("a{at}"), &[4])).collect();
    for _ in 0..20 {
        let error = compile(&text, &specs).unwrap_err().to_string();
        assert!(error.contains("`a0`, rule `a0`: it is tied to `b0`"), "{error}");
    }
}

#[test]
fn a_chain_of_ties_is_refused_as_such() {
    let text = r#"
        mesh = {axes = [["tp", 1]]}
        [[tensor]]
        match = "a"
        tied_to = "b"
        [[tensor]]
        match = "b"
        tied_to = "c"
    "#;
    let [a, b, c] = ["a", "b", "c"].map(|name| spec(name, &[4]));
    // Also where the tensor in the middle is only a name.
    for specs in [vec![a.clone(), b.clone(), c.clone()], vec![c, a.clone()], vec![a, b]] {
        let error = compile(text, &specs).unwrap_err().to_string();
        assert!(error.contains("`a`, rule `a`"), "{error}");
        assert!(error.contains("tied to `b`, which is itself tied to `c`"), "{error}");
    }
}

#[test]
fn a_tie_leaves_names_alone_that_an_earlier_rule_matches() {
    let text = r#"
        mesh = {axes = [["tp", 2]]}
        [[tensor]]
        match = "head"
        shard = [{dim = 0, axis = "tp"}]
        [[tensor]]
        match = "{head,other}"
        tied_to = "embed"
    "#;
    let layout = compile(text, &[spec("embed", &[4]), spec("head", &[4])]).unwrap();
    assert_eq!(layout.tensor("embed").unwrap().aliases(), ["other"]);
    assert_eq!(held(&layout, "head")[0].1, [2]);
}

/// Trying all patterns again for every rule with `tied_to` takes minutes: the runner would end it.
#[test]
fn many_rules_with_ties_are_no_burden() {
    let (rules, tensors) = (300, 40_000);
    let mut text = "mesh = {axes = [[\"tp\", 2]]}\n".to_owned();
    for at in 0..rules {
        text += &format!("[[tensor]]\nmatch = \"l.{at}.shared.*\"\ntied_to = \"l.{at}.plain.0\"\n");
    }
    let plain = (0..tensors).map(|at| format!("l.{}.plain.{}", at % rules, at / rules));
    let names = plain.chain((0..rules).map(|at| format!("l.{at}.shared.0")));
    let specs: Vec<TensorSpec> = names.map(|name| spec(&name, &[4])).collect();
    let layout = compile(&text, &specs).unwrap();
    assert_eq!(layout.tensors().len(), tensors);
    assert_eq!(layout.tensor("l.7.shared.0").unwrap().name(), "l.7.plain.0");
}

#[test]
fn numbers_past_all_bounds_are_refused_or_placed() {
    let max = i64::MAX;
    let mesh =
        format!("mesh = {{axes = [[\"pp\", 3], [\"ep\", 2]], stages = [{max}, {max}, {max}]}}\n");
    let error = compile(&mesh, &[spec("layers.0.w", &[4])]).unwrap_err();
    assert!(matches!(error, LayoutError::CountMismatch { found: 1, .. }), "{error}");
    // A tied name that no tensor has counts neither as a layer nor as an expert.
    let far = format!("layers.{max}.experts.{}.w", u64::MAX);
    let tie = format!("{mesh}[[tensor]]\nmatch = \"{far}\"\ntied_to = \"w\"\n");
    let layout = compile(&tie, &[spec("w", &[4])]).unwrap();
    assert_eq!(layout.tensor(&far).unwrap().name(), "w");
}

#[test]
fn rules_that_do_not_fit_name_tensor_and_rule() {
    for (shard, cause) in [
        (r#"{dim = 2, axis = "tp"}"#, "no dimension 2"),
        (r#"{dim = -3, axis = "tp"}"#, "no dimension -3"),
        (r#"{dim = 0, axis = "xp"}"#, "no axis `xp`"),
        (r#"{dim = 0, axis = "tp"}, {dim = 1, axis = "tp"}"#, "splits it twice"),
        (r#"{dim = 0, axis = "tp", blocks = [1, 2]}"#, "do not add up"),
        (r#"{dim = 0, axis = "tp", blocks = [2, 2], stride = 2}"#, "not both"),
        (r#"{dim = 0, axis = "tp", unit = 3}"#, "no multiple of the unit 3"),
    ] {
        let text = format!(
            "mesh = {{axes = [[\"tp\", 2]]}}\n[[tensor]]\nmatch = \"a.*\"\nshard = [{shard}]"
        );
        let error = compile(&text, &[spec("a.w", &[4, 4])]).unwrap_err().to_string();
        assert!(error.contains("`a.w`") && error.contains("`a.*`"), "{error}");
        assert!(error.contains(cause), "{error}");
    }
}

#[test]
fn experts_that_the_mesh_does_not_place_are_shown_by_the_last() {
    let text = "[mesh]\naxes = [[\"ep\", 2]]\nexperts = [2, 1]";
    let specs: Vec<TensorSpec> =
        (0..4).map(|expert| spec(&format!("layers.0.experts.{expert}.w"), &[4])).collect();
    let error = compile(text, &specs).unwrap_err().to_string();
    assert!(error.contains("places 3") && error.contains("4 are named"), "{error}");
    assert!(error.contains("`layers.0.experts.3.w`"), "{error}");
}

#[test]
fn numbers_may_be_text() {
    let text = r#"{"mesh": {"axes": [["tp", 2]]}, "weight": [{"name": "w", "dtype": "f32", "shape": ["4", 6]}]}"#;
    assert_eq!(MeshLayout::from_json(text).unwrap().specs()[0].shape[..], [4, 6]);
}

#[test]
fn broken_files_say_where() {
    for (text, cause) in [
        ("[mesh]\naxes = [[\"tp\", 0]]", "at least 1"),
        ("[mesh]\naxes = [[\"tp\", 2], [\"tp\", 2]]", "twice"),
        ("[mesh]\naxes = [[\"tp\", 99999999999]]", "more than"),
        ("[mesh]\naxes = 3", "line 2"),
        ("[mesh]\naxes = []\nsize = 3", "line 3"),
        ("[mesh]\naxes = []\n[[tensor]]\nmatch = \"{a\"", "partner"),
    ] {
        let error = compile(text, &[spec("w", &[1])]).unwrap_err().to_string();
        assert!(error.contains(cause), "{error}");
    }
}
