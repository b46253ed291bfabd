//! Rows: one figure of ours and one of a peer, and how they are shown.

use serde_json::{Value, json};

/// One line of the result, as `FORMATS` has it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The benchmark.
    pub bench: &'static str,
    /// What was done.
    pub work: String,
    /// What was measured, with its unit last: `ns_per_task`, `gb_per_s`.
    pub metric: &'static str,
    /// Tasks, bytes or the like.
    pub n: u64,
    /// Our figure: a median.
    pub ours: f64,
    /// Half the distance between the quartiles of our figure.
    pub spread: f64,
    /// The peer, or `limit:...` for a physical limit, and its figure.
    pub peer: Option<(String, f64)>,
}

impl Row {
    /// A row with nothing beside it.
    pub fn new(
        bench: &'static str,
        work: impl Into<String>,
        metric: &'static str,
        n: u64,
        ours: crate::measure::Figure,
    ) -> Self {
        Self {
            bench,
            work: work.into(),
            metric,
            n,
            ours: ours.median,
            spread: ours.spread,
            peer: None,
        }
    }

    /// The same figure beside a peer's.
    #[must_use]
    pub fn beside(&self, peer: impl Into<String>, theirs: f64) -> Self {
        Self { peer: Some((peer.into(), theirs)), ..self.clone() }
    }

    /// Above 1 where ours is better.
    pub fn ratio(&self) -> Option<f64> {
        let (_, theirs) = self.peer.as_ref()?;
        let more_is_better = self.metric.contains("per_s") && !self.metric.starts_with("ns");
        Some(if more_is_better { self.ours / theirs } else { theirs / self.ours })
    }

    fn to_json(&self) -> Value {
        let mut row = json!({
            "bench": self.bench, "work": self.work, "metric": self.metric, "n": self.n,
            "ours": self.ours, "spread": self.spread,
        });
        if let Some((peer, theirs)) = &self.peer {
            row["peer"] = json!(peer);
            row["theirs"] = json!(theirs);
            row["ratio"] = json!(self.ratio());
        }
        row
    }
}

/// Shows the rows as a Markdown table, ready for the README beside this crate.
pub fn print(rows: &[Row]) {
    println!("\n| bench | work | metric | n | ours | ± | peer | theirs | ratio |");
    println!("| --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: |");
    for row in rows {
        let (peer, theirs, ratio) = match (&row.peer, row.ratio()) {
            (Some((peer, theirs)), Some(ratio)) => {
                (peer.as_str(), format!("{theirs:.1}"), format!("{ratio:.2}"))
            }
            _ => ("", String::new(), String::new()),
        };
        println!(
            "| {} | {} | {} | {} | {:.1} | {:.1} | {peer} | {theirs} | {ratio} |",
            row.bench, row.work, row.metric, row.n, row.ours, row.spread
        );
    }
}

/// The whole result as one JSON document.
pub fn to_json(machine: &str, rows: &[Row]) -> String {
    let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let document =
        json!({"format": "syncline-bench", "version": 1, "machine": machine, "rows": rows});
    serde_json::to_string_pretty(&document).expect("numbers and strings only") + "\n"
}
