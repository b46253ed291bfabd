//! Where a test goes:
//! - `path.rs`: the critical path, gaps and what-if, as properties of random runs
//! - `graph.rs`: redundant edges against brute force, the layout's order
//! - `numbers.rs`: memory, summary and comparison on runs small enough to work out by hand
//! - `verdict.rs`: outliers, robust figures, the chain of data, more lanes, what a run grew by
//! - `from_trace.rs`: runs from traces in JSON
//! - `page.rs`: what `render` writes, and what it refuses
//! - `browser.rs`: the page in a real browser, checking itself
//! - `person.rs`: the page under keys, clicks and the wheel; `webdriver.rs` is how
//! - `pictures.rs`: every view in both themes, wide and narrow, under axe-core's rules
//! - `runs.rs`: the runs that the others use

mod browser;
mod from_trace;
mod graph;
mod numbers;
mod page;
mod path;
mod person;
mod pictures;
mod runs;
mod verdict;
mod webdriver;
