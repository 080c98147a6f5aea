//! The stores and the sources, over real PostgreSQL servers and SQLite files.

mod configuration;
mod follow;
mod measure;
mod postgres;
mod rows;
mod source;
mod source_load;
mod sqlite;
