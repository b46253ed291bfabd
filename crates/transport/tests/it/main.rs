//! Integration tests of transports.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `hostile` | group tables and records of any contents |
//! | `membership` | the membership protocol in a simulated network |
//! | `tcp` | groups over TCP: joining, strangers, other tokens, noise |
//! | `leftovers` | the directory of shared memory: left, foreign, full; PEs that come twice |

mod hostile;
mod leftovers;
mod membership;
mod tcp;
