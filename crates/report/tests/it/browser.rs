//! The page in a real browser: it checks itself (`#selftest`), and this test reads the outcome.
//!
//! Needs a Chromium. Without one the tests say that they were skipped; in CI (`CI` is set) they
//! fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use syncline_report::{RunRecord, render};
use syncline_testing::need;

use crate::runs::{cholesky, edge, slower};

/// Browsers beside each other would only take each other's time.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const TIME_MAX: Duration = Duration::from_secs(60);
/// On a machine with far more work than cores, a browser now and then does not come up at all.
const TRIES: usize = 3;
pub const NAMES: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

pub const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--enable-logging=stderr",
    "--window-size=1400,900",
];

/// Returns the first of `names` on the path, or `None` where the test is to be skipped.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|file| file.is_file());
    need(names[0], found.ok_or("it is not on the path"))
}

/// A browser and its folder: gone when this is dropped, whatever happened before.
struct Session {
    child: Child,
    folder: PathBuf,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Either may already be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What the page wrote about itself, and what the console said; `None` without a browser.
fn selftest(test: &str, runs: &[RunRecord]) -> Option<(Value, String)> {
    let browser = find(&NAMES)?;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let page = render(runs).unwrap();
    for one_try in 0..TRIES {
        let mut session = Session::start(&browser, &format!("{test}-{one_try}"), &page);
        if session.ends() {
            return Some((session.outcome(), session.text("log")));
        }
        println!("{test}: the browser took too long:\n{}", session.text("log"));
    }
    panic!("{TRIES} times the browser took more than {TIME_MAX:?}");
}

impl Session {
    fn start(browser: &Path, name: &str, page: &str) -> Self {
        let name = format!("syncline-report-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("page.html");
        fs::write(&file, page).unwrap();
        // Output goes to files: a full pipe would hold the browser up.
        let child = Command::new(browser)
            .args(FLAGS)
            .arg("--dump-dom")
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("file://{}#selftest", file.display()))
            .stdin(Stdio::null())
            .stdout(File::create(folder.join("dom")).unwrap())
            .stderr(File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Whether the browser ends in time.
    fn ends(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < TIME_MAX {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn text(&self, file: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join(file)).unwrap_or_default()).into_owned()
    }

    fn outcome(&self) -> Value {
        let dom = self.text("dom");
        let rest = dom.split_once("<pre id=\"selftest\" hidden=\"\">").map(|(_, rest)| rest);
        let Some((outcome, _)) = rest.and_then(|rest| rest.split_once("</pre>")) else {
            panic!("the page says nothing:\n{}", self.text("log"))
        };
        let plain = outcome.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        serde_json::from_str(&plain).unwrap()
    }
}

/// Every check must hold, and the console must be silent.
fn assert_works(test: &str, runs: &[RunRecord], checks_min: usize) {
    let Some((outcome, log)) = selftest(test, runs) else { return };
    let checks = outcome["checks"].as_array().unwrap();
    let failed: Vec<_> = checks.iter().filter(|check| check["holds"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(checks.len() >= checks_min, "only {} checks ran: {checks:#?}", checks.len());
    let said: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "{said:#?}");
    println!("{test}: started in {} ms, frames {}", outcome["start_ms"], outcome["frames"]);
}

#[test]
fn a_small_run_works_in_the_browser() {
    assert_works("small", &[cholesky(4, 2)], 20);
}

#[test]
fn fifty_thousand_tasks_work_in_the_browser() {
    let run = cholesky(66, 8);
    assert!(run.ops.len() > 50_000);
    assert_works("large", &[run], 20);
}

#[test]
fn two_runs_work_in_the_browser() {
    let before = cholesky(6, 2);
    let after = slower(&before);
    assert_works("compare", &[before, after], 21);
}

#[test]
fn a_run_without_times_and_hostile_names_work_in_the_browser() {
    let mut run = cholesky(3, 2);
    run.memory.clear();
    for op in &mut run.ops {
        op.timing = None;
        op.name = "</script><b>&\"'\u{2028}".to_owned();
    }
    run.edges.push(edge(0, 12));
    assert_works("untimed", &[run], 15);
}
