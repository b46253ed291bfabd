//! Plans in files: a header, the tables, a checksum.
//!
//! The file holds all that a plan is: the recorded graph, the machine, and what was compiled.
//! Loading verifies the checksum and then proves the plan anew, so that neither damage nor a forged
//! file can make one that races or refers outside itself. What the proof may cost is bounded by the
//! file's size, so that a small file cannot ask for much time or memory.

mod codec;
mod tables;
mod validate;

use codec::{Reader, Writer};

use crate::check::{Budget, CheckError};
use crate::graph::TaskGraph;
use crate::machine::{Machine, MachineError};
use crate::plan::ExecutionPlan;

const MAGIC: &[u8; 8] = b"SLPLAN\r\n";
const VERSION: u32 = 3;
const HEADER_BYTES: usize = MAGIC.len() + 4;
const CHECKSUM_BYTES: usize = 4;

/// Why bytes are no plan that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StoreError {
    #[error("not a plan: the file does not begin as plans do")]
    NotAPlan,
    #[error("a plan of format {found}: this version reads format {supported}; compile it again")]
    OtherVersion { found: u32, supported: u32 },
    #[error("the plan is damaged: its checksum is {found:08x}, its bytes say {expected:08x}")]
    Damaged { found: u32, expected: u32 },
    #[error("the plan ends at byte {at}, inside {what}")]
    Truncated { at: usize, what: &'static str },
    #[error("the plan has no valid {what} at byte {at}")]
    Invalid { at: usize, what: &'static str },
    #[error("the plan's machine: {0}")]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Malformed(#[from] CheckError),
    #[error(
        "the plan was made from another graph (fingerprint {found:016x}, expected {expected:016x}): compile it again"
    )]
    OtherGraph { found: u64, expected: u64 },
    #[error("the plan was made for another machine: compile it again")]
    OtherMachine,
}

impl ExecutionPlan {
    /// The plan as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.raw(MAGIC);
        writer.raw(&VERSION.to_le_bytes());
        tables::write(self, &mut writer);
        let checksum = crc32fast::hash(writer.bytes());
        writer.raw(&checksum.to_le_bytes());
        writer.into_bytes()
    }

    /// Returns the plan that `bytes` hold.
    ///
    /// Takes any bytes, also hostile ones: time and memory are bounded in proportion to their
    /// number.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES || !bytes.starts_with(MAGIC) {
            return Err(StoreError::NotAPlan);
        }
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were asked for"))
        };
        let found = word(MAGIC.len());
        if found != VERSION {
            return Err(StoreError::OtherVersion { found, supported: VERSION });
        }
        let end = bytes.len() - CHECKSUM_BYTES;
        let (found, expected) = (word(end), crc32fast::hash(&bytes[..end]));
        if found != expected {
            return Err(StoreError::Damaged { found, expected });
        }
        let mut reader = Reader::new(&bytes[..end], HEADER_BYTES);
        let mut plan = tables::read(&mut reader)?;
        reader.expect_end()?;
        plan.check_within(&mut Budget::for_file(bytes.len()))?;
        let has_manual = plan.graph.tasks.iter().any(|task| task.manual);
        plan.is_proven = !has_manual;
        let (found, expected) = (plan.graph_fingerprint, plan.graph.fingerprint());
        if found != expected {
            return Err(StoreError::OtherGraph { found, expected });
        }
        Ok(plan)
    }

    /// The plan that `bytes` hold, if it is one of `graph` for `machine`.
    pub fn from_bytes_for(
        bytes: &[u8],
        graph: &TaskGraph,
        machine: &Machine,
    ) -> Result<Self, StoreError> {
        let plan = Self::from_bytes(bytes)?;
        let (found, expected) = (plan.graph_fingerprint, graph.fingerprint());
        if found != expected {
            return Err(StoreError::OtherGraph { found, expected });
        }
        if plan.machine != *machine {
            return Err(StoreError::OtherMachine);
        }
        Ok(plan)
    }
}
