//! All interleavings of the fan-out protocol and of the queue of slot numbers, by `loom`.

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::fanout::NEAR;
use super::index_ring::IndexRing;
use super::ring::Ring;
use super::task_table::TaskTable;
use syncline_tensor::TaskId;

/// Finishes the task in `slot` as a lane does, and counts how often each successor became ready.
fn finish(ring: &Ring, slot: u32, ready: &AtomicU32) {
    for successor in ring.slots[slot as usize].fanout.close().successors(&ring.nodes) {
        if ring.slots[successor as usize].count_down(1) {
            ready.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn enter(table: &mut TaskTable, ring: &Ring, preds: &[TaskId]) -> (TaskId, u32, bool) {
    let task = table.submitter.submit(Default::default(), |_| ()).expect("no arguments");
    let slot = table.next_slot();
    table.preds.clear();
    table.preds.extend_from_slice(preds);
    let ready = table.enter(ring, task, 0, &[], 1, |_| None);
    (task, slot, ready)
}

#[test]
fn a_successor_becomes_ready_once_whether_tied_before_or_after_its_predecessors_end() {
    // Three threads: all interleavings take minutes (they pass). With three preemptions the model
    // still finds a missing fence and a wrong decision at once.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(Ring::new(3, 1));
        let mut table = TaskTable::new(0, 3, &ring, 4);
        let (first, first_slot, _) = enter(&mut table, &ring, &[]);
        let (second, second_slot, _) = enter(&mut table, &ring, &[]);
        let ready = Arc::new(AtomicU32::new(0));
        let finishers = [first_slot, second_slot].map(|slot| {
            let (ring, ready) = (ring.clone(), ready.clone());
            thread::spawn(move || finish(&ring, slot, &ready))
        });
        let (_, _, at_once) = enter(&mut table, &ring, &[first, second]);
        for finisher in finishers {
            finisher.join().expect("no panic");
        }
        let later = ready.load(Ordering::Relaxed);
        assert_eq!(later + u32::from(at_once), 1, "told {later} times, at once: {at_once}");
        // All nodes come back, however the pushes ended.
        table.reclaim(&ring, first_slot, true, |_| ());
        table.reclaim(&ring, second_slot, true, |_| ());
        assert_eq!(table.edges().now, 0);
        let (third, third_slot, _) = enter(&mut table, &ring, &[]);
        let (fourth, _, _) = enter(&mut table, &ring, &[third]);
        assert!(table.find(fourth).is_some() && table.find(third) == Some(third_slot));
    });
}

#[test]
fn a_successor_for_whom_there_is_no_place_near_is_told_once_too() {
    loom::model(|| {
        let tasks = NEAR + 3;
        let ring = Arc::new(Ring::new(tasks, 1));
        let mut table = TaskTable::new(0, tasks, &ring, 1 + tasks);
        let (first, slot, _) = enter(&mut table, &ring, &[]);
        // All places but one are taken; one successor gets the last, the other a node, if they come
        // in time.
        for _ in 1..NEAR {
            enter(&mut table, &ring, &[first]);
        }
        let ready = Arc::new(AtomicU32::new(0));
        let finisher = {
            let (ring, ready) = (ring.clone(), ready.clone());
            thread::spawn(move || finish(&ring, slot, &ready))
        };
        let at_once = [(); 2].map(|()| u32::from(enter(&mut table, &ring, &[first]).2));
        finisher.join().expect("no panic");
        let told = ready.load(Ordering::Relaxed) + at_once[0] + at_once[1];
        assert_eq!(told, NEAR as u32 + 1);
        table.reclaim(&ring, slot, true, |_| ());
        assert_eq!(table.edges().now, 0);
    });
}

#[test]
fn a_submission_is_seen_by_who_falls_asleep_or_sees_the_sleeper() {
    loom::model(|| {
        let queue = Arc::new(IndexRing::new(2));
        let idle = Arc::new(AtomicU32::new(0));
        let submit_lock = Arc::new(Mutex::new(()));
        let sleeper = {
            let (queue, idle, submit_lock) = (queue.clone(), idle.clone(), submit_lock.clone());
            thread::spawn(move || {
                idle.fetch_add(1, Ordering::SeqCst);
                drop(submit_lock.lock().expect("no panic"));
                queue.len() > 0
            })
        };
        let guard = submit_lock.lock().expect("no panic");
        queue.push_guarded(1);
        let wakes = idle.load(Ordering::Relaxed) != 0;
        drop(guard);
        let stays_awake = sleeper.join().expect("no panic");
        assert!(wakes || stays_awake, "the task is left lying");
    });
}

#[test]
fn a_submission_is_seen_by_who_stops_searching_or_sees_that_nobody_searches() {
    loom::model(|| {
        let queue = Arc::new(IndexRing::new(2));
        let searching = Arc::new(AtomicU32::new(1));
        let searcher = {
            let (queue, searching) = (queue.clone(), searching.clone());
            thread::spawn(move || {
                searching.fetch_sub(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                queue.len() > 0
            })
        };
        queue.push_guarded(1);
        fence(Ordering::SeqCst);
        let wakes = searching.load(Ordering::SeqCst) == 0;
        let finds = searcher.join().expect("no panic");
        assert!(wakes || finds, "the task is left to nobody");
    });
}

#[test]
fn a_waiter_is_told_or_finds_the_task_closed() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2, 1));
        let mut table = TaskTable::new(0, 2, &ring, 3);
        let (task, slot, _) = enter(&mut table, &ring, &[]);
        let finisher = {
            let ring = ring.clone();
            thread::spawn(move || ring.slots[slot as usize].fanout.close().waited)
        };
        let asked = ring.slots[slot as usize].fanout.ask();
        enter(&mut table, &ring, &[task]);
        let told = finisher.join().expect("no panic");
        assert_eq!(asked, told, "who asked in time is told, who came too late knows");
    });
}

#[test]
fn a_failure_is_seen_by_whoever_makes_the_successor_ready() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(3, 1));
        let mut table = TaskTable::new(0, 3, &ring, 4);
        let (first, first_slot, _) = enter(&mut table, &ring, &[]);
        let (second, second_slot, _) = enter(&mut table, &ring, &[]);
        let (_, third_slot, _) = enter(&mut table, &ring, &[first, second]);
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
fn a_failure_is_inherited_by_a_successor_that_comes_while_its_predecessor_ends() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2, 1));
        let mut table = TaskTable::new(0, 2, &ring, 3);
        let (failing, failing_slot, _) = enter(&mut table, &ring, &[]);
        let recorded = Arc::new(AtomicU32::new(0));
        let late_slot = table.next_slot();
        let finisher = {
            let (ring, recorded) = (ring.clone(), recorded.clone());
            thread::spawn(move || {
                // As at the end of a task: what failed is on record before the list is closed.
                recorded.store(1, Ordering::Relaxed);
                for _ in ring.slots[failing_slot as usize].fanout.close().successors(&ring.nodes) {
                    let next = &ring.slots[late_slot as usize];
                    next.inherit(failing);
                    if next.count_down(1) {
                        assert_eq!(next.inherited(), Some(failing));
                    }
                }
            })
        };
        let task = table.submitter.submit(Default::default(), |_| ()).expect("no arguments");
        table.preds.clear();
        table.preds.push(failing);
        let origin_of = |_| (recorded.load(Ordering::Relaxed) == 1).then_some(failing);
        if table.enter(&ring, task, 0, &[], 1, origin_of) {
            assert_eq!(ring.slots[late_slot as usize].inherited(), Some(failing));
        }
        finisher.join().expect("no panic");
        table.reclaim(&ring, failing_slot, true, |_| ());
        assert_eq!(table.edges().now, 0, "late or not, no edge stays in the table");
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
        let mut table = TaskTable::new(0, 2, &ring, 3);
        let (first, first_slot, _) = enter(&mut table, &ring, &[]);
        let ready = Arc::new(AtomicU32::new(0));
        let finisher = {
            let (ring, ready) = (ring.clone(), ready.clone());
            thread::spawn(move || finish(&ring, first_slot, &ready))
        };
        let (_, _, at_once) = enter(&mut table, &ring, &[first]);
        finisher.join().expect("no panic");
        assert_eq!(ready.load(Ordering::Relaxed) + u32::from(at_once), 1);
    });
}
