//! The core: pure and synchronous. It computes and knows nothing of the world: no I/O, no clock,
//! no tokio, no HTTP, no SQL.

mod bits;
pub mod bloom;
pub mod codec;
pub mod hashing;
pub mod profile;
pub mod sizing;
pub mod verdict;
