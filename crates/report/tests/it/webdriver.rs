//! Driving a browser as a person would: keys, clicks and the wheel, through chromedriver's own
//! protocol.
//!
//! The protocol is JSON over HTTP on the loopback address; the few calls that the tests make need
//! no library.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const TIME_MAX: Duration = Duration::from_secs(60);
/// Ending the browser is given less.
const QUIT_MAX: Duration = Duration::from_secs(10);
/// How the protocol spells a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser under remote control; both end when this is dropped.
pub struct Driver {
    child: Child,
    folder: PathBuf,
    port: u16,
    session: String,
}

impl Driver {
    /// Starts chromedriver, and through it `browser` with `flags`.
    pub fn start(driver: &Path, browser: &Path, flags: &[&str], name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("syncline-driver-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let log = folder.join("log");
        let child = Command::new(driver)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut driver = Self { child, folder, port: 0, session: String::new() };
        driver.port = driver.chosen_port(&log);
        let profile = format!("--user-data-dir={}", driver.folder.join("profile").display());
        let args: Vec<&str> = flags.iter().copied().chain([profile.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": browser, "args": args},
            "goog:loggingPrefs": {"browser": "ALL"}}}});
        let session = driver.call("POST", "/session", &wanted);
        driver.session = session["sessionId"].as_str().expect("a session").to_owned();
        driver
    }

    fn chosen_port(&self, log: &Path) -> u16 {
        let began = Instant::now();
        while began.elapsed() < TIME_MAX {
            let text = fs::read_to_string(log).unwrap_or_default();
            let after = text.split_once("successfully on port ").map(|(_, after)| after);
            let digits: Option<String> =
                after.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect());
            if let Some(port) = digits.and_then(|digits| digits.parse().ok()) {
                return port;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("chromedriver did not start within {TIME_MAX:?}");
    }

    /// Writes `page` to a file and opens it at `fragment`.
    pub fn open(&self, page: &str, fragment: &str) {
        let file = self.folder.join("page.html");
        fs::write(&file, page).unwrap();
        self.post("url", &json!({"url": format!("file://{}#{fragment}", file.display())}));
    }

    /// The visible text of the first element that `selector` finds.
    pub fn text(&self, selector: &str) -> String {
        let element = self.element(selector);
        self.get(&format!("element/{element}/text")).as_str().unwrap_or_default().to_owned()
    }

    /// Clicks in the middle of it.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("element/{element}/click"), &json!({}));
    }

    /// Types into it; `\u{e007}` is Enter.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("element/{element}/value"), &json!({"text": text}));
    }

    /// Turns the wheel with the pointer over the middle of it; a negative `delta_y` is away from
    /// oneself.
    pub fn wheel(&self, selector: &str, delta_y: i32) {
        let origin = json!({ELEMENT: self.element(selector)});
        let scroll = json!({"type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": delta_y,
            "duration": 0, "origin": origin});
        self.post(
            "actions",
            &json!({"actions": [{"type": "wheel", "id": "wheel", "actions": [scroll]}]}),
        );
    }

    /// Polls until `holds`, and returns the last state.
    pub fn until(&self, selector: &str, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let text = self.text(selector);
            if holds(&text) {
                return text;
            }
            assert!(began.elapsed() < TIME_MAX, "{what}: `{selector}` says {text:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs `script` in the page and returns what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs `script`, which calls its last argument with what this returns.
    pub fn run_async(&self, script: &str) -> Value {
        self.post("execute/async", &json!({"script": script, "args": []}))
    }

    /// Makes the page `width` by `height`; below the least width of a window, its view does.
    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": false});
        self.post(
            "goog/cdp/execute",
            &json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}),
        );
    }

    /// The page as a picture (PNG).
    pub fn picture(&self) -> Vec<u8> {
        let text = self.get("screenshot");
        decode_base64(text.as_str().expect("a picture"))
    }

    /// What the console said since it was asked last.
    pub fn console(&self) -> Vec<String> {
        let log = self.post("se/log", &json!({"type": "browser"}));
        let entries = log.as_array().expect("a list of entries");
        entries.iter().map(|entry| entry["message"].to_string()).collect()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("element", &json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn get(&self, path: &str) -> Value {
        self.call("GET", &format!("/session/{}/{path}", self.session), &Value::Null)
    }

    /// Ends the browser; a test that fails must not fail twice.
    fn quit(&self) -> std::io::Result<()> {
        if self.session.is_empty() {
            return Ok(());
        }
        let mut connection = TcpStream::connect(("127.0.0.1", self.port))?;
        connection.set_read_timeout(Some(QUIT_MAX))?;
        write!(
            connection,
            "DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            self.session
        )?;
        // The answer comes when the browser has ended.
        connection.read(&mut [0; 1 << 10]).map(drop)
    }

    /// One call, on a connection of its own.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        connection.set_read_timeout(Some(TIME_MAX)).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let answer = read_answer(&mut connection);
        let document: Value = serde_json::from_str(&answer).unwrap_or_default();
        let value = document["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value:#}");
        value
    }
}

/// Bytes from base64 with padding.
fn decode_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.bytes() {
        let Some(value) = LETTERS.iter().position(|&known| known == letter) else { continue };
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// The body of an answer, as long as its header says: the driver keeps connections open.
fn read_answer(connection: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            if length.is_none_or(|length: usize| body.len() >= length) {
                return body.to_owned();
            }
        }
        match connection.read(&mut piece).expect("chromedriver answers in time") {
            0 => panic!("chromedriver hung up: {text}"),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Otherwise the browser would outlive its driver, above all where a test has failed.
        let _ = self.quit();
        // Either may already be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
