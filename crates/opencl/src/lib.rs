//! OpenCL devices, loaded at run time.
