//! The data that the page carries: one column an attribute, every text once.
//!
//! `page/data.js` reads this form; the two change together.

mod compare;

use std::collections::HashMap;

use serde::Serialize;

use crate::analysis::Analysis;
use crate::embed::compare::CompareData;
use crate::gaps::GapCause;
use crate::path::StepKind;
use crate::reduce::Redundant;
use crate::walk::PathLink;
use crate::{ReportError, RunOpKind, RunRecord};

/// Outliers that are listed, the one that costs most first.
const OUTLIERS_MAX: usize = 200;
/// The largest of the whole numbers that a browser tells from its neighbours.
const EXACT_MAX: u64 = (1 << 53) - 1;

#[derive(Serialize)]
pub(crate) struct Data<'a> {
    runs: Vec<RunData<'a>>,
    compare: Option<CompareData>,
}

impl<'a> Data<'a> {
    pub(crate) fn of(runs: &'a [RunRecord]) -> Result<Self, ReportError> {
        let compare = match runs {
            [before, after] => Some(CompareData::of(&Analysis::compare(before, after))),
            _ => None,
        };
        Ok(Self { runs: runs.iter().map(RunData::of).collect::<Result<_, _>>()?, compare })
    }
}

#[derive(Serialize)]
struct RunData<'a> {
    title: &'a str,
    timed: bool,
    makespan: u64,
    work: u64,
    limit: String,
    depth: u32,
    rows: u32,
    edges_decided: bool,
    facts: &'a [(String, String)],
    provenance: &'a [(String, String)],
    strings: Vec<&'a str>,
    lanes: Vec<LaneData<'a>>,
    ops: Ops,
    edges: Edges,
    gaps: Gaps,
    path: Path,
    chain: Chain,
    outliers: Outliers,
    scenarios: Vec<(String, u64)>,
    kernels: Vec<KernelData>,
    places: Vec<PlaceData<'a>>,
}

#[derive(Serialize)]
struct LaneData<'a> {
    name: &'a str,
    device: &'a str,
    ops: u64,
    busy: u64,
    idle: [u64; 5],
}

/// `lane` is -1 for an op that was not timed; `args` are positions of texts, `arg_starts` says
/// whose.
#[derive(Default, Serialize)]
struct Ops {
    task: Vec<Id>,
    name: Vec<u32>,
    copy: Vec<u8>,
    bytes: Vec<u64>,
    lane: Vec<i64>,
    start: Vec<u64>,
    length: Vec<u64>,
    x: Vec<i64>,
    row: Vec<u32>,
    args: Vec<u32>,
    arg_starts: Vec<u32>,
}

/// A browser's numbers hold 53 bits: larger ids are texts.
#[derive(Serialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
}

impl Id {
    fn of(id: u64) -> Self {
        if id <= EXACT_MAX { Id::Number(id) } else { Id::Text(id.to_string()) }
    }
}

#[derive(Default, Serialize)]
struct Edges {
    pred: Vec<u32>,
    succ: Vec<u32>,
    kinds: Vec<u32>,
    region: Vec<u32>,
    hidden: Vec<u8>,
}

#[derive(Default, Serialize)]
struct Gaps {
    lane: Vec<u32>,
    start: Vec<u64>,
    length: Vec<u64>,
    cause: Vec<u8>,
    before: Vec<i64>,
    on: Vec<i64>,
}

/// `kind` is 0 for compute, 1 for copy, 2 for stall, 3 for late; `link` is an edge, -1 for the
/// lane's order, -2 for none.
#[derive(Default, Serialize)]
struct Path {
    kind: Vec<u8>,
    op: Vec<u32>,
    start: Vec<u64>,
    length: Vec<u64>,
    link: Vec<i64>,
    /// Work and copies that data forced after one another, and that lanes did.
    by_link: [u64; 2],
}

/// What dependencies alone force: ops from first to last, and the edges between them.
#[derive(Default, Serialize)]
struct Chain {
    time: u64,
    op: Vec<u32>,
    edge: Vec<i64>,
}

/// `why` is what the op probably comes from, in words.
#[derive(Default, Serialize)]
struct Outliers {
    op: Vec<u32>,
    median: Vec<u64>,
    why: Vec<&'static str>,
}

#[derive(Serialize)]
struct KernelData {
    name: u32,
    copy: u8,
    count: u64,
    total: u64,
    median: u64,
    p95: u64,
    max: u64,
    path: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct PlaceData<'a> {
    name: &'a str,
    peak: u64,
    peak_at: i64,
    label: Vec<u32>,
    bytes: Vec<u64>,
    offset: Vec<i64>,
    start: Vec<i64>,
    length: Vec<u64>,
    row: Vec<u32>,
}

/// Texts by position, each once.
#[derive(Default)]
struct Strings<'a> {
    texts: Vec<&'a str>,
    places: HashMap<&'a str, u32>,
}

impl<'a> Strings<'a> {
    fn add(&mut self, text: &'a str) -> u32 {
        *self.places.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() as u32 - 1
        })
    }
}

impl<'a> RunData<'a> {
    fn of(run: &'a RunRecord) -> Result<Self, ReportError> {
        let analysis = Analysis::of(run)?;
        let from_ns = run.span_ns().map_or(0, |(start, _)| start);
        let mut strings = Strings::default();
        let redundant = analysis.redundant(run);
        let layout = analysis.layout(run, &redundant);
        let ops = ops(run, &layout, from_ns, &mut strings);
        let edges = edges(run, &redundant, &mut strings);
        let kernels = kernels(run, &analysis, &mut strings);
        let places = places(run, &analysis, from_ns, &mut strings);
        Ok(Self {
            title: &run.title,
            timed: run.is_timed(),
            makespan: analysis.summary.makespan_ns,
            work: analysis.summary.work_ns,
            limit: analysis.summary.limit.clone(),
            depth: layout.depth,
            rows: layout.rows,
            edges_decided: redundant.complete,
            facts: &run.facts,
            provenance: &run.provenance,
            strings: strings.texts,
            lanes: lanes(run, &analysis),
            ops,
            edges,
            gaps: gaps(&analysis, from_ns),
            path: path(&analysis, from_ns),
            chain: chain(&analysis),
            outliers: outliers(&analysis),
            scenarios: (analysis.scenarios.iter())
                .map(|one| (one.change.to_string(), one.makespan_ns))
                .collect(),
            kernels,
            places,
        })
    }
}

fn lanes<'a>(run: &'a RunRecord, analysis: &Analysis) -> Vec<LaneData<'a>> {
    let uses = run.lanes.iter().zip(&analysis.summary.lanes);
    uses.map(|(lane, used)| LaneData {
        name: &lane.name,
        device: &lane.device,
        ops: used.ops,
        busy: used.busy_ns,
        idle: used.idle_ns,
    })
    .collect()
}

fn ops<'a>(
    run: &'a RunRecord,
    layout: &crate::GraphLayout,
    from_ns: u64,
    strings: &mut Strings<'a>,
) -> Ops {
    let mut ops = Ops::default();
    for (position, op) in run.ops.iter().enumerate() {
        ops.task.push(Id::of(op.task));
        ops.name.push(strings.add(&op.name));
        ops.copy.push(u8::from(op.kind == RunOpKind::Copy));
        ops.bytes.push(op.bytes);
        ops.lane.push(op.timing.map_or(-1, |timing| i64::from(timing.lane)));
        ops.start.push(op.timing.map_or(0, |timing| timing.start_ns - from_ns));
        ops.length.push(op.timing.map_or(0, |timing| timing.end_ns - timing.start_ns));
        // Hundredths: finer places cannot be distinguished, and take twice the bytes.
        ops.x.push((f64::from(layout.x[position]) * 100.0).round() as i64);
        ops.row.push(layout.row[position]);
        ops.arg_starts.push(ops.args.len() as u32);
        ops.args.extend(op.args.iter().map(|arg| strings.add(arg)));
    }
    ops.arg_starts.push(ops.args.len() as u32);
    ops
}

fn edges<'a>(run: &'a RunRecord, redundant: &Redundant, strings: &mut Strings<'a>) -> Edges {
    let mut edges = Edges::default();
    for (edge, &hidden) in run.edges.iter().zip(&redundant.edges) {
        edges.pred.push(edge.pred);
        edges.succ.push(edge.succ);
        edges.kinds.push(u32::from(edge.kinds.bits()));
        edges.region.push(strings.add(&edge.region));
        edges.hidden.push(u8::from(hidden));
    }
    edges
}

fn gaps(analysis: &Analysis, from_ns: u64) -> Gaps {
    let mut gaps = Gaps::default();
    for gap in &analysis.gaps {
        gaps.lane.push(gap.lane);
        gaps.start.push(gap.start_ns - from_ns);
        gaps.length.push(gap.end_ns - gap.start_ns);
        let cause = GapCause::ALL.iter().position(|&cause| cause == gap.cause);
        gaps.cause.push(cause.expect("all causes are there") as u8);
        gaps.before.push(gap.before.map_or(-1, i64::from));
        gaps.on.push(gap.on.map_or(-1, i64::from));
    }
    gaps
}

fn path(analysis: &Analysis, from_ns: u64) -> Path {
    let mut path = Path::default();
    for step in &analysis.path.steps {
        path.kind.push(match step.kind {
            StepKind::Compute => 0,
            StepKind::Copy => 1,
            StepKind::Stall => 2,
            StepKind::Late => 3,
        });
        path.op.push(step.op);
        path.start.push(step.start_ns - from_ns);
        path.length.push(step.duration_ns());
        path.link.push(match step.link {
            Some(PathLink::Edge(edge)) => i64::from(edge),
            Some(PathLink::Lane) => -1,
            None => -2,
        });
    }
    let links = analysis.path.link_times();
    path.by_link = [links.data_ns, links.lane_ns];
    path
}

fn chain(analysis: &Analysis) -> Chain {
    let mut chain = Chain { time: analysis.chain.time_ns, ..Chain::default() };
    for step in &analysis.chain.steps {
        chain.op.push(step.op);
        chain.edge.push(step.edge.map_or(-1, i64::from));
    }
    chain
}

fn outliers(analysis: &Analysis) -> Outliers {
    let mut outliers = Outliers::default();
    for one in analysis.outliers.iter().take(OUTLIERS_MAX) {
        outliers.op.push(one.op);
        outliers.median.push(one.median_ns);
        outliers.why.push(one.cause.words());
    }
    outliers
}

fn kernels<'a>(
    run: &'a RunRecord,
    analysis: &Analysis,
    strings: &mut Strings<'a>,
) -> Vec<KernelData> {
    // The summary owns its names; the texts are borrowed from the run, where each of them is.
    let names: HashMap<&str, &'a str> =
        run.ops.iter().map(|op| (op.name.as_str(), op.name.as_str())).collect();
    let kernels = analysis.summary.kernels.iter();
    kernels
        .map(|one| KernelData {
            name: strings.add(names[one.name.as_str()]),
            copy: u8::from(one.kind == RunOpKind::Copy),
            count: one.count,
            total: one.total_ns,
            median: one.median_ns,
            p95: one.p95_ns,
            max: one.max_ns,
            path: one.path_ns,
            bytes: one.bytes,
        })
        .collect()
}

fn places<'a>(
    run: &'a RunRecord,
    analysis: &Analysis,
    from_ns: u64,
    strings: &mut Strings<'a>,
) -> Vec<PlaceData<'a>> {
    let exact = EXACT_MAX as i128;
    let relative = |ns: u64| (i128::from(ns) - i128::from(from_ns)).clamp(-exact, exact) as i64;
    let mut places = Vec::new();
    for place in &analysis.places {
        let buffers = || place.buffers.iter().map(|&one| &run.memory[one as usize]);
        places.push(PlaceData {
            name: buffers().next().map_or("", |one| one.place.as_str()),
            peak: place.peak_bytes,
            peak_at: relative(place.peak_ns),
            label: buffers().map(|one| strings.add(&one.name)).collect(),
            bytes: buffers().map(|one| one.bytes).collect(),
            offset: buffers().map(|one| one.offset.map_or(-1, |offset| offset as i64)).collect(),
            start: buffers().map(|one| relative(one.start_ns)).collect(),
            length: buffers().map(|one| one.end_ns - one.start_ns).collect(),
            row: place.rows.clone(),
        });
    }
    places
}
