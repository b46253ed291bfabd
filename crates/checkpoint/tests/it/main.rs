//! Integration tests of checkpoints.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `models` | small checkpoints of the common families, and reading files by hand |
//! | `casts` | element types that are converted whole or not at all |
//! | `convert` | there and back, what each rank holds, types, files beside the weights |
//! | `damage` | files that are not what they should be, and destinations that cannot be written |
//! | `heads` | attention heads over ranks, by brute force, and configurations that do not say |
//! | `families` | families that are half known, targets that make no sense, stages that lack a matrix |
//! | `judge` | `verify` in both orders, and wrong splits that it finds |
//! | `hostile` | names, links, pipes and files that are changed meanwhile |
//! | `scales` | scales of quantized weights, each beside its elements on every rank |
//! | `torch_files` | files of torch, by what torch says of them; damaged and hostile ones |
//! | `python` | the `safetensors` package reads what is written here, and the other way round |

mod casts;
mod convert;
mod damage;
mod described;
mod families;
mod forms;
mod heads;
mod hostile;
mod judge;
mod models;
mod python;
mod scales;
mod torch_files;
