//! Graphs for people: a summary, then one line a task.

use std::collections::HashMap;
use std::io::{self, Write};

use syncline::deps::DepGraph;
use syncline_files::one_line;

use super::why::Reasons;
use crate::input::LoadedTrace;

/// Which edges are shown.
#[derive(Clone, Copy)]
pub(super) enum Chosen {
    Wired { pruned: u64 },
    Full,
    Reduced,
}

pub(super) fn print_text(
    out: &mut dyn Write,
    loaded: &LoadedTrace,
    graph: &DepGraph,
    chosen: Chosen,
) -> io::Result<()> {
    print_summary(out, loaded, graph, chosen)?;
    let reasons = Reasons::of(&loaded.trace);
    let tasks = &loaded.trace.tasks;
    let width = tasks.iter().map(|task| task.id.to_string().len()).max().unwrap_or(0);
    let names: Vec<String> = tasks.iter().map(|task| one_line(task.label())).collect();
    let names_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
    for ((position, task), name) in tasks.iter().enumerate().zip(&names) {
        let waits = waits(graph, position as u32, &reasons);
        let line = format!("{:>width$} {name:<names_width$}  {waits}", task.id);
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn print_summary(
    out: &mut dyn Write,
    loaded: &LoadedTrace,
    graph: &DepGraph,
    chosen: Chosen,
) -> io::Result<()> {
    let trace = &loaded.trace;
    let bytes = trace.buffers.iter().fold(0u64, |sum, buffer| sum.saturating_add(buffer.bytes));
    let edges = count(graph.edges().len() as u64, "edge");
    let what = match chosen {
        Chosen::Wired { pruned: 0 } => format!("{edges} as the runtime wires them"),
        Chosen::Wired { pruned } => {
            format!("{edges} as the runtime wires them; others imply {pruned} more")
        }
        Chosen::Full => format!("{edges}: every conflicting pair and every explicit dependency"),
        Chosen::Reduced => format!("{edges}: the fewest that order the same"),
    };
    let tasks = count(trace.tasks.len() as u64, "task");
    let buffers = count(trace.buffers.len() as u64, "buffer");
    writeln!(
        out,
        "{}: {tasks}, {buffers} ({})",
        one_line(&loaded.file),
        crate::units::bytes(bytes)
    )?;
    writeln!(out, "{what}")?;
    let (longest, widest) = shape(graph);
    writeln!(out, "longest chain {longest}, widest level {widest}")?;
    writeln!(out)
}

/// What the task at `position` waits for; tasks that it waits for alike are told together.
fn waits(graph: &DepGraph, position: u32, reasons: &Reasons<'_>) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for edge in graph.edges_into(position) {
        let verb = if edge.waits() { "waits for" } else { "keeps alive" };
        let why = format!("{verb}\n{}", reasons.why(graph, edge));
        let task = reasons.task(edge.pred);
        let number = *numbers.entry(why.clone()).or_insert(groups.len());
        if number == groups.len() {
            groups.push((why, Vec::new()));
        }
        groups[number].1.push(task);
    }
    let mut last_verb = "";
    let mut text = String::new();
    for (why, tasks) in &groups {
        let (verb, why) = why.split_once('\n').unwrap_or(("", why));
        if !text.is_empty() {
            text += "; ";
        }
        if verb != last_verb {
            text += &format!("{verb} ");
        }
        last_verb = verb;
        text += &format!("{}: {why}", tasks.join(", "));
    }
    text
}

/// Tasks on the longest chain, and the most tasks at the same distance from the start.
fn shape(graph: &DepGraph) -> (u32, u32) {
    let mut levels = vec![1u32; graph.tasks()];
    for edge in graph.edges().iter().filter(|edge| edge.waits() && edge.pred < edge.succ) {
        let after = levels[edge.pred as usize] + 1;
        let level = &mut levels[edge.succ as usize];
        *level = after.max(*level);
    }
    let longest = levels.iter().copied().max().unwrap_or(0);
    let mut widths = vec![0u32; longest as usize + 1];
    levels.iter().for_each(|&level| widths[level as usize] += 1);
    (longest, widths.into_iter().max().unwrap_or(0))
}

fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
