//! Graphs for Graphviz.

use std::io::{self, Write};

use syncline::deps::DepGraph;
use syncline::trace::Trace;

pub(super) fn print_dot(out: &mut dyn Write, trace: &Trace, graph: &DepGraph) -> io::Result<()> {
    writeln!(out, "digraph deps {{")?;
    writeln!(out, "  rankdir=TB;")?;
    writeln!(out, "  node [shape=box, style=rounded];")?;
    for task in &trace.tasks {
        let label = format!("{} {}", task.id, task.label());
        writeln!(out, "  t{} [label=\"{}\"];", task.id, escaped(label.trim_end()))?;
    }
    for edge in graph.edges() {
        // An edge that only extends a lifetime orders nothing, and must not be drawn as if it did.
        let style = if edge.waits() { "" } else { ", style=dashed, arrowhead=none" };
        let (pred, succ) = (graph.id(edge.pred), graph.id(edge.succ));
        writeln!(out, "  t{pred} -> t{succ} [label=\"{}\"{style}];", edge.kinds)?;
    }
    writeln!(out, "}}")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
