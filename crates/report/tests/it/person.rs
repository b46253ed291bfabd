//! The page as a person uses it: a task is found by name, an edge followed, a view zoomed; the
//! console stays silent.

use std::sync::PoisonError;

use syncline_report::{RunRecord, render};

use crate::browser::{FLAGS, NAMES, ONE_AT_A_TIME, find};
use crate::runs::cholesky;
use crate::webdriver::Driver;

const ENTER: &str = "\u{e007}";

fn use_the_page(test: &str, run: &RunRecord) {
    let Some((browser, driver)) = find(&NAMES).zip(find(&["chromedriver"])) else {
        return;
    };
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let page = Driver::start(&driver, &browser, &FLAGS, test);
    page.open(&render(std::slice::from_ref(run)).unwrap(), "graph");

    // The last task waits for others.
    let last = run.ops.last().unwrap();
    page.type_into("#search", &format!("{} #{}", last.name, last.task));
    page.until("#found", "the search lists the task", |text| text.contains(&last.name));
    page.type_into("#search", ENTER);
    let chosen = page.until("#details", "the details name it", |text| text.contains(&last.name));

    page.click("#waits-for button");
    page.until("#details", "an edge leads to another task", |text| text != chosen);

    page.click("#tab-lanes");
    let all = page.until("#lanes-status", "the swimlane says how much it shows", |text| {
        text.ends_with("in sight")
    });
    page.wheel(".stage canvas", -300);
    page.until("#lanes-status", "the wheel zooms in", |text| text != all);

    let said = page.console();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn a_person_finds_follows_and_zooms_in_the_browser() {
    use_the_page("person", &cholesky(5, 2));
}

#[test]
fn and_in_fifty_thousand_tasks_in_the_browser() {
    let run = cholesky(66, 8);
    assert!(run.ops.len() > 50_000);
    use_the_page("person-large", &run);
}
