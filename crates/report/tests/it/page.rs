//! What `render` writes, and what it refuses.

use syncline_report::{Allocation, ReportError, RunLane, RunRecord, render};
use syncline_testing::for_seeds;

use crate::runs::{cholesky, edge, senseless_run, timed};

/// The data inside the page, as the page's script will read it.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (text, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = render(&[cholesky(4, 2)]).unwrap();
    for word in ["http://", "https://", "src=", "@import", "url(", "{{"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("<html").count(), 1);
    assert_eq!(data(&page)["runs"][0]["ops"]["task"].as_array().unwrap().len(), 24);
}

#[test]
fn hostile_names_stay_text() {
    let name = "</script><script>alert(1)</script><!-- \u{2028} & \"'";
    let mut run = RunRecord::new(name);
    run.lanes = vec![RunLane::new(name, name)];
    run.ops = vec![timed(u64::MAX, name, 0, 0, 1), timed(1, name, 0, 1, 2)];
    run.ops[0].args = vec![name.into()];
    run.edges = vec![edge(0, 1)];
    run.edges[0].region = name.into();
    run.facts = vec![(name.into(), name.into())];
    let page = render(&[run]).unwrap();
    assert!(!page.contains("<script>alert"));
    let data = data(&page);
    assert_eq!(data["runs"][0]["title"], name);
    assert_eq!(data["runs"][0]["ops"]["task"][0], "18446744073709551615");
}

#[test]
fn two_runs_are_compared_and_three_refused() {
    let run = cholesky(3, 2);
    let page = render(&[run.clone(), run.clone()]).unwrap();
    assert_eq!(data(&page)["compare"]["matched"], 13);
    assert_eq!(render(&[]), Err(ReportError::Runs { runs: 0 }));
    assert_eq!(render(&[run.clone(), run.clone(), run]), Err(ReportError::Runs { runs: 3 }));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let good = cholesky(2, 1);
    let refused = |change: &dyn Fn(&mut RunRecord)| {
        let mut run = good.clone();
        change(&mut run);
        render(&[run]).unwrap_err().to_string()
    };
    let time = |run: &mut RunRecord, start_ns, end_ns| {
        run.ops[1].timing.as_mut().unwrap().start_ns = start_ns;
        run.ops[1].timing.as_mut().unwrap().end_ns = end_ns;
    };
    let message = refused(&|run| time(run, 9, 8));
    assert_eq!(message, "task 1 `trsm` ends at 8 ns, before it starts at 9 ns");
    let message = refused(&|run| time(run, 0, u64::MAX));
    assert!(message.contains("do all lanes use one clock?"), "{message}");
    let message = refused(&|run| run.ops[1].timing.as_mut().unwrap().lane = 7);
    assert_eq!(message, "task 1 `trsm` ran on lane 7, but the run has 2 lanes");
    let message = refused(&|run| run.edges.push(edge(0, 99)));
    assert_eq!(message, "an edge from op 0 to op 99, but the run has 6 ops");
    let bad = Allocation { start_ns: 5, end_ns: 4, ..good.memory[0].clone() };
    let message = refused(&|run| run.memory.push(bad.clone()));
    assert_eq!(message, "buffer `A[0]` is released at 4 ns, before it is needed at 5 ns");
}

#[test]
fn any_times_give_a_page() {
    for_seeds("any_times_give_a_page", 60, |rng| {
        let (ops, lanes) = (rng.below(60), 1 + rng.below(3));
        let run = senseless_run(rng, ops, lanes);
        assert_eq!(data(&render(&[run]).unwrap())["runs"].as_array().unwrap().len(), 1);
    });
}
