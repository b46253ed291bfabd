//! What the tests of all crates share: random numbers, seeds that can be replayed, an allocator
//! that counts, threads by name, and the one rule for what a machine lacks ([`need`]).
//!
//! Never a dependency of anything but tests: `tests/shipped.rs` decides that.
#![warn(unreachable_pub)]

mod counting;
mod need;
mod rng;
mod seeds;
mod threads;

pub use counting::CountingAllocator;
pub use need::{is_ci, need, succeed};
pub use rng::Rng;
pub use seeds::for_seeds;
pub use threads::threads_named;

/// Compiles only if `$type` does not implement `$trait`.
///
/// ```
/// syncline_testing::assert_not_impl!(std::rc::Rc<u8>, Send);
/// ```
///
/// ```compile_fail
/// syncline_testing::assert_not_impl!(std::sync::Arc<u8>, Send);
/// ```
#[macro_export]
macro_rules! assert_not_impl {
    ($type:ty, $trait:path) => {
        const _: fn() = || {
            // Of a type that implements the trait, two implementations fit, and neither is chosen.
            trait Ambiguous<A> {
                fn call() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            #[allow(dead_code)]
            struct Implements;
            impl<T: ?Sized + $trait> Ambiguous<Implements> for T {}
            let _ = <$type as Ambiguous<_>>::call;
        };
    };
}
