//! Programs that must not compile: what the types of this crate rule out.

/// An endpoint is in one refit at a time.
/// ```compile_fail,E0499
/// use syncline_transport::{Endpoint, Session, Wait};
/// fn twice(mut endpoint: Endpoint, wait: Wait<'_>) {
///     let first = Session::enter(&mut endpoint, 1, &wait).unwrap();
///     let second = Session::enter(&mut endpoint, 1, &wait).unwrap();
///     first.finish(&wait).unwrap();
///     second.finish(&wait).unwrap();
/// }
/// ```
/// Entering without a session is unsafe.
/// ```compile_fail,E0133
/// use syncline_transport::{Ticket, Transport, Wait};
/// fn forge(endpoint: &dyn Transport, wait: Wait<'_>) {
///     endpoint.enter(Ticket::default(), &wait).unwrap();
/// }
/// ```
/// So is being the control plane that sessions trust.
/// ```compile_fail,E0200
/// struct Mine;
/// impl syncline_transport::ControlPlane for Mine {}
/// ```
struct Sessions;

/// A slot is sent once.
/// ```compile_fail,E0382
/// use syncline_transport::{FreeSlot, Header, Slots};
/// fn twice(slots: &dyn Slots, slot: FreeSlot) {
///     slots.publish(slot, 1, 8, Header::default());
///     slots.publish(slot, 1, 8, Header::default());
/// }
/// ```
/// A message is not read after its slot was given back.
/// ```compile_fail,E0505
/// fn read(arrival: syncline_transport::Arrival) -> u8 {
///     let bytes = arrival.bytes();
///     drop(arrival);
///     bytes[0]
/// }
/// ```
/// Claims are not copied.
/// ```compile_fail,E0599
/// use syncline_transport::FreeSlot;
/// fn copy(slot: FreeSlot) -> (FreeSlot, FreeSlot) {
///     (slot.clone(), slot)
/// }
/// ```
struct Claims;
