//! Groups of threads, each with its shards of a made-up model.

use std::time::Duration;

use syncline_layout::Layout;
use syncline_reshard::{CopyService, ServiceError, ServiceOptions};
use syncline_transport::{
    Arrival, Endpoint, Failure, FreeSlot, Header, Shape, Slots, Take, Ticket, Transport, Wait,
    Window, WindowId, local,
};

/// Long enough for a busy machine, short enough to end a test that is stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

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

/// What is done to a message before it is sent: to its bytes, or to whatever the endpoint lets one
/// reach.
pub type Meddle = Box<dyn Fn(&Endpoint, usize, &mut [u8]) + Send + Sync>;

/// An endpoint that meddles with what it sends, after it was filled and summed.
pub struct Meddled {
    inner: Endpoint,
    /// Whether lanes fill and empty slots in place, as over shared memory, or messages are copied
    /// on the way.
    in_place: bool,
    meddle: Meddle,
}

impl Meddled {
    /// Messages are copied on the way, and arrive as they are.
    pub fn copying(inner: Endpoint) -> Self {
        Self { inner, in_place: false, meddle: Box::new(|_, _, _| ()) }
    }

    /// Slots are filled in place, and `meddle` is called with the receiver and the bytes of every
    /// message.
    pub fn in_place(inner: Endpoint, meddle: Meddle) -> Self {
        Self { inner, in_place: true, meddle }
    }
}

// SAFETY: what concerns memory and agreement is passed on to an endpoint that keeps the contract.
unsafe impl Transport for Meddled {
    fn try_send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Header,
    ) -> Result<bool, Failure> {
        self.inner.try_send(peer, bytes, &mut |slot| {
            let header = fill(slot);
            (self.meddle)(&self.inner, peer, slot);
            header
        })
    }
    fn slots(&self) -> Option<&dyn Slots> {
        self.in_place.then_some(self)
    }
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn shape(&self) -> Shape {
        self.inner.shape()
    }
    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.enter(ticket, wait) }
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
    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.finish(wait) }
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
    fn owns(&self, window: &Window) -> bool {
        self.inner.owns(window)
    }
    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        self.inner.peer_window(peer, id)
    }
}

impl Slots for Meddled {
    fn claim_free(&self) -> Option<FreeSlot> {
        self.inner.claim_free()
    }
    fn publish(&self, mut slot: FreeSlot, peer: usize, bytes: usize, header: Header) {
        (self.meddle)(&self.inner, peer, &mut slot.bytes_mut()[..bytes]);
        self.inner.publish(slot, peer, bytes, header);
    }
    fn waiting(&self, peer: usize) -> u64 {
        self.inner.waiting(peer)
    }
    fn claim_arrived(&self, peer: usize) -> Result<Option<Arrival>, Failure> {
        self.inner.claim_arrived(peer)
    }
}
