//! bloomgate: may this be in the set?

#![forbid(unsafe_code)]

pub mod clock;
pub mod disk;
pub mod filter;
pub mod service;
pub mod store;
pub mod telemetry;
