//! Views that overlap in part, of every kind: nothing missing, nothing superfluous, and no more
//! edges after a hundred thousand tasks than after a thousand.

use syncline_deps::*;
use syncline_tensor::*;
use syncline_testing::{Rng, for_seeds};

use crate::programs::{BUFFERS, BYTES, Mix, check, check_retiring, program_of};
use crate::support::*;

/// Rows and columns of the matrix that boxes are of.
const ROWS: u64 = 12;
const COLUMNS: u64 = 16;

fn matrix() -> View {
    View::contiguous(Dtype::U8, &[ROWS, COLUMNS]).unwrap()
}

fn part(rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> View {
    matrix().slice(0, rows).unwrap().slice(1, columns).unwrap()
}

/// `start..end` widened by `halo` on both sides, within `0..size`.
fn around(start: u64, end: u64, halo: u64, size: u64) -> std::ops::Range<u64> {
    start.saturating_sub(halo)..(end + halo).min(size)
}

fn slice(rng: &mut Rng) -> View {
    let length = rng.range(1..BYTES / 2);
    View::bytes_at(rng.range(0..BYTES - length + 1), length).unwrap()
}

fn tile_with_halo(rng: &mut Rng) -> View {
    let (row, column, halo) = (4 * rng.range(0..3), 4 * rng.range(0..4), rng.range(0..9));
    part(around(row, row + 4, halo, ROWS), around(column, column + 4, halo, COLUMNS))
}

fn window(rng: &mut Rng) -> View {
    View::bytes_at(8 * rng.range(0..BYTES / 8 - 4), 32).unwrap()
}

fn block_of_rows_or_columns(rng: &mut Rng) -> View {
    let (rows, columns) = (rng.range(0..ROWS), rng.range(0..COLUMNS));
    match rng.below(2) {
        0 => part(rows..rng.range(rows..ROWS) + 1, 0..COLUMNS),
        _ => part(0..ROWS, columns..rng.range(columns..COLUMNS) + 1),
    }
}

fn any_box(rng: &mut Rng) -> View {
    let (row, column) = (rng.range(0..ROWS), rng.range(0..COLUMNS));
    part(row..rng.range(row..ROWS) + 1, column..rng.range(column..COLUMNS) + 1)
}

/// A tile of the same bytes as the transposed matrix, whose rows are as long as there are rows.
fn transposed_tile(rng: &mut Rng) -> View {
    match rng.below(2) {
        0 => tile_with_halo(rng).transpose(0, 1).unwrap(),
        _ => {
            let other = View::contiguous(Dtype::U8, &[COLUMNS, ROWS]).unwrap();
            let (row, column) = (4 * rng.range(0..4), 4 * rng.range(0..3));
            let rows = other.slice(0, row..row + 4).unwrap();
            rows.slice(1, column..column + 4).unwrap().transpose(0, 1).unwrap()
        }
    }
}

fn every_few_bytes(rng: &mut Rng) -> View {
    let (count, stride) = (rng.range(2..10), rng.range(2..16) as i64);
    View::strided(Dtype::U8, rng.range(0..BYTES - 9 * 16), &[count], &[stride]).unwrap()
}

fn block_of_rank_three(rng: &mut Rng) -> View {
    let mut view = View::contiguous(Dtype::U8, &[4, 6, 8]).unwrap();
    for (dim, size) in [4, 6, 8].into_iter().enumerate() {
        let start = rng.range(0..size);
        view = view.slice(dim, start..rng.range(start..size) + 1).unwrap();
    }
    view
}

/// Few bytes, or most of a buffer: wide views are cut into many parts.
fn wide_or_narrow(rng: &mut Rng) -> View {
    let length = if rng.one_in(6) { rng.range(120..BYTES) } else { rng.range(1..4) };
    View::bytes_at(rng.range(0..BYTES - length + 1), length).unwrap()
}

type Kind = fn(&mut Rng) -> View;

const KINDS: [Kind; 9] = [
    slice,
    wide_or_narrow,
    tile_with_halo,
    window,
    block_of_rows_or_columns,
    any_box,
    transposed_tile,
    every_few_bytes,
    block_of_rank_three,
];

const PLAIN: &[Access] = &[Access::Input, Access::InOut, Access::OutputExisting];

/// Programs of one kind of view, or of two, or of all; views come again or never.
fn random_program(rng: &mut Rng, mix: &Mix) -> Vec<Step> {
    let (one, other) = (*rng.pick(&KINDS), *rng.pick(&KINDS));
    let choice = rng.below(3);
    let (buffers, again) = (rng.range(1..BUFFERS + 1), rng.one_in(2));
    let mut pool: Vec<View> = Vec::new();
    program_of(rng, mix, |rng| {
        let kind = match choice {
            0 => one,
            1 => *rng.pick(&[one, other]),
            _ => *rng.pick(&KINDS),
        };
        let known = if again && pool.len() >= mix.views { Some(*rng.pick(&pool)) } else { None };
        let view = known.unwrap_or_else(|| kind(rng));
        pool.push(view);
        Arg::new(*rng.pick(mix.accesses), BufferId(rng.range(0..buffers)), view)
    })
}

const MIX: Mix =
    Mix { tasks: 90, views: 12, accesses: PLAIN, manual: false, deps: false, retire: false };

#[test]
fn plain_reads_and_writes_of_parts() {
    for_seeds("plain_reads_and_writes_of_parts", 400, |rng| check(&random_program(rng, &MIX)));
}

#[test]
fn all_accesses_of_parts() {
    let mix = Mix { accesses: &Access::ALL, ..MIX };
    for_seeds("all_accesses_of_parts", 400, |rng| check(&random_program(rng, &mix)));
}

#[test]
fn groups_of_parts() {
    let few: [&[Access]; 3] = [
        &[Access::Commutative, Access::Commutative, Access::Input, Access::InOut],
        &[Access::Commutative, Access::Reduce, Access::InOut],
        &[Access::Reduce, Access::Reduce, Access::Commutative, Access::Input, Access::InOut],
    ];
    for_seeds("groups_of_parts", 400, |rng| {
        let accesses = few[rng.below(few.len())];
        let mix = Mix { accesses, views: 2 + rng.below(8), ..MIX };
        check(&random_program(rng, &mix));
    });
}

#[test]
fn parts_with_manual_scopes_and_explicit_deps() {
    let mix = Mix { accesses: &Access::ALL, manual: true, deps: true, ..MIX };
    for_seeds("parts_with_manual_scopes_and_explicit_deps", 400, |rng| {
        let mix = Mix { views: 2 + rng.below(12), ..mix };
        check(&random_program(rng, &mix));
    });
}

#[test]
fn parts_used_by_tasks_that_retire_in_any_order() {
    let mix = Mix { accesses: &Access::ALL, manual: true, deps: true, retire: true, ..MIX };
    for_seeds("parts_used_by_tasks_that_retire_in_any_order", 400, |rng| {
        let mix = Mix { views: 2 + rng.below(12), ..mix };
        check_retiring(&random_program(rng, &mix));
    });
}

/// Programs that use a buffer through ever new runs of bytes for a while, then through other views
/// or by other accesses, or through few views again and again, and then as before.
fn changing_program(rng: &mut Rng, mix: &Mix) -> Vec<Step> {
    let phases: Vec<(Kind, bool, bool)> = (0..4)
        .map(|phase| match phase % 2 {
            0 => (*rng.pick(&[slice as Kind, wide_or_narrow, window]), false, false),
            _ => (*rng.pick(&KINDS), rng.one_in(2), rng.one_in(3)),
        })
        .collect();
    let (mut args, mut pool) = (0, Vec::<View>::new());
    program_of(rng, mix, |rng| {
        let (kind, again, any_access) = phases[args / 70 % phases.len()];
        args += 1;
        let known = again && pool.len() >= 4;
        let view = if known { *rng.pick(&pool[pool.len() - 4..]) } else { kind(rng) };
        if !known {
            pool.push(view);
        }
        let accesses = if any_access { mix.accesses } else { PLAIN };
        Arg::new(*rng.pick(accesses), BufferId(0), view)
    })
}

#[test]
fn programs_that_change_how_they_use_a_buffer() {
    let mix = Mix { tasks: 160, accesses: &Access::ALL, deps: true, ..MIX };
    let mut without_views = 0;
    for_seeds("programs_that_change_how_they_use_a_buffer", 300, |rng| {
        let mix = Mix { manual: rng.one_in(4), ..mix };
        let steps = changing_program(rng, &mix);
        check(&steps);
        for length in [40, 80, 120] {
            let (_, stats) = run(SubmitOptions::default(), BUFFERS, BYTES, &steps[..length]);
            without_views += usize::from(stats.map.views == 0 && stats.map.entries > 1);
        }
    });
    assert!(without_views > 0, "accesses were kept as runs");
}

#[test]
fn programs_that_change_and_retire() {
    let mix = Mix { tasks: 160, accesses: &Access::ALL, deps: true, retire: true, ..MIX };
    for_seeds("programs_that_change_and_retire", 200, |rng| {
        let mix = Mix { manual: rng.one_in(4), ..mix };
        check_retiring(&changing_program(rng, &mix));
    });
}

/// A reader of all, and writes within it: it is cut into so many parts and no more, which is
/// counted, and no edge is lost.
#[test]
fn readers_are_cut_into_few_parts() {
    let options = SubmitOptions { full: true, ..SubmitOptions::default() };
    let mut submitter = Submitter::new(options);
    let buffer = submitter.create_buffer(1 << 20);
    let bytes = |start, count| View::bytes_at(start, count).unwrap();
    let mut submit = |arg: Arg| {
        let mut preds = Vec::new();
        let inputs = DepInputs { args: &[arg], deps: &[] };
        submitter.submit(inputs, |edge| preds.push(edge.pred.sequence())).unwrap();
        (preds, submitter.stats().map)
    };
    // Ever new runs that overlap: they are kept as such.
    for at in 0..100 {
        submit(Arg::inout(buffer, bytes(100 * at, 150)));
    }
    let readers = 200;
    for _ in 0..readers {
        submit(Arg::input(buffer, bytes(0, 1 << 20)));
    }
    for at in 0..1000 {
        let (preds, _) = submit(Arg::inout(buffer, bytes(1000 * at + 7, 3)));
        assert_eq!(preds.iter().filter(|&&pred| (100..300).contains(&pred)).count(), readers);
    }
    let (preds, stats) = submit(Arg::inout(buffer, bytes(7, 999_900)));
    // All readers, for what no write has touched, and the thousand writers; and some of those
    // before the readers.
    assert!((1200..=1300).contains(&preds.len()) && stats.views == 0, "{}", preds.len());
    assert!(stats.overlap.uncut > 0 && stats.entries <= 100 + 16 * readers, "{stats:?}");
}

/// Strides that have no common lattice: what was written stays whole, which is counted, and shows
/// at worst an edge that another one implies.
#[test]
fn views_without_a_common_lattice_stay_whole_and_are_counted() {
    let options = SubmitOptions { full: true, ..SubmitOptions::default() };
    let mut submitter = Submitter::new(options);
    let buffer = submitter.create_buffer(1 << 10);
    let every = |stride, count| View::strided(Dtype::U8, 0, &[count], &[stride]).unwrap();
    let mut submit = |arg: Arg| {
        let mut preds = Vec::new();
        let inputs = DepInputs { args: &[arg], deps: &[] };
        submitter.submit(inputs, |edge| preds.push(edge.pred.sequence())).unwrap();
        preds.sort_unstable();
        (preds, submitter.stats().map.overlap.uncut)
    };
    assert_eq!(submit(Arg::inout(buffer, every(7, 100))), (vec![], 0));
    assert_eq!(submit(Arg::inout(buffer, every(11, 60))), (vec![0], 1));
    let byte = |at| Arg::input(buffer, View::bytes_at(at, 1).unwrap());
    assert_eq!(submit(byte(7)).0, [0]);
    assert_eq!(submit(byte(11)).0, [1]);
    assert_eq!(submit(byte(77)).0, [0, 1], "of both; the second has waited for the first");
}

/// A task that may be refused: reads `read`, or a part beyond the end, and updates `written`.
#[test]
fn refused_tasks_leave_what_is_left_of_parts_as_it_was() {
    for_seeds("refused_tasks_leave_what_is_left_of_parts_as_it_was", 60, |rng| {
        let submitter = || {
            let mut submitter = Submitter::new(SubmitOptions::default());
            submitter.declare_buffer(BufferId(0), BYTES).unwrap();
            submitter
        };
        let (mut plain, mut disturbed) = (submitter(), submitter());
        let kind = *rng.pick(&KINDS);
        for _ in 0..80 {
            let args = [Arg::input(BufferId(0), kind(rng)), Arg::inout(BufferId(0), kind(rng))];
            if rng.one_in(2) {
                let beyond = Arg::input(BufferId(0), View::bytes_at(BYTES, 1).unwrap());
                let args = [args[1], Arg::inout(BufferId(0), kind(rng)), beyond];
                let inputs = DepInputs { args: &args, deps: &[] };
                disturbed.submit(inputs, |edge| panic!("{edge:?} of a bad task")).unwrap_err();
            }
            let inputs = DepInputs { args: &args, deps: &[] };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            disturbed.submit(inputs, |edge| ours.push(edge)).unwrap();
            plain.submit(inputs, |edge| theirs.push(edge)).unwrap();
            // Which of several pairs of arguments is named depends on the order of the views.
            let reasons = |mut edges: Vec<Edge>| {
                edges.sort_by_key(|edge| edge.pred);
                edges.iter().map(|edge| (edge.pred, edge.flags, edge.kinds)).collect::<Vec<_>>()
            };
            assert_eq!(reasons(ours), reasons(theirs));
        }
        assert_eq!(plain.stats().map.entries, disturbed.stats().map.entries);
    });
}

/// Who wrote each byte last, and who has read it since.
#[derive(Clone, Default)]
struct Byte {
    writer: Option<u64>,
    readers: Vec<u64>,
}

fn bytes_of(view: &View) -> Vec<usize> {
    let mut places = vec![view.offset() as i64];
    for (&count, &stride) in view.shape().iter().zip(view.strides()) {
        let steps = 0..count as i64;
        let all =
            |place: &i64| steps.clone().map(|step| step * stride + *place).collect::<Vec<_>>();
        places = places.iter().flat_map(all).collect();
    }
    assert_eq!(view.dtype(), Dtype::U8);
    places.into_iter().map(|place| place as usize).collect()
}

/// Views that are new each time: no edge but to who has written one of the bytes last, or read it
/// since.
#[test]
fn edges_come_from_the_frontier_of_the_bytes() {
    for kind in [slice as Kind, any_box] {
        for_seeds("edges_come_from_the_frontier_of_the_bytes", 150, |rng| {
            let mix = Mix { accesses: PLAIN, ..MIX };
            let mixed = rng.one_in(2);
            let mut seen = Vec::new();
            let steps = program_of(rng, &mix, |rng| {
                let mut view = kind(rng);
                while seen.contains(&view) {
                    view = if mixed && rng.one_in(2) { slice(rng) } else { kind(rng) };
                }
                seen.push(view);
                Arg::new(*rng.pick(mix.accesses), BufferId(rng.range(0..BUFFERS)), view)
            });
            let options = SubmitOptions { full: true, ..SubmitOptions::default() };
            let (edges, stats) = run(options, BUFFERS, BYTES, &steps);
            if stats.map.overlap.uncut > 0 {
                return;
            }
            let mut frontier = vec![vec![Byte::default(); BYTES as usize]; BUFFERS as usize];
            for (at, (step, edges)) in steps.iter().zip(&edges).enumerate() {
                let Step::Task { args, .. } = step else { panic!("only tasks") };
                let mut expected = std::collections::BTreeSet::new();
                for arg in args {
                    for byte in bytes_of(&arg.view) {
                        let byte = &frontier[arg.buffer.0 as usize][byte];
                        expected.extend(byte.writer);
                        expected.extend(byte.readers.iter().filter(|_| arg.access.writes()));
                    }
                }
                for edge in edges {
                    assert!(expected.contains(&edge.pred.sequence()), "{edge:?} into {at}");
                }
                for arg in args {
                    for byte in bytes_of(&arg.view) {
                        let byte = &mut frontier[arg.buffer.0 as usize][byte];
                        match arg.access.writes() {
                            true => *byte = Byte { writer: Some(at as u64), readers: Vec::new() },
                            false => byte.readers.push(at as u64),
                        }
                    }
                }
            }
        });
    }
}

/// A large buffer, seen as a matrix of 256 rows of 256 bytes.
const SIDE: u64 = 256;

fn of_large(rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> View {
    let matrix = View::contiguous(Dtype::U8, &[SIDE, SIDE]).unwrap();
    matrix.slice(0, rows).unwrap().slice(1, columns).unwrap()
}

fn large_box(rng: &mut Rng) -> View {
    let (rows, columns) = (rng.range(1..60), rng.range(1..60));
    let (row, column) = (rng.range(0..SIDE - rows), rng.range(0..SIDE - columns));
    of_large(row..row + rows, column..column + columns)
}

fn large_slice(rng: &mut Rng) -> View {
    let length = rng.range(1..SIDE * SIDE / 16);
    View::bytes_at(rng.range(0..SIDE * SIDE - length), length).unwrap()
}

/// The arguments of one task, by its number.
type Arguments = fn(&mut Rng, u64) -> Vec<Arg>;

fn random_slices(rng: &mut Rng, _: u64) -> Vec<Arg> {
    let [a, b, c] = [0; 3].map(|_| large_slice(rng));
    vec![Arg::input(BufferId(0), a), Arg::input(BufferId(0), b), Arg::inout(BufferId(0), c)]
}

fn random_boxes(rng: &mut Rng, _: u64) -> Vec<Arg> {
    vec![Arg::input(BufferId(0), large_box(rng)), Arg::inout(BufferId(0), large_box(rng))]
}

fn halos(rng: &mut Rng, at: u64) -> Vec<Arg> {
    let (row, column, halo) = (at / 8 % 8 * 32, at % 8 * 32, rng.range(1..9));
    let (from, to) = (BufferId(at / 64 % 2), BufferId((at / 64 + 1) % 2));
    let read = of_large(around(row, row + 32, halo, SIDE), around(column, column + 32, halo, SIDE));
    let written = of_large(row..row + 32, column..column + 32);
    vec![Arg::input(from, read), Arg::output_existing(to, written)]
}

fn sliding_windows(_: &mut Rng, at: u64) -> Vec<Arg> {
    let start = at * 64 % (SIDE * SIDE - 512);
    vec![Arg::inout(BufferId(0), View::bytes_at(start, 512).unwrap())]
}

fn transposed_tiles(rng: &mut Rng, at: u64) -> Vec<Arg> {
    let (row, column) = (16 * rng.range(0..16), 16 * rng.range(0..16));
    let other = View::contiguous(Dtype::U8, &[SIDE / 2, 2 * SIDE]).unwrap();
    let tile = match at % 2 {
        0 => of_large(row..row + 16, column..column + 16),
        _ => other.slice(0, row / 2..row / 2 + 8).unwrap().slice(1, column..column + 32).unwrap(),
    };
    vec![Arg::inout(BufferId(0), tile.transpose(0, 1).unwrap())]
}

fn rows_against_columns(rng: &mut Rng, _: u64) -> Vec<Arg> {
    let (start, count) = (rng.range(0..SIDE - 32), rng.range(1..32));
    let view = match rng.below(2) {
        0 => of_large(start..start + count, 0..SIDE),
        _ => of_large(0..SIDE, start..start + count),
    };
    vec![Arg::inout(BufferId(0), view)]
}

/// Ever new windows are read, and a few tiles written: no write covers a window.
fn reads_across_tiles(rng: &mut Rng, at: u64) -> Vec<Arg> {
    let tile = of_large(32 * (at % 8)..32 * (at % 8) + 32, 0..SIDE);
    vec![Arg::input(BufferId(0), large_slice(rng)), Arg::inout(BufferId(0), tile)]
}

const EARLY: u64 = 2_000;
const MIDDLE: u64 = 40_000;
const TASKS: u64 = 100_000;

#[test]
fn edges_and_memory_stay_flat_however_long_a_program_runs() {
    let programs: [(&str, Arguments); 7] = [
        ("random slices", random_slices),
        ("random boxes", random_boxes),
        ("halos", halos),
        ("sliding windows", sliding_windows),
        ("transposed tiles", transposed_tiles),
        ("rows against columns", rows_against_columns),
        ("reads across tiles", reads_across_tiles),
    ];
    for (name, args) in programs {
        let options = SubmitOptions { full: true, views_kept: 64, ..SubmitOptions::default() };
        let mut submitter = Submitter::new(options);
        (0..2).for_each(|at| submitter.declare_buffer(BufferId(at), SIDE * SIDE).unwrap());
        let mut rng = Rng::new(11);
        let (mut edges, mut early_edges, mut early_bytes) = (0u64, 0, 0);
        for at in 0..TASKS {
            let args = args(&mut rng, at);
            submitter.submit(DepInputs { args: &args, deps: &[] }, |_| edges += 1).unwrap();
            match at + 1 {
                EARLY => early_edges = edges,
                // By then every view has come once, where there are few.
                MIDDLE => early_bytes = submitter.stats().map.bytes,
                _ => {}
            }
        }
        let late_edges = (edges - early_edges) as f64 / (TASKS - EARLY) as f64;
        let early_edges = early_edges as f64 / EARLY as f64;
        let bytes = submitter.stats().map.bytes;
        assert!(late_edges < 1.5 * early_edges, "{name}: {early_edges}, later {late_edges} a task");
        assert!(late_edges < 25.0, "{name}: {late_edges} edges a task");
        assert!(2 * bytes < 3 * early_bytes, "{name}: {early_bytes} bytes, later {bytes}");
    }
}

/// Views that were used once go when they are empty, and views that were idle for long go too: a
/// view that is both goes once.
#[test]
fn a_view_that_is_idle_and_emptied_at_once_is_dropped_once() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let buffer = submitter.create_buffer(4096);
    let mut submit = |arg: Arg| {
        let mut edges = 0;
        submitter.submit(DepInputs { args: &[arg], deps: &[] }, |_| edges += 1).unwrap();
        edges
    };
    for _ in 0..2 {
        for tile in 0..40 {
            submit(Arg::inout(buffer, View::bytes_at(64 * tile, 64).unwrap()));
        }
    }
    submit(Arg::inout(buffer, View::bytes_at(0, 4096).unwrap()));
    let whole = View::contiguous(Dtype::U8, &[64, 64]).unwrap();
    for _ in 0..64 {
        assert_eq!(submit(Arg::input(buffer, whole)), 1);
    }
    // After the writer, by way of them, and the 64 readers.
    assert_eq!(submit(Arg::inout(buffer, whole)), 64);
}
