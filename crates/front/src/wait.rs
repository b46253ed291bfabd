//! Awaiting tasks: futures without a runtime of their own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use syncline_runtime::stream::{Stream, Task, TaskHandle};

use crate::{LiveScope, Result};

/// The end of a task, to be awaited: see [`WhenDone::when_done`].
pub struct TaskFuture<'s> {
    stream: &'s Stream,
    task: TaskHandle,
    told: Option<Arc<Told>>,
}

/// Whether the task has ended, and who waits for it.
#[derive(Default)]
struct Told(Mutex<(bool, Option<Waker>)>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, (bool, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lives in the body of a task that comes after the awaited one. It is dropped when that body has
/// run, and also when it never will, because the awaited task failed or the stream was dropped.
struct Teller(Arc<Told>);

impl Drop for Teller {
    fn drop(&mut self) {
        let waker = {
            let mut told = self.0.lock();
            told.0 = true;
            told.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for TaskFuture<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(told) = &self.told {
            let mut told = told.lock();
            if !told.0 {
                told.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
            drop(told);
            return Poll::Ready(self.stream.wait(&self.task).map_err(Into::into));
        }
        let told = Arc::new(Told(Mutex::new((false, Some(context.waker().clone())))));
        let teller = Teller(told.clone());
        let after = Task::new("await").after(&self.task).body(move |_| drop(teller));
        match self.stream.submit(after) {
            Ok(_) => {
                self.told = Some(told);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl fmt::Debug for TaskFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskFuture({})", self.task.id())
    }
}

/// Where tasks can be awaited.
pub trait WhenDone {
    /// The end of `task`, on any async runtime: no thread waits for it. The first poll submits a
    /// task that comes after it, and so waits for room where there is none.
    ///
    /// ```
    /// # use std::future::Future;
    /// # use std::pin::pin;
    /// # use std::sync::Arc;
    /// # use std::task::{Context, Poll, Wake};
    /// # struct Unpark(std::thread::Thread);
    /// # impl Wake for Unpark {
    /// #     fn wake(self: Arc<Self>) {
    /// #         self.0.unpark();
    /// #     }
    /// # }
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = pin!(future);
    /// #     let waker = Arc::new(Unpark(std::thread::current())).into();
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #             Poll::Ready(output) => return output,
    /// #             Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// use syncline_front::{Submit, Tensor, WhenDone};
    /// use syncline_runtime::stream::Stream;
    ///
    /// let (stream, x) = (Stream::new(Default::default())?, Tensor::from(vec![1.0f32]));
    /// let task = stream.task("double", x.update()).run(|mut x| x.apply(|x| 2.0 * x))?;
    /// block_on(async { stream.when_done(&task).await })?;
    /// assert_eq!(x.to_vec()?, [2.0]);
    /// # Ok::<(), syncline_front::Error>(())
    /// ```
    fn when_done(&self, task: &TaskHandle) -> TaskFuture<'_>;
}

impl WhenDone for Stream {
    fn when_done(&self, task: &TaskHandle) -> TaskFuture<'_> {
        TaskFuture { stream: self, task: task.clone().without_outputs(), told: None }
    }
}

impl WhenDone for LiveScope<'_, '_> {
    fn when_done(&self, task: &TaskHandle) -> TaskFuture<'_> {
        self.stream().when_done(task)
    }
}
