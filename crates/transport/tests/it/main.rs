//! Integration tests of transports.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `hostile` | group tables and records of any contents |
//! | `membership` | the membership protocol in a simulated network |
//! | `leftovers` | the directory of shared memory: left, foreign, full; PEs that come twice |

mod hostile;
mod leftovers;
mod membership;
