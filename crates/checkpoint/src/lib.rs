//! Checkpoints on disk, of any common format, converted from one parallel layout to another.
//!
//! A [`Checkpoint`] is opened from safetensors files, one file a rank with a `layout.json`, files
//! of `torch.save`, or a directory of `torch.distributed.checkpoint`. [`Conversion`] plans the way
//! from one to a [`Destination`] and carries it out: sources are mapped and only the bytes needed
//! are touched, destinations are written in bounded chunks by several threads, and appear whole or
//! not at all. A file that is cut short or changed while it is read is an error that names it.

mod chunk;
mod conversion;
mod describe;
mod destination;
mod disk;
mod dtype;
mod element;
mod error;
mod extent;
mod family;
mod file;
mod formats;
mod forms;
mod journal;
mod map;
mod meaning;
mod model;
mod proof;
mod queue;
mod safetensors;
mod scales;
mod source;
mod stored;
mod team;
mod truncation;
mod unique;
mod verify;
mod wanted;
mod writeback;
mod writer;

pub use conversion::{Conversion, ConversionOptions, Summary};
pub use destination::{Destination, RankFiles, target_specs};
pub use disk::disk_gb_per_s;
pub use element::ElementType;
pub use error::{CheckpointError, Malformed};
pub use family::{
    add_builtin_rules, check_target, family_name, model_type, parse_rules, parse_target,
};
pub use forms::{BUILTIN_MAPS, Count, MapNames, MapRule, builtin_maps, parse_maps};
pub use meaning::pattern_of;
pub use safetensors::{Header, TensorEntry};
pub use source::{Checkpoint, CheckpointFormat};
pub use team::{Alone, Team};
pub use verify::{Difference, unproven, unproven_layout, verify, verify_until};
pub use wanted::{Unnamed, Wanted, unmatched_rules};
