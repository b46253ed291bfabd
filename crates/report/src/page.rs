//! The page itself: one HTML file with style, script and data in it.

use crate::embed::Data;
use crate::{ReportError, RunRecord};

const FRAME: &str = include_str!("page/frame.html");
const STYLE: &str = include_str!("page/style.css");

/// In the order in which they need each other.
const SCRIPTS: [&str; 17] = [
    include_str!("page/data.js"),
    include_str!("page/format.js"),
    include_str!("page/busy.js"),
    include_str!("page/plot.js"),
    include_str!("page/details.js"),
    include_str!("page/graph.js"),
    include_str!("page/groups.js"),
    include_str!("page/overview.js"),
    include_str!("page/range.js"),
    include_str!("page/lanes.js"),
    include_str!("page/path.js"),
    include_str!("page/buffers.js"),
    include_str!("page/memory.js"),
    include_str!("page/summary.js"),
    include_str!("page/compare.js"),
    include_str!("page/app.js"),
    include_str!("page/selftest.js"),
];

/// The page of one run, or of two with what changed from the first to the second.
pub fn render(runs: &[RunRecord]) -> Result<String, ReportError> {
    if !(1..=2).contains(&runs.len()) {
        return Err(ReportError::Runs { runs: runs.len() });
    }
    let data = serde_json::to_string(&Data::of(runs)?).expect("columns of numbers and texts");
    // Inside a script element only `<` could end it, and in JSON it occurs inside texts only.
    let data = data.replace('<', "\\u003c");
    let title = runs.iter().map(|run| run.title.as_str()).collect::<Vec<_>>().join(" and ");
    let mut page = String::with_capacity(data.len() + (1 << 17));
    let mut rest = FRAME;
    for (slot, text) in [
        ("{{title}}", escape(&title).as_str()),
        ("{{style}}", STYLE),
        ("{{data}}", data.as_str()),
        ("{{script}}", SCRIPTS.join("\n").as_str()),
    ] {
        let (before, after) = rest.split_once(slot).expect("the frame has every slot, in order");
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
