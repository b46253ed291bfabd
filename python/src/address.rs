//! Where a group meets, and as what this process joins it.

use std::env;
use std::time::Duration;

use pyo3::prelude::*;
use syncline::device::CancelToken;
use syncline::reshard::{CopyService, ServiceOptions};
use syncline::transport::{Wait, shm};

use crate::errors::{GroupError, Raise};

/// A place to meet.
pub(crate) enum Address {
    /// Processes of one machine.
    Shm { name: String, rank: usize, size: usize },
    /// The processes that an MPI launcher has started.
    Mpi,
}

fn number(name: &str) -> PyResult<Option<usize>> {
    let Ok(text) = env::var(name) else { return Ok(None) };
    let wrong =
        |_| GroupError::new_err(format!("the variable {name} is `{text}`: expected a number"));
    text.parse().map(Some).map_err(wrong)
}

impl Address {
    /// Finds out where to meet: torchrun's variables stand in for absent arguments.
    pub(crate) fn find(
        address: Option<String>,
        rank: Option<usize>,
        size: Option<usize>,
        token: Option<String>,
    ) -> PyResult<Self> {
        let rank = rank.map_or_else(|| number("RANK"), |rank| Ok(Some(rank)))?;
        let size = size.map_or_else(|| number("WORLD_SIZE"), |size| Ok(Some(size)))?;
        let Some(address) = address.map_or_else(|| torchrun(size), |address| Ok(Some(address)))?
        else {
            return Err(GroupError::new_err(
                "no address: pass \"shm:name\" with rank and size, or start with torchrun, which \
                 sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE",
            ));
        };
        if address == "mpi:" {
            return Ok(Self::Mpi);
        }
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err(GroupError::new_err(format!(
                "{address}: rank and size are needed: pass them, or set RANK and WORLD_SIZE"
            )));
        };
        if token.is_some() {
            return Err(GroupError::new_err(
                "token: groups in shared memory take no token: only processes of one user meet there",
            ));
        }
        match address.split_once(':') {
            Some(("shm", name)) => Ok(Self::Shm { name: name.to_owned(), rank, size }),
            Some(("tcp", _)) => Err(GroupError::new_err(format!(
                "{address}: groups over tcp are not in this version: use shm: on one machine, or mpi:"
            ))),
            _ => Err(GroupError::new_err(format!(
                "{address}: expected \"shm:name\", \"mpi:\" or \"tcp://host:port/name\""
            ))),
        }
    }

    /// Joins the group there.
    pub(crate) fn join(
        self,
        options: ServiceOptions,
        timeout: Duration,
        cancel: &CancelToken,
    ) -> PyResult<CopyService<'static>> {
        let wait = Wait::timeout(timeout).cancelled_by(cancel);
        match self {
            Self::Shm { name, rank, size } => {
                let endpoint = shm::join(&name, rank, size, &shm::Options::default(), &wait);
                Ok(CopyService::new(endpoint.or_group()?, options))
            }
            Self::Mpi => mpi(options, &wait),
        }
    }
}

/// The group of the processes that torchrun has started on this machine.
fn torchrun(size: Option<usize>) -> PyResult<Option<String>> {
    let (Ok(_), Ok(port)) = (env::var("MASTER_ADDR"), env::var("MASTER_PORT")) else {
        return Ok(None);
    };
    // torchrun says how many of the processes are on this machine.
    let local = number("LOCAL_WORLD_SIZE")?;
    if local.is_some() && local != size {
        return Err(GroupError::new_err(
            "the job runs on several machines, and groups over tcp are not in this version: use mpi:",
        ));
    }
    let run = env::var("TORCHELASTIC_RUN_ID").unwrap_or_default();
    let restart = env::var("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric();
    let run: String = run.chars().filter(is_plain).take(64).collect();
    Ok(Some(format!("shm:torchrun-{port}-{run}-{restart}")))
}

#[cfg(feature = "mpi")]
fn mpi(options: ServiceOptions, wait: &Wait<'_>) -> PyResult<CopyService<'static>> {
    use std::sync::Mutex;
    use syncline_mpi::{Options, World};

    // MPI is started once in a process, and ended with it.
    static WORLD: Mutex<Option<World>> = Mutex::new(None);
    let mut world = WORLD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if world.is_none() {
        *world = Some(World::start().or_group()?);
    }
    let joined = world.iter().next().map(|world| world.join(&Options::default(), wait));
    let endpoint = joined.ok_or("no MPI").or_group()?.or_group()?;
    Ok(CopyService::new(endpoint, options))
}

#[cfg(not(feature = "mpi"))]
fn mpi(_: ServiceOptions, _: &Wait<'_>) -> PyResult<CopyService<'static>> {
    syncline_mpi::check().or_group()?;
    Err(GroupError::new_err("this build has no MPI in it"))
}
