//! stub
#![allow(missing_docs, dead_code)]
use std::borrow::Cow;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    Jti,
    Email(EmailOptions),
    Text,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EmailOptions {
    pub gmail_dots: bool,
    pub googlemail: bool,
    pub plus_tags: bool,
}
/// canonical bytes of a row, and whether a fallback had to be taken
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical<'a> {
    pub bytes: Cow<'a, [u8]>,
    pub odd: bool,
}
/// why an item is refused at the API
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    #[error("x")]
    Blank,
    #[error("x")]
    TooLong {
        limit_bytes: usize,
        found_bytes: usize,
    },
    #[error("x")]
    Nul,
    #[error("x")]
    WholeToken,
    #[error("x")]
    BearerScheme,
}
impl Profile {
    pub fn name(&self) -> &'static str {
        unimplemented!()
    }
    pub fn version(&self) -> u32 {
        unimplemented!()
    }
    pub fn max_item_bytes(&self) -> usize {
        unimplemented!()
    }
    /// total: for rows of a database; none for a blank row
    pub fn canonicalize<'a>(&self, _row: &'a [u8]) -> Option<Canonical<'a>> {
        unimplemented!()
    }
    /// for the API: gate, then canonical bytes
    pub fn accept<'a>(&self, _item: &'a str) -> Result<Canonical<'a>, ItemError> {
        unimplemented!()
    }
}
