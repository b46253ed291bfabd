//! Groups of threads, each with its shards of a made-up model.

use std::sync::Arc;
use std::time::Duration;

use syncline_layout::Layout;
use syncline_reshard::{CopyService, ServiceError, ServiceOptions};
use syncline_transport::{
    Arrival, Composite, ControlPlane, DataPlane, Endpoint, Failure, Fill, FreeSlot, Header,
    MemoryPlane, Slots, Take, Transport, local,
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
    body: impl Fn(&mut CopyService) -> T + Sync,
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

/// What is done to a message before it is sent to a PE: to its bytes, to its header, or to what
/// else the transport reaches.
pub type Meddle = Box<dyn Fn(&dyn Transport, usize, &mut [u8], &mut Header) + Send + Sync>;

/// A transport that meddles with what it sends, after it was filled and summed.
pub struct Meddled {
    inner: Arc<dyn Transport>,
    messages: MeddledMessages,
}

struct MeddledMessages {
    inner: Arc<dyn Transport>,
    /// Whether lanes fill and empty slots in place, where the transport has slots, or messages are
    /// copied on the way.
    in_place: bool,
    meddle: Meddle,
}

impl Meddled {
    /// Messages are copied on the way, and arrive as they are.
    pub fn copying(inner: impl Transport + 'static) -> Self {
        Self::new(inner, false, Box::new(|_, _, _, _| ()))
    }

    /// Slots are filled in place where the transport has them, and `meddle` is called for every
    /// message.
    pub fn in_place(inner: impl Transport + 'static, meddle: Meddle) -> Self {
        Self::new(inner, true, meddle)
    }

    /// Messages go through the slots of another transport.
    pub fn through(inner: impl Transport + 'static, slots: impl Transport + 'static) -> Self {
        let mut meddled = Self::in_place(inner, Box::new(|_, _, _, _| ()));
        meddled.messages.inner = Arc::new(slots);
        meddled
    }

    fn new(inner: impl Transport + 'static, in_place: bool, meddle: Meddle) -> Self {
        let inner: Arc<dyn Transport> = Arc::new(inner);
        Self { messages: MeddledMessages { inner: inner.clone(), in_place, meddle }, inner }
    }
}

// SAFETY: the planes are those of one transport that keeps the contract; messages carry no promise.
unsafe impl Composite for Meddled {
    fn control(&self) -> &dyn ControlPlane {
        &*self.inner
    }
    fn data(&self) -> &dyn DataPlane {
        &self.messages
    }
    fn memory(&self) -> &dyn MemoryPlane {
        &*self.inner
    }
}

impl DataPlane for MeddledMessages {
    fn try_send(&self, peer: usize, bytes: usize, fill: &mut Fill<'_>) -> Result<bool, Failure> {
        self.inner.try_send(peer, bytes, &mut |slot| {
            let mut header = fill(slot);
            (self.meddle)(&*self.inner, peer, slot, &mut header);
            header
        })
    }
    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        self.inner.try_receive(peer, take)
    }
    fn slots(&self) -> Option<&dyn Slots> {
        (self.in_place && self.inner.slots().is_some()).then_some(self)
    }
}

impl MeddledMessages {
    fn inner_slots(&self) -> &dyn Slots {
        self.inner.slots().expect("lanes have asked for them")
    }
}

impl Slots for MeddledMessages {
    fn claim_free(&self) -> Option<FreeSlot> {
        self.inner_slots().claim_free()
    }
    fn publish(&self, mut slot: FreeSlot, peer: usize, bytes: usize, mut header: Header) {
        (self.meddle)(&*self.inner, peer, &mut slot.bytes_mut()[..bytes], &mut header);
        self.inner_slots().publish(slot, peer, bytes, header);
    }
    fn waiting(&self, peer: usize) -> u64 {
        self.inner_slots().waiting(peer)
    }
    fn claim_arrived(&self, peer: usize) -> Result<Option<Arrival>, Failure> {
        self.inner_slots().claim_arrived(peer)
    }
}
