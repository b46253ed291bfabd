//! Groups of threads, each with its shards of a made-up model.

use std::time::Duration;

use syncline_deps::Dtype;
use syncline_reshard::transport::{
    Endpoint, Failure, Header, Shape, Take, Ticket, Transport, Wait, Window, WindowId, local,
};
use syncline_reshard::{CopyService, Layout, Refit, ServiceError, ServiceOptions, Sources};
use syncline_testing::Rng;

use crate::arrays;

/// Long enough for a busy machine, short enough to end a test that is stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The bits of an element, from the number that `arrays` gives it.
pub fn element(dtype: Dtype, value: u64) -> Vec<u8> {
    Rng::new(value).next_u64().to_le_bytes()[..dtype.bytes() as usize].to_vec()
}

/// The bytes that `rank` must hold of each tensor of `layout`; `None` where it holds nothing.
pub fn shards(layout: &Layout, rank: usize) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for tensor in layout.tensors() {
        let Some(shard) = tensor.placement().shard(rank as u32) else { continue };
        let values = arrays::expected(tensor.name(), tensor.shape(), shard);
        let bytes = values.into_iter().flat_map(|value| element(tensor.dtype(), value)).collect();
        all.push((tensor.name().to_owned(), bytes));
    }
    all
}

/// Binds every shard that is not empty.
pub fn bind<'a>(refit: &Refit, shards: &'a [(String, Vec<u8>)]) -> Sources<'a> {
    let mut sources = Sources::new(refit);
    for (name, bytes) in shards.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        sources.bind(refit, name, bytes).unwrap();
    }
    sources
}

/// PEs needed for both layouts.
pub fn world(from: &Layout, to: &Layout) -> usize {
    from.world().max(to.world()).max(1) as usize
}

/// Runs `body` on a thread for each PE of a new group and returns what each returned.
pub fn on_threads<T: Send>(
    size: usize,
    group: &local::Options,
    options: ServiceOptions,
    body: impl Fn(&mut CopyService<'_>) -> T + Sync,
) -> Vec<T> {
    on_endpoints(local::group(size, group).unwrap(), |endpoint| {
        body(&mut CopyService::new(endpoint, options))
    })
}

/// Runs `body` on a thread for each endpoint.
pub fn on_endpoints<T: Send>(
    endpoints: Vec<Endpoint>,
    body: impl Fn(Endpoint) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let start = |endpoint| scope.spawn(move || body(endpoint));
        let threads: Vec<_> = endpoints.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The failure that every PE returned.
#[track_caller]
pub fn agreed<T: std::fmt::Debug>(results: Vec<Result<T, ServiceError>>) -> String {
    let errors: Vec<String> =
        results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "not the same: {errors:#?}");
    errors.into_iter().next().unwrap()
}

/// A transport whose slots cannot be filled in place, and that may change what is sent.
pub struct Copying<T> {
    pub inner: T,
    /// Called with every message after it was filled.
    pub on_send: fn(&T, &mut [u8]),
}

impl<T: Transport> Transport for Copying<T> {
    fn try_send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Header,
    ) -> Result<bool, Failure> {
        self.inner.try_send(peer, bytes, &mut |slot| {
            let header = fill(slot);
            (self.on_send)(&self.inner, slot);
            header
        })
    }
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn shape(&self) -> Shape {
        self.inner.shape()
    }
    fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        self.inner.enter(ticket, wait)
    }
    fn ticket(&self, peer: usize) -> Ticket {
        self.inner.ticket(peer)
    }
    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        self.inner.try_receive(peer, take)
    }
    fn bell(&self) -> u32 {
        self.inner.bell()
    }
    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure> {
        self.inner.park(seen, wait)
    }
    fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        self.inner.finish(wait)
    }
    fn fail(&self, failure: Failure) -> Failure {
        self.inner.fail(failure)
    }
    fn failure(&self) -> Option<Failure> {
        self.inner.failure()
    }
    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure> {
        self.inner.allocate(bytes)
    }
    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        self.inner.peer_window(peer, id)
    }
}
