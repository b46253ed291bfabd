//! Ranks of an MPI job, by the launcher that belongs to the library.

use std::process::Command;

/// Names the launcher where it is not `mpirun`: on a machine with two libraries, the one that was
/// built with.
const VARIABLE: &str = "MPIRUN";

/// The program that starts ranks.
#[derive(Clone, Debug)]
pub struct RankLauncher {
    program: String,
    is_open_mpi: bool,
}

impl RankLauncher {
    /// The launcher of this machine, if there is one.
    pub fn find() -> Option<Self> {
        let program = std::env::var(VARIABLE).unwrap_or_else(|_| "mpirun".to_owned());
        let version = Command::new(&program).arg("--version").output().ok()?;
        let is_open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
        version.status.success().then_some(Self { program, is_open_mpi })
    }

    /// Whether it is Open MPI's; MPICH's otherwise, which takes other arguments.
    pub fn is_open_mpi(&self) -> bool {
        self.is_open_mpi
    }

    /// The start of a command line for `count` ranks, also on fewer cores, and for root.
    pub fn command(&self, count: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-n", &count.to_string()]);
        if self.is_open_mpi {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command
    }
}
