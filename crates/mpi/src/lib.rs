//! A transport between processes over an installed MPI.
