//! Sources in the running program: what they take, what ends the start, and that a filter is never
//! live on less than all of its sources, whatever happens to their databases.

mod failing;
mod followed;
mod starting;
