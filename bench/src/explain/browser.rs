//! The page in a real browser: how long it takes to open, and to draw a frame.
//!
//! The page measures itself where its address ends in `#selftest`: time from the first script to
//! the first picture, and sixty frames of each view, flying in and out. Chromium, headless, writes
//! the document that it then has.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-extensions",
    "--window-size=1400,900",
];
const TIME_MAX: Duration = Duration::from_secs(60);

/// What the page found out about itself.
pub(super) struct Opened {
    /// Until it could be used.
    pub start_ms: f64,
    /// View, median and worst frame in milliseconds.
    pub frames: Vec<(String, f64, f64)>,
}

/// Opens `page`; `None` where there is no browser, or it does not end in time.
pub(super) fn open(page: &str) -> Option<Opened> {
    let path = std::env::var_os("PATH")?;
    let browser = std::env::split_paths(&path)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|file| file.is_file())?;
    let folder = Folder::new()?;
    let file = folder.0.join("page.html");
    fs::write(&file, page).ok()?;
    // A file, not a pipe: no thread reads while the browser writes.
    let document = folder.0.join("document");
    let mut child = Command::new(browser)
        .args(FLAGS)
        .arg("--dump-dom")
        .arg(format!("--user-data-dir={}", folder.0.join("profile").display()))
        .arg(format!("file://{}#selftest", file.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&document).ok()?)
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let began = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if began.elapsed() > TIME_MAX {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    read(&String::from_utf8_lossy(&fs::read(document).ok()?))
}

fn read(document: &str) -> Option<Opened> {
    let (_, rest) = document.split_once("<pre id=\"selftest\" hidden=\"\">")?;
    let (text, _) = rest.split_once("</pre>")?;
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let found: Value = serde_json::from_str(&plain).ok()?;
    let frames = found["frames"].as_object()?.iter().filter_map(|(view, times)| {
        Some((view.clone(), times["median_ms"].as_f64()?, times["worst_ms"].as_f64()?))
    });
    Some(Opened { start_ms: found["start_ms"].as_f64()?, frames: frames.collect() })
}

/// A folder that is gone when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Option<Self> {
        let name = format!("syncline-bench-page-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A browser's last helper may still write; its files lie in the folder for temporary
        // files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_says_is_read() {
        let document = r#"<html><pre id="selftest" hidden="">{"start_ms":12.5,"frames":{"graph":{"median_ms":3,
            "worst_ms":9.5},"lanes":null},"checks":[{"name":"a &lt; b"}]}</pre></html>"#;
        let opened = read(document).unwrap();
        assert_eq!(opened.start_ms, 12.5);
        assert_eq!(opened.frames, [("graph".to_owned(), 3.0, 9.5)]);
        assert!(read("<html></html>").is_none());
    }
}
