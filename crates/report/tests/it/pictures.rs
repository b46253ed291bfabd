//! Pictures of the page: in both themes, wide and narrow, with 62, 1,560 and 50,000 tasks. Every
//! view draws something, fits the page and meets axe-core's rules of accessibility.
//!
//! The pictures stay in the folder that the test prints, for people to see.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde_json::{Value, json};
use syncline_report::{RunRecord, render};
use syncline_testing::need;

use crate::browser::{FLAGS, NAMES, ONE_AT_A_TIME, find};
use crate::runs::{cholesky, slower};
use crate::webdriver::Driver;

const VIEWS: [&str; 5] = ["summary", "graph", "lanes", "path", "memory"];

/// Where `cargo xtask test` installs packages of npm.
fn axe() -> Option<String> {
    let folder = std::env::var_os("SYNCLINE_NODE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node"),
        PathBuf::from,
    );
    let file = folder.join("node_modules/axe-core/axe.min.js");
    need("axe-core (SYNCLINE_NODE names the folder of its node_modules)", fs::read_to_string(file))
}

/// Whether views and tabs fit: nothing is wider than the page, every tab can be seen, and the panel
/// lies beside or below the drawing.
const FITS: &str = r"
    const wide = document.documentElement.scrollWidth <= innerWidth;
    const tabs = [...document.querySelectorAll('.tabs button')].every((tab) => {
        const box = tab.getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight;
    });
    const panel = document.getElementById('details').getBoundingClientRect();
    const stages = [...document.querySelectorAll('.stage, .overview')].every((stage) => {
        const box = stage.getBoundingClientRect();
        return panel.width === 0 || box.right <= panel.left + 1 || box.bottom <= panel.top + 1
            || box.top >= panel.top;
    });
    return { wide, tabs, stages };";

/// How many colours the canvases of the view have.
const COLOURS: &str = r"
    const seen = new Set();
    for (const canvas of document.querySelectorAll('#main canvas')) {
        const copy = new OffscreenCanvas(canvas.width, canvas.height);
        const eye = copy.getContext('2d', { willReadFrequently: true });
        eye.drawImage(canvas, 0, 0);
        const data = eye.getImageData(0, 0, canvas.width, canvas.height).data;
        for (let at = 0; at < data.length; at += 4 * 7) {
            seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
        }
    }
    return seen.size;";

const AXE: &str = r"
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations.map(
        (one) => `${one.id}: ${one.nodes.slice(0, 2).map((node) => node.target.join(' ')).join('; ')}`)));";

fn take_pictures(test: &str, runs: &[RunRecord], views: &[&str], with_axe: bool) {
    let Some((browser, driver)) = find(&NAMES).zip(find(&["chromedriver"])) else { return };
    let axe = if with_axe { axe() } else { None };
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let page = Driver::start(&driver, &browser, &FLAGS, test);
    page.open(&render(runs).unwrap(), "summary");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&pictures).unwrap();
    println!("pictures: {}", pictures.display());
    if let Some(axe) = &axe {
        page.run(&format!("{axe}; return typeof axe"));
    }
    for width in [1280, 390] {
        page.resize(width, 860);
        for theme in ["light", "dark"] {
            page.run(&format!("Report.app.setTheme('{theme}')"));
            for view in views {
                let place = format!("{test}, {view}, {width} wide, {theme}");
                page.run(&format!("Report.app.follow('{view}')"));
                let fits = page.run(FITS);
                let whole = json!({"wide": true, "tabs": true, "stages": true});
                assert_eq!(fits, whole, "{place}");
                if ["graph", "lanes", "memory"].contains(view) {
                    let colours = page.run(COLOURS).as_u64().unwrap();
                    assert!(colours >= 8, "{place}: {colours} colours");
                }
                let picture = format!("{test}-{view}-{width}-{theme}.png");
                let name: String =
                    picture.chars().map(|c| if c == '&' { '-' } else { c }).collect();
                fs::write(pictures.join(name), page.picture()).unwrap();
                if axe.is_some() {
                    let found = page.run_async(AXE);
                    assert_eq!(found, Value::Array(Vec::new()), "{place}");
                }
            }
        }
    }
    let said = page.console();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn a_small_run_is_drawn_whole_and_is_accessible_in_the_browser() {
    let views = [&VIEWS[..], &["lanes&task=7", "lanes&range=20000-90000"]].concat();
    take_pictures("pictures-62", &[cholesky(6, 3)], &views, true);
}

#[test]
fn a_comparison_is_drawn_whole_and_is_accessible_in_the_browser() {
    let before = cholesky(5, 2);
    let after = slower(&before);
    take_pictures("pictures-compare", &[before, after], &["compare"], true);
}

#[test]
fn a_run_of_1560_tasks_is_drawn_whole_in_the_browser() {
    take_pictures("pictures-1560", &[cholesky(20, 4)], &VIEWS, false);
}

#[test]
fn fifty_thousand_tasks_are_drawn_whole_in_the_browser() {
    take_pictures("pictures-50000", &[cholesky(66, 8)], &VIEWS, false);
}
