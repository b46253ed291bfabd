//! All interleavings of the fan-out protocol and of the queue of slot numbers, by `loom`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::book::{Book, Ring};
use super::index_ring::IndexRing;
use syncline_deps::TaskId;

/// Finishes the task in `slot` as a lane does, and counts how often each successor became ready.
fn finish(ring: &Ring, slot: u32, ready: &AtomicU32) {
    for successor in ring.slots[slot as usize].fanout.close().successors(&ring.nodes) {
        if ring.slots[successor as usize].count_down(1) {
            ready.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn enter(book: &mut Book, ring: &Ring, preds: &[TaskId]) -> (TaskId, u32, bool) {
    let task = book.submitter.submit(Default::default(), |_| ()).expect("no arguments");
    let slot = book.next_slot();
    book.preds.clear();
    book.preds.extend_from_slice(preds);
    let ready = book.enter(ring, task, 0, [].into_iter(), 1, |_| None);
    (task, slot, ready)
}

#[test]
fn a_successor_becomes_ready_once_whether_tied_before_or_after_its_predecessors_end() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(3, 1));
        let mut book = Book::new(0, 3, &ring, 4);
        let (first, first_slot, _) = enter(&mut book, &ring, &[]);
        let (second, second_slot, _) = enter(&mut book, &ring, &[]);
        let ready = Arc::new(AtomicU32::new(0));
        let finishers = [first_slot, second_slot].map(|slot| {
            let (ring, ready) = (ring.clone(), ready.clone());
            thread::spawn(move || finish(&ring, slot, &ready))
        });
        let (_, _, at_once) = enter(&mut book, &ring, &[first, second]);
        for finisher in finishers {
            finisher.join().expect("no panic");
        }
        let later = ready.load(Ordering::Relaxed);
        assert_eq!(later + u32::from(at_once), 1, "told {later} times, at once: {at_once}");
        // All nodes come back, however the pushes ended.
        book.take_back(&ring, first_slot, true, |_| ());
        book.take_back(&ring, second_slot, true, |_| ());
        assert_eq!(book.edges().now, 0);
        let (third, third_slot, _) = enter(&mut book, &ring, &[]);
        let (fourth, _, _) = enter(&mut book, &ring, &[third]);
        assert!(book.find(fourth).is_some() && book.find(third) == Some(third_slot));
    });
}

#[test]
fn a_waiter_is_told_or_finds_the_task_closed() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2, 1));
        let mut book = Book::new(0, 2, &ring, 3);
        let (task, slot, _) = enter(&mut book, &ring, &[]);
        let finisher = {
            let ring = ring.clone();
            thread::spawn(move || ring.slots[slot as usize].fanout.close().waited)
        };
        let asked = ring.slots[slot as usize].fanout.ask();
        enter(&mut book, &ring, &[task]);
        let told = finisher.join().expect("no panic");
        assert_eq!(asked, told, "who asked in time is told, who came too late knows");
    });
}

#[test]
fn a_failure_is_seen_by_whoever_makes_the_successor_ready() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(3, 1));
        let mut book = Book::new(0, 3, &ring, 4);
        let (first, first_slot, _) = enter(&mut book, &ring, &[]);
        let (second, second_slot, _) = enter(&mut book, &ring, &[]);
        let (_, third_slot, _) = enter(&mut book, &ring, &[first, second]);
        let finishers = [(first_slot, true), (second_slot, false)].map(|(slot, fails)| {
            let ring = ring.clone();
            thread::spawn(move || {
                let next = &ring.slots[third_slot as usize];
                for _ in ring.slots[slot as usize].fanout.close().successors(&ring.nodes) {
                    if fails {
                        next.inherit(first);
                    }
                    if next.count_down(1) {
                        assert_eq!(next.inherited(), Some(first));
                    }
                }
            })
        });
        for finisher in finishers {
            finisher.join().expect("no panic");
        }
    });
}

#[test]
fn two_consumers_never_take_the_same_number_nor_lose_one() {
    loom::model(|| {
        let queue = Arc::new(IndexRing::new(2));
        queue.push(1);
        let consumers = [1, 2].map(|most| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut taken = Vec::new();
                match most {
                    1 => taken.extend(queue.pop()),
                    _ => _ = queue.pop_into(2, &mut taken),
                }
                taken
            })
        });
        queue.push(2);
        let mut taken: Vec<u32> = Vec::new();
        for consumer in consumers {
            taken.extend(consumer.join().expect("no panic"));
        }
        queue.pop_into(2, &mut taken);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn a_queue_with_one_consumer_is_drained_without_loss_while_it_is_filled() {
    loom::model(|| {
        let queue = Arc::new(IndexRing::new(2));
        queue.push(1);
        let producer = {
            let queue = queue.clone();
            // A third entry takes the place of the first: only after that was read.
            thread::spawn(move || {
                queue.push(2);
                while queue.len() == 2 {
                    thread::yield_now();
                }
                queue.push(3);
            })
        };
        let mut taken = Vec::new();
        while taken.len() < 3 {
            queue.drain(|number| taken.push(number));
            thread::yield_now();
        }
        producer.join().expect("no panic");
        assert_eq!(taken, [1, 2, 3]);
    });
}

#[test]
fn a_task_whose_predecessors_have_all_ended_is_ready_at_once_and_nobody_elses() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2, 1));
        let mut book = Book::new(0, 2, &ring, 3);
        let (first, first_slot, _) = enter(&mut book, &ring, &[]);
        let ready = Arc::new(AtomicU32::new(0));
        let finisher = {
            let (ring, ready) = (ring.clone(), ready.clone());
            thread::spawn(move || finish(&ring, first_slot, &ready))
        };
        let (_, _, at_once) = enter(&mut book, &ring, &[first, first]);
        finisher.join().expect("no panic");
        assert_eq!(ready.load(Ordering::Relaxed) + u32::from(at_once), 1);
    });
}
