//! Bridges under races: a wait is asked for while its timeline moves.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use syncline_backend::{Bridge, Woken};
use syncline_device::{Deadline, DeviceError, DeviceSpec, Timeline};

fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Passes on that it was woken.
struct Echo {
    woken: Timeline,
    value: u64,
}

impl Woken for Echo {
    fn wake(self: Arc<Self>) {
        // Woken once for each wait: no value is signalled twice.
        let _ = self.woken.signal(self.value);
    }
}

fn bridge() -> Bridge {
    Bridge::start("test", DeviceSpec::CPU).unwrap()
}

/// Another thread counts up, through values that decide nothing, while waits are asked for: each
/// must be answered.
#[test]
fn no_wait_is_lost_while_its_timeline_moves() {
    const ROUNDS: u64 = 20_000;
    const STEP: u64 = 3;
    let bridge = bridge();
    let (moving, woken) = (Timeline::new("moving", 0), Timeline::new("woken", 0));
    thread::scope(|threads| {
        threads.spawn(|| {
            for round in 1..=ROUNDS {
                for value in (round - 1) * STEP..round * STEP {
                    moving.signal(value + 1).unwrap();
                }
                // The next round begins when this one's wait was answered.
                woken.wait(round, in_time()).expect("a wait that was never answered");
            }
        });
        for round in 1..=ROUNDS {
            let echo = Echo { woken: woken.clone(), value: round };
            bridge.when(&moving.point(round * STEP), Arc::new(echo));
            woken.wait(round, in_time()).unwrap();
        }
    });
}

#[test]
fn a_failure_answers_every_wait() {
    let bridge = bridge();
    let failing = Timeline::new("failing", 0);
    let woken: Vec<_> = (0..10).map(|_| Timeline::new("woken", 0)).collect();
    for (at, woken) in woken.iter().enumerate() {
        let echo = Echo { woken: woken.clone(), value: 1 };
        bridge.when(&failing.point(at as u64 + 1), Arc::new(echo));
    }
    failing.fail(DeviceError::Cancelled { reason: "on purpose".into() }).unwrap();
    woken.iter().for_each(|woken| woken.wait(1, in_time()).unwrap());
    let late = Timeline::new("late", 0);
    bridge.when(&failing.point(1), Arc::new(Echo { woken: late.clone(), value: 1 }));
    late.wait(1, in_time()).unwrap();
}

#[test]
fn what_is_forgotten_is_dropped() {
    let bridge = bridge();
    let never = Timeline::new("never", 0);
    let echo = Arc::new(Echo { woken: Timeline::new("woken", 0), value: 1 });
    bridge.when(&never.point(1), echo.clone());
    bridge.forget(echo.clone());
    bridge.settle(in_time());
    assert_eq!(Arc::strong_count(&echo), 1, "the bridge still holds it");
}
