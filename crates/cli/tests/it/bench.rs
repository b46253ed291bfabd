//! `bench`: the rows that tools read, and figures that need nothing installed.

use serde_json::Value;

use crate::support::run;

#[test]
fn figures_come_as_rows_without_peers() {
    let text = run(&["bench", "submit", "--smoke", "--json"]).success();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["format"], &result["version"]), (&"syncline-bench".into(), &1.into()));
    let rows = result["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && result["machine"].as_str().is_some_and(|text| !text.is_empty()));
    for row in rows {
        assert_eq!(row["bench"], "submit", "{row}");
        assert!(row["ours"].as_f64().is_some_and(|ours| ours >= 0.0), "{row}");
        let peer = row.get("peer").and_then(Value::as_str);
        assert!(peer.is_none_or(|peer| peer.starts_with("limit:")), "{row}");
    }
    assert!(run(&["bench", "submit", "--smoke"]).success().starts_with("| bench |"));
}

#[test]
fn a_benchmark_that_does_not_exist_is_refused_with_those_that_do() {
    let refused = run(&["bench", "sumbit"]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("submit"), "{}", refused.stderr);
}
