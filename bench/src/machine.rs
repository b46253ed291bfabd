//! What the figures were measured on.

/// Processors, their name and the memory, such as `2 x AMD EPYC, 24 GiB`.
pub fn describe() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(':').nth(1))
            .map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_kib: u64 = field(&read("/proc/meminfo"), "MemTotal")
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    let gib = (memory_kib as f64 / f64::from(1 << 20)).round();
    format!("{processors} x {}, {gib} GiB", field(&read("/proc/cpuinfo"), "model name"))
}
