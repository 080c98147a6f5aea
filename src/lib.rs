//! bloomgate: may this be in the set?

#![forbid(unsafe_code)]

pub mod filter;
pub mod service;
