//! Why the service did not do what it was asked.
//!
//! Failures come from three places: the request (an item, a name, a watermark, a declaration out
//! of bounds), the state of things (no such filter, another declaration, no memory left, a full
//! queue), and the store. A check fails for the first two only: for the sake of the store it is
//! `maybe`. No variant carries an item.

use std::sync::Arc;

use super::ports::StoreError;
use crate::filter::profile::ItemError;

/// Why the service did not do what it was asked. The request changed nothing, unless said so.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The name is out of form.
    #[error(
        "a filter's name has 1 to 64 characters, each a lower-case letter, a digit, '_' or '-', \
         and begins with a letter or a digit"
    )]
    InvalidFilterName,
    /// No filter of that name.
    #[error("no filter of this name is hosted here; GET /v1/filters lists those that are")]
    UnknownFilter,
    /// An item is refused.
    #[error("{error}")]
    InvalidItem {
        /// Its index in the request, where there are several.
        index: Option<usize>,
        /// Why.
        #[source]
        error: ItemError,
    },
    /// A batch without items, or with too many.
    #[error("a batch holds 1 to {limit} items; found {found}")]
    BatchOutOfRange {
        /// The most that is accepted.
        limit: usize,
        /// What came.
        found: usize,
    },
    /// A request without checks, or with too many.
    #[error("a request holds 1 to {limit} checks; found {found}")]
    ChecksOutOfRange {
        /// The most that is accepted.
        limit: usize,
        /// What came.
        found: usize,
    },
    /// One check of a request that holds several is refused, and so are all.
    #[error("{error}")]
    InCheck {
        /// Its index in the request.
        index: usize,
        /// Why.
        #[source]
        error: Box<ServiceError>,
    },
    /// The bits do not fit.
    #[error(
        "the filter needs {needed_bytes} bytes and {left_bytes} are left of memory_budget; declare \
         less, delete a filter, or raise memory_budget"
    )]
    OverMemoryBudget {
        /// Bytes that the filter needs.
        needed_bytes: u64,
        /// Bytes that are left.
        left_bytes: u64,
    },
    /// The filter is there and declared otherwise.
    #[error(
        "the filter is declared with another {what}; a declaration is not changed in place: delete \
         the filter first, or declare it as it is"
    )]
    DeclaredOtherwise {
        /// What differs.
        what: &'static str,
    },
    /// A filter of the configuration cannot be deleted through the API.
    #[error("the configuration declares this filter; take it out there and restart")]
    DeclaredByConfig,
    /// The queue to the store is full.
    #[error("too many adds are waiting for the store; try again later")]
    TooManyAdds,
    /// The store was not reached yet, or cannot be written. Nothing was acknowledged.
    #[error("the store cannot take this at the moment, nothing was acknowledged; try again")]
    StoreUnavailable(#[source] Option<Arc<StoreError>>),
}
