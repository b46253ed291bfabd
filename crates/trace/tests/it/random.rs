//! Random views, traces and members.

use serde_json::{Value, json};
use syncline_deps::ScopeKind;
use syncline_tensor::{Access, Arg, BufferId, Dtype, View};
use syncline_testing::Rng;
use syncline_trace::{
    Extra, Trace, TraceArg, TraceBuffer, TraceLane, TraceScope, TraceTask, Unwritten,
};

/// Any view that lies inside `bytes` bytes; without zero strides where it is for writing.
pub fn view(rng: &mut Rng, bytes: u64, writes: bool) -> View {
    for _ in 0..20 {
        let dtype = *rng.pick(&Dtype::ALL);
        let element = dtype.bytes() as i64;
        let rank = rng.below(4);
        let shape: Vec<u64> = (0..rank).map(|_| rng.range(0..5)).collect();
        let strides: Vec<i64> = (0..rank)
            .map(|_| match rng.below(4) {
                0 if !writes => 0,
                1 => element,
                2 => element * (rng.range(1..9) as i64),
                _ => rng.range(1..33) as i64 * if rng.one_in(2) { -1 } else { 1 },
            })
            .collect();
        let (mut low, mut high) = (0i64, element);
        for (&size, &stride) in shape.iter().zip(&strides) {
            let reach = stride * size.saturating_sub(1) as i64;
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        let room = bytes as i64 - (high - low);
        if room >= 0 {
            let offset = -low + rng.range(0..room as u64 + 1) as i64;
            return View::strided(dtype, offset as u64, &shape, &strides)
                .expect("inside the buffer");
        }
    }
    View::bytes_at(0, bytes.min(3)).expect("small")
}

/// Any argument on one of `buffers`.
pub fn arg(rng: &mut Rng, buffers: &[TraceBuffer]) -> Arg {
    let access = *rng.pick(&Access::ALL);
    let buffer = rng.pick(buffers);
    Arg::new(access, buffer.id, view(rng, buffer.bytes, access.writes()))
}

/// A valid program: all accesses, explicit dependencies, auto and manual tasks; nothing else.
pub fn program(rng: &mut Rng, tasks_max: u64) -> Trace {
    let mut trace = Trace::default();
    for id in 0..rng.range(1..5) {
        trace.buffers.push(TraceBuffer::new(BufferId(id * 3), rng.range(1..200)));
    }
    let manual_in = rng.range(2..10);
    for id in 0..rng.range(0..tasks_max + 1) {
        let args: Vec<Arg> = (0..rng.below(4)).map(|_| arg(rng, &trace.buffers)).collect();
        let mut task = TraceTask::new(id * 2, "t", args);
        if rng.one_in(manual_in) {
            task.scope = ScopeKind::Manual;
        }
        while id > 0 && rng.one_in(4) {
            task.deps.push(rng.range(0..id) * 2);
        }
        trace.tasks.push(task);
    }
    trace
}

/// A valid trace with everything that the forms can hold.
pub fn trace(rng: &mut Rng) -> Trace {
    let mut trace = program(rng, 20);
    trace.extra = extra(rng);
    scopes(rng, &mut trace);
    let tasks = trace.tasks.len() as u64;
    let mut ahead = 0;
    for (index, task) in trace.tasks.iter_mut().enumerate() {
        ahead += if rng.one_in(4) { rng.range(0..10) } else { 0 };
        task.id += ahead;
        decorate(rng, task, index as u64, tasks);
    }
    // Ids may have been moved: dependencies follow.
    let ids: Vec<u64> = trace.tasks.iter().map(|task| task.id).collect();
    let far = if rng.one_in(2) { u64::MAX - 1000 } else { 0 };
    for (index, task) in trace.tasks.iter_mut().enumerate() {
        task.deps = task.deps.iter().map(|dep| far + ids[(dep / 2) as usize]).collect();
        task.id = far + ids[index];
    }
    for buffer in &mut trace.buffers {
        buffer.extra = extra(rng);
        buffer.name = rng.one_in(2).then(|| text(rng).as_str().into());
        if rng.one_in(3) {
            let used = |task: &TraceTask| task.args.iter().any(|arg| arg.arg.buffer == buffer.id);
            let last = trace.tasks.iter().rposition(used).map_or(0, |at| at as u64 + 1);
            buffer.released_at = Some(rng.range(last..tasks + 1));
        }
    }
    if rng.one_in(3) {
        trace.stats = vec![json!({"tasks": 3}), value(rng, 2)];
    }
    trace
}

fn scopes(rng: &mut Rng, trace: &mut Trace) {
    if rng.one_in(2) {
        return;
    }
    let mut open: Vec<u32> = Vec::new();
    for task in &mut trace.tasks {
        while rng.one_in(3) {
            if rng.one_in(2) && !open.is_empty() {
                open.pop();
                continue;
            }
            let kind = *rng.pick(&[ScopeKind::Auto, ScopeKind::Manual]);
            let name = rng.one_in(2).then(|| text(rng).as_str().into());
            let parent = open.last().copied();
            open.push(trace.scopes.len() as u32);
            trace.scopes.push(TraceScope { kind, parent, name, extra: extra(rng) });
        }
        task.scope_id = open.last().copied();
        if let Some(scope) = task.scope_id {
            task.scope = trace.scopes[scope as usize].kind;
        }
    }
}

fn decorate(rng: &mut Rng, task: &mut TraceTask, index: u64, tasks: u64) {
    task.name = rng.one_in(2).then(|| text(rng).as_str().into());
    task.extra = extra(rng);
    if rng.one_in(3) {
        task.device = Some(rng.pick(&[json!("cpu"), json!(["cpu", "vulkan:0"])]).clone());
    }
    if rng.one_in(3) {
        task.start_ns = Some(rng.next_u64());
        task.end_ns = rng.one_in(2).then(|| rng.next_u64() >> 20);
        task.lane = Some(if rng.one_in(2) {
            TraceLane::Number(3)
        } else {
            TraceLane::Name("cpu/1".into())
        });
    }
    if rng.one_in(3) {
        task.retired_at = Some(rng.range(index + 1..tasks + 1));
    }
    for TraceArg { extra: members, .. } in &mut task.args {
        *members = extra(rng);
    }
    task.unwritten = Unwritten {
        scope: task.scope == ScopeKind::Auto && rng.one_in(2),
        deps: task.deps.is_empty() && rng.one_in(2),
    };
}

/// Members for other programs.
pub fn extra(rng: &mut Rng) -> Extra {
    let mut members = Extra::new();
    while rng.one_in(3) {
        members.insert(format!("x-{}", text(rng)), value(rng, 3));
    }
    members
}

fn text(rng: &mut Rng) -> String {
    let pieces =
        ["gemm", "\u{e9}t\u{e9}", "\n", "\"", "\\", " ", "\u{1F680}", "trsm", "\u{0}", "/"];
    (0..rng.below(4)).map(|_| *rng.pick(&pieces)).collect()
}

fn value(rng: &mut Rng, depth: u64) -> Value {
    match rng.below(if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => json!(rng.one_in(2)),
        2 => json!(rng.next_u64()),
        3 => json!(rng.next_u64() as i64),
        // Any finite double, down to the last bit.
        4 => json!(
            Some(f64::from_bits(rng.next_u64())).filter(|float| float.is_finite()).unwrap_or(0.1)
        ),
        5 => json!(text(rng)),
        6 => (0..rng.below(3)).map(|_| value(rng, depth - 1)).collect(),
        _ => Value::Object(extra(rng)),
    }
}
