//! stub
#![allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    DefinitelyNot,
    Maybe(Reason),
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Loading,
    Stale,
    Behind,
    Match,
}
impl Verdict {
    pub fn as_str(self) -> &'static str {
        unimplemented!()
    }
    pub fn reason(self) -> Option<Reason> {
        unimplemented!()
    }
}
impl Reason {
    pub const ALL: [Reason; 4] = [Self::Loading, Self::Stale, Self::Behind, Self::Match];
    pub fn as_str(self) -> &'static str {
        unimplemented!()
    }
}
