//! The ranks that `mpirun` started, as the PEs of a command; or a word on what to install, where
//! MPI is not built in.

#[cfg(feature = "mpi")]
pub(super) use ranks::Ranks;
#[cfg(not(feature = "mpi"))]
pub(super) use without::Ranks;

#[cfg(feature = "mpi")]
mod ranks {
    use std::time::Duration;

    use syncline::transport::Wait;
    use syncline_mpi::{MpiEndpoint, Options, World};

    use crate::outcome::{Failure, exit_code};
    use syncline_files::one_line;

    /// How long other ranks leave the word to the first, who says the same.
    const SILENCE: Duration = Duration::from_millis(500);

    /// This process as a rank of an MPI job.
    pub(in super::super) struct Ranks(World);

    impl Ranks {
        /// Starts MPI; `pes`, if given, must be the number of ranks.
        pub(in super::super) fn start(pes: Option<usize>) -> Result<Self, Failure> {
            let world = World::start().map_err(|error| Failure::Usage(error.to_string()))?;
            match pes.filter(|pes| *pes != world.size()) {
                Some(pes) => Err(Failure::Usage(format!(
                    "--pes {pes}, but started as {} ranks: mpirun -n {pes} syncline ...",
                    world.size()
                ))),
                None => Ok(Self(world)),
            }
        }

        pub(in super::super) fn size(&self) -> usize {
            self.0.size()
        }

        pub(in super::super) fn is_first(&self) -> bool {
            self.0.rank() == 0
        }

        /// Runs `body` on every rank, with slots of this number and size, and returns what each has
        /// to say, by rank, on the first; nothing on the others. If one fails, the job ends: others
        /// may never come to its end in order.
        pub(in super::super) fn run(
            &self,
            (depth, slot_bytes): (usize, usize),
            timeout: Duration,
            body: impl FnOnce(MpiEndpoint) -> Result<String, String>,
        ) -> Result<Option<Vec<String>>, Failure> {
            let options = Options { depth, slot_bytes, ..Default::default() };
            let joined = self.0.join(&options, &Wait::timeout(timeout));
            let said = joined.map_err(|error| error.to_string()).and_then(body);
            let said = said.and_then(|said| {
                let all = self.0.gather(&said, &Wait::timeout(timeout));
                all.map_err(|failure| failure.to_string())
            });
            match said {
                Ok(all) => Ok(self.is_first().then_some(all)),
                Err(message) => {
                    if !self.is_first() {
                        std::thread::sleep(SILENCE);
                    }
                    let _ = exit_code(Err(Failure::Usage(one_line(&message))));
                    self.0.abort(2)
                }
            }
        }
    }
}

#[cfg(not(feature = "mpi"))]
mod without {
    use std::convert::Infallible;
    use std::time::Duration;

    use syncline::transport::Endpoint;

    use crate::outcome::Failure;

    /// There are none.
    pub(in super::super) struct Ranks(Infallible);

    impl Ranks {
        /// Says what to install.
        pub(in super::super) fn start(_: Option<usize>) -> Result<Self, Failure> {
            Err(Failure::Usage(format!("--transport mpi: {}", syncline_mpi::Unavailable)))
        }

        pub(in super::super) fn size(&self) -> usize {
            match self.0 {}
        }

        pub(in super::super) fn is_first(&self) -> bool {
            match self.0 {}
        }

        pub(in super::super) fn run(
            &self,
            _: (usize, usize),
            _: Duration,
            _: impl FnOnce(Endpoint) -> Result<String, String>,
        ) -> Result<Option<Vec<String>>, Failure> {
            match self.0 {}
        }
    }
}
