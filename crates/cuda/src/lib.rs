//! CUDA devices, loaded at run time.
