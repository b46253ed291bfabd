//! Tasks whose number depends on the data: a curve is halved until it is flat, live in a stream.
//! `cargo run --release --example dynamic`

use std::error::Error;

use syncline::prelude::*;

/// The integral of a curve by Simpson's rule over `from..to`, and how far two halves differ.
fn simpson(curve: fn(f64) -> f64, from: f64, to: f64) -> (f64, f64) {
    let rule = |a: f64, b: f64| (b - a) / 6.0 * (curve(a) + 4.0 * curve((a + b) / 2.0) + curve(b));
    let (whole, middle) = (rule(from, to), (from + to) / 2.0);
    let halves = rule(from, middle) + rule(middle, to);
    (halves, (whole - halves).abs())
}

/// Splits intervals whose error is too large, round by round: what the next round submits is read
/// from what this one computed.
fn integrate(
    to: &impl Submit,
    curve: fn(f64) -> f64,
    (from, end): (f64, f64),
    tolerance: f64,
) -> Result<(f64, usize)> {
    let (mut open, mut total, mut tasks) = (vec![(from, end)], 0.0, 0);
    while !open.is_empty() {
        let found = to.zeros::<f64>([open.len(), 2])?;
        for (at, &(from, end)) in open.iter().enumerate() {
            to.task("simpson", found.index(0, at)?.write()).run(move |mut found| {
                (found[[0]], found[[1]]) = simpson(curve, from, end);
            })?;
        }
        tasks += open.len();
        // Waits for this round's tasks.
        let found = found.to_vec()?;
        let mut next = Vec::new();
        for (&(from, end), found) in open.iter().zip(found.chunks(2)) {
            if found[1] > tolerance * (end - from) {
                let middle = (from + end) / 2.0;
                next.extend([(from, middle), (middle, end)]);
            } else {
                total += found[0];
            }
        }
        open = next;
    }
    Ok((total, tasks))
}

fn main() -> Result<(), Box<dyn Error>> {
    let curve = |x: f64| (10.0 / (x + 0.05)).sin();
    let (serial, tasks) = integrate(&Serial, curve, (0.0, 3.0), 1e-9)?;
    let stream = Stream::new(StreamOptions::default())?;
    let (live, as_many) = integrate(&stream, curve, (0.0, 3.0), 1e-9)?;
    let executor = UnifiedExecutor::open("cpu")?;
    let (scoped, _) = executor.scope(|s| integrate(s, curve, (0.0, 3.0), 1e-9))?;
    assert_eq!((serial, tasks, scoped), (live, as_many, live), "all ways agree");
    println!("integral {live:.9} by {tasks} tasks, as many as the curve needs");

    // A plan is recorded before it runs, so that it cannot depend on what it computes.
    let recorded = executor.record(|g| integrate(g, curve, (0.0, 3.0), 1e-9).map(|_| ()));
    println!("recorded: {}", recorded.expect_err("nothing has run yet"));
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
