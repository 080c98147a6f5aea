//! The stores and the sources, over real PostgreSQL servers and SQLite files.

mod configuration;
mod follow;
mod followed_tables;
mod measure;
mod measure_follow;
mod postgres;
mod rows;
mod source;
mod source_follow;
mod source_load;
mod source_pooler;
mod source_void;
mod sqlite;
