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

/// Each figure once: beside a limit if there is one, and never beside a peer.
pub fn without_peers(rows: &[Row]) -> Vec<Row> {
    let is_limit =
        |row: &Row| row.peer.as_ref().is_some_and(|(name, _)| name.starts_with("limit:"));
    let same = |a: &Row, b: &Row| (&a.work, a.metric, a.n) == (&b.work, b.metric, b.n);
    let mut kept: Vec<Row> = Vec::new();
    for row in rows {
        if is_limit(row) {
            kept.push(row.clone());
        } else if !rows.iter().any(|other| same(other, row) && is_limit(other))
            && !kept.iter().any(|other| same(other, row))
        {
            kept.push(Row { peer: None, ..row.clone() });
        }
    }
    kept
}

/// Prints the rows as a table.
pub fn print(rows: &[Row]) {
    print!("\n{}", table(rows));
}

/// The rows as a Markdown table, ready for the README beside this crate.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| bench | work | metric | n | ours | ± | peer | theirs | ratio |\n\
         | --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: |\n",
    );
    for row in rows {
        let (peer, theirs, ratio) = match (&row.peer, row.ratio()) {
            (Some((peer, theirs)), Some(ratio)) => {
                (peer.as_str(), format!("{theirs:.1}"), format!("{ratio:.2}"))
            }
            _ => ("", String::new(), String::new()),
        };
        text += &format!(
            "| {} | {} | {} | {} | {:.1} | {:.1} | {peer} | {theirs} | {ratio} |\n",
            row.bench, row.work, row.metric, row.n, row.ours, row.spread
        );
    }
    text
}

/// The whole result as one JSON document.
pub fn to_json(machine: &str, rows: &[Row]) -> String {
    let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let document =
        json!({"format": "syncline-bench", "version": 1, "machine": machine, "rows": rows});
    serde_json::to_string_pretty(&document).expect("numbers and strings only") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figure;

    #[test]
    fn without_peers_every_figure_stays() {
        let row = |work| Row::new("b", work, "ns_per_task", 1, Figure { median: 1.0, spread: 0.0 });
        let rows = [
            row("x").beside("openmp", 2.0),
            row("x").beside("rayon", 3.0),
            row("y").beside("openmp", 2.0),
            row("y").beside("limit:loop", 0.5),
            row("z"),
        ];
        let kept: Vec<_> =
            without_peers(&rows).into_iter().map(|row| (row.work, row.peer)).collect();
        let limit = Some(("limit:loop".to_owned(), 0.5));
        assert_eq!(kept, [("x".to_owned(), None), ("y".to_owned(), limit), ("z".to_owned(), None)]);
    }
}
