//! bloomgate: may this be in the set?
//!
//! The map: [`filter`] computes, [`service`] decides, [`store`], [`disk`] and [`clock`] do the I/O
//! that the service's ports ask for, [`http`] translates. Dependencies point one way,
//! `filter ← service ← http`; only [`app`] sees all, and it is the one place that starts tasks.
//! [`config`], [`telemetry`] and [`huge_pages`] are leaves.

#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod disk;
pub mod filter;
pub mod follow_sql;
pub mod healthcheck;
pub mod http;
pub mod huge_pages;
pub mod service;
pub mod store;
pub mod telemetry;
