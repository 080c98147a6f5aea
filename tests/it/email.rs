//! The `email` profile through the running program: whichever road an address came by, and whatever
//! people and databases make of it, it is `maybe`.

mod case_mappings;
mod spellings;
