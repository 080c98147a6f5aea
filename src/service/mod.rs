//! Policy, over ports: what may be said of a filter and when. It knows the core and its own
//! ports, and must not know HTTP, SQL or files.

pub mod declaration;
pub mod ports;
