//! Where a run comes from: what its page, capture and trace say of the machine and the command.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use syncline::device::{Backend, DeviceSpec};
use syncline::program::Program;

/// Seeds beyond this many are counted.
const SEEDS_LISTED: usize = 8;

/// Labels and values, in the order in which they are shown.
#[derive(Clone, Default)]
pub(crate) struct Provenance(Map<String, Value>);

impl Provenance {
    /// Returns the facts about this process and its machine.
    pub(crate) fn here() -> Self {
        let mut provenance = Self::default();
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        provenance.add("host", text(system.nodename()));
        let name = [system.sysname(), system.release(), system.machine()].map(text).join(" ");
        provenance.add("system", name);
        provenance.add("processor", syncline_bench::describe_machine());
        provenance.add("date", date(SystemTime::now()));
        provenance.add("version", format!("syncline {}", env!("CARGO_PKG_VERSION")));
        let arguments = crate::arguments();
        if !arguments.is_empty() {
            let words = arguments.iter().map(quoted).collect::<Vec<_>>();
            provenance.add("command", format!("syncline {}", words.join(" ")));
        }
        provenance
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, label: &str, value: impl Into<Value>) {
        self.0.insert(label.to_owned(), value.into());
    }

    /// Adds what the drivers call `devices`.
    pub(crate) fn add_devices(&mut self, devices: &[DeviceSpec]) {
        let is_cpu = |device: &DeviceSpec| device.backend == Backend::Cpu;
        // Drivers take a while to start.
        let found = match devices.iter().all(is_cpu) {
            true => Vec::new(),
            false => syncline::registry().probe(),
        };
        let infos: Vec<_> =
            found.iter().filter_map(|one| one.devices.as_ref().ok()).flatten().collect();
        let named = devices.iter().map(|device| {
            let info = infos.iter().find(|info| info.spec == *device);
            Value::from(info.map_or(device.to_string(), |info| format!("{device}: {}", info.name)))
        });
        self.add("devices", named.collect::<Vec<_>>());
    }

    /// Adds the seeds of the values that `program` begins with, if it has random ones.
    pub(crate) fn add_seeds(&mut self, program: &Program) {
        let buffers = program.trace().buffers.iter();
        let seeds = buffers.filter_map(|buffer| buffer.extra.get("init")?.get("random"));
        let seeds: BTreeSet<String> = seeds.map(|seed| seed.to_string()).collect();
        match seeds.len() {
            0 => {}
            1..=SEEDS_LISTED => self.add("seeds", seeds.into_iter().collect::<Vec<_>>().join(", ")),
            count => self.add("seeds", format!("{count} different ones, in the program")),
        }
    }

    /// Returns the lines as pages show them: those of a list one after the other.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Array(values) => {
                values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
            }
            other => other.to_string(),
        };
        self.0.iter().map(|(label, value)| (label.clone(), text(value))).collect()
    }

    /// Returns them as files carry them.
    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

/// A word as a shell takes it.
fn quoted(word: &OsString) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `2026-02-28 23:59:59 UTC`.
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The Gregorian date, `days` days after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date -u -d @N` prints them.
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let quoted = |word: &str| quoted(&word.into());
        assert_eq!(quoted("--devices=cpu:0,cpu:1"), "--devices=cpu:0,cpu:1");
        assert_eq!(quoted("my program.json"), "'my program.json'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
