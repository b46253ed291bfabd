//! One engine for moving bytes between strided memories and between element formats.
//!
//! Planning is safe code. The `execute` feature adds the code that moves bytes; without it the
//! crate forbids unsafe code.
//!
//! This crate knows views and element types only. It must never know of buffers, devices, threads
//! or transports.

#![cfg_attr(not(feature = "execute"), forbid(unsafe_code))]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod convert;
