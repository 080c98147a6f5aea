//! Tests of the whole program against real PostgreSQL servers, one file a topic. `tests/run` runs
//! them; `support` holds what they share.

#![forbid(unsafe_code)]
// Clippy takes only what stands in a `#[test]` for test code; all of this crate is.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod any_road;
mod api;
mod architecture;
mod authz;
mod clients;
mod commands;
mod confirm;
mod crash;
mod declared;
mod disk_full;
mod document;
mod email;
mod expiry;
mod failover;
mod following;
mod gateways;
mod huge_pages;
mod issued;
mod keys;
mod large_tables;
mod measure_visibility;
mod middleware;
mod outage;
mod pooler;
mod readme;
mod rebuild;
mod removal;
mod replicas;
mod rollout;
mod second_process;
mod shutdown;
mod snapshot_commands;
mod snapshots;
mod sources;
mod start;
mod store;
mod storm;
mod support;
