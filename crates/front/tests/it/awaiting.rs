use std::future::Future;
use std::time::Duration;

use syncline_front::{ErrorKind, RunTasks, Submit, Tensor, WhenDone};

use super::{executor, stream};

/// Runs `future` under both runtimes, each on a thread of its own, so that a wake-up that is lost
/// fails the test instead of hanging it.
fn under_both<F: Future<Output = ()> + 'static>(future: fn() -> F) {
    let (sent, received) = std::sync::mpsc::channel();
    let also = sent.clone();
    let run = |call: Box<dyn FnOnce() + Send>| std::thread::spawn(call);
    let threads = [
        run(Box::new(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            runtime.expect("threads").block_on(future());
            let _ = sent.send(());
        })),
        run(Box::new(move || {
            futures::executor::block_on(future());
            let _ = also.send(());
        })),
    ];
    for _ in &threads {
        received.recv_timeout(Duration::from_secs(60)).expect("each ends, without a panic");
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it has ended"));
}

#[test]
fn tasks_are_awaited_under_tokio_and_futures() {
    under_both(|| async {
        let (stream, x) = (stream(), Tensor::from(vec![0u64]));
        for round in 1..=100u64 {
            let task = stream.task("add", x.update()).run(|mut x| x[[0]] += 1).expect("room");
            stream.when_done(&task).await.expect("nothing fails");
            // A second time, when it has long ended.
            stream.when_done(&task).await.expect("nothing fails");
            assert_eq!(x.to_vec().expect("nothing fails"), [round]);
        }
    });
}

#[test]
fn many_tasks_are_awaited_at_once_and_failures_reach_who_awaits() {
    under_both(|| async {
        let (stream, x) = (stream(), Tensor::from(vec![0u64; 50]));
        let tile = |at: usize| x.slice(0, at..at + 1).expect("inside");
        let mut tasks = Vec::new();
        for at in 0..50 {
            let task = stream.task("odd", tile(at).update()).run(move |mut x| {
                std::thread::sleep(Duration::from_micros(100));
                x[[0]] = at as u64;
                if at % 2 == 1 { Err(format!("{at} is odd")) } else { Ok(()) }
            });
            tasks.push(task.expect("room"));
        }
        let ends = tasks.iter().map(|task| stream.when_done(task));
        for (at, end) in futures::future::join_all(ends).await.into_iter().enumerate() {
            match end {
                Ok(()) => assert_eq!(at % 2, 0),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Task);
                    assert!(error.to_string().contains(&format!("{at} is odd")), "{error}");
                }
            }
        }
    });
}

#[test]
fn a_future_that_is_dropped_leaves_its_task_alone() {
    under_both(|| async {
        let mut numbers = vec![0u64; 4];
        let scope = executor().scope(|s| {
            let x = s.borrow_mut(&mut numbers, [4])?;
            let task = s.task("count", x.update()).run(|mut x| x.apply(|x| x + 1))?;
            drop(s.when_done(&task));
            Ok(())
        });
        scope.expect("nothing fails");
        assert_eq!(numbers, [1; 4]);
    });
}
