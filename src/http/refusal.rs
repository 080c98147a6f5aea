//! What the service refuses, as a problem: one exhaustive match from error to kind.
//!
//! Only the error's own message is passed on, which carries no item; its source, which may name
//! hosts and relations, is for the log.

use super::problem::Problem;
use super::problem_kind::ProblemKind;
use super::wire::whole;
use crate::filter::sizing::SizingError;
use crate::service::error::ServiceError;

/// The pointer to an item that is alone, or one of `items`.
fn item_pointer(index: Option<usize>) -> String {
    index.map_or_else(|| "/item".to_owned(), |index| format!("/items/{index}"))
}

/// The same where `items` are objects.
fn nested_item_pointer(index: Option<usize>) -> String {
    index.map_or_else(
        || "/item".to_owned(),
        |index| format!("/items/{index}/item"),
    )
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        refusal(&error, item_pointer)
    }
}

/// As the conversion from [`ServiceError`], for a request whose `items` are objects.
pub fn of_nested_items(error: ServiceError) -> Problem {
    refusal(&error, nested_item_pointer)
}

fn refusal(error: &ServiceError, pointer_to: fn(Option<usize>) -> String) -> Problem {
    let detail = error.to_string();
    match error {
        ServiceError::InvalidFilterName => {
            Problem::at(ProblemKind::InvalidField, "/filter", detail)
        }
        ServiceError::UnknownFilter => Problem::new(ProblemKind::UnknownFilter, detail),
        ServiceError::InvalidItem { index, error: _ } => {
            Problem::at(ProblemKind::InvalidItem, pointer_to(*index), detail)
        }
        ServiceError::BatchOutOfRange { limit: _, found: _ } => {
            Problem::at(ProblemKind::InvalidField, "/items", detail)
        }
        ServiceError::ChecksOutOfRange { limit: _, found: _ } => {
            Problem::at(ProblemKind::InvalidField, "/checks", detail)
        }
        ServiceError::InCheck { index, error } => {
            let field = match **error {
                ServiceError::InvalidItem { .. } => "item",
                // Whatever else may be wrong with a check is its filter.
                ServiceError::InvalidFilterName
                | ServiceError::UnknownFilter
                | ServiceError::BatchOutOfRange { .. }
                | ServiceError::ChecksOutOfRange { .. }
                | ServiceError::InCheck { .. }
                | ServiceError::OverMemoryBudget { .. }
                | ServiceError::DeclaredOtherwise { .. }
                | ServiceError::DeclaredByConfig
                | ServiceError::TooManyAdds
                | ServiceError::StoreUnavailable(_) => "filter",
            };
            in_check(&refusal(error, pointer_to), *index, field)
        }
        ServiceError::OverMemoryBudget {
            needed_bytes,
            left_bytes,
        } => {
            let mut problem = Problem::new(ProblemKind::OverMemoryBudget, detail);
            problem.members_mut().needed_bytes = Some(whole(*needed_bytes));
            problem.members_mut().left_bytes = Some(whole(*left_bytes));
            problem
        }
        ServiceError::DeclaredOtherwise { what: _ } => {
            Problem::new(ProblemKind::DeclaredOtherwise, detail)
        }
        ServiceError::DeclaredByConfig => Problem::new(ProblemKind::DeclaredByConfig, detail),
        ServiceError::TooManyAdds => Problem::new(ProblemKind::TooManyAdds, detail),
        ServiceError::StoreUnavailable(_) => Problem::new(ProblemKind::StoreUnavailable, detail),
    }
}

/// A problem with a field of one of several checks.
pub fn in_check(problem: &Problem, index: usize, field: &str) -> Problem {
    let errors = problem.errors().first();
    let detail = errors.map_or(problem.detail(), |error| &error.detail);
    Problem::at(problem.kind(), format!("/checks/{index}/{field}"), detail)
}

/// A capacity or a rate that no filter can be sized for.
pub fn sizing_refusal(error: &SizingError) -> Problem {
    let pointer = match error {
        SizingError::CapacityOutOfRange { .. } => "/capacity",
        SizingError::RateOutOfRange { .. } => "/false_positive_rate",
    };
    Problem::at(ProblemKind::InvalidField, pointer, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::filter::profile::ItemError;
    use crate::service::ports::StoreError;

    #[test]
    fn an_item_at_fault_is_pointed_to_where_it_stands_in_the_body() {
        let refused = |index| ServiceError::InvalidItem {
            index,
            error: ItemError::Blank,
        };
        let pointer = |problem: Problem| problem.errors()[0].pointer.clone();
        assert_eq!(pointer(refused(None).into()), "/item");
        assert_eq!(pointer(refused(Some(17)).into()), "/items/17");
        assert_eq!(pointer(of_nested_items(refused(None))), "/item");
        assert_eq!(
            pointer(of_nested_items(refused(Some(17)))),
            "/items/17/item"
        );
    }

    #[test]
    fn a_check_at_fault_is_pointed_to_among_its_siblings() {
        let refused = |error| {
            let error = Box::new(error);
            Problem::from(ServiceError::InCheck { index: 3, error })
        };
        let invalid_item = ServiceError::InvalidItem {
            index: None,
            error: ItemError::Blank,
        };
        for (error, kind, pointer) in [
            (invalid_item, ProblemKind::InvalidItem, "/checks/3/item"),
            (
                ServiceError::UnknownFilter,
                ProblemKind::UnknownFilter,
                "/checks/3/filter",
            ),
            (
                ServiceError::InvalidFilterName,
                ProblemKind::InvalidField,
                "/checks/3/filter",
            ),
        ] {
            let problem = refused(error);
            assert_eq!(problem.kind(), kind);
            assert_eq!(problem.errors()[0].pointer, pointer);
            let whole = format!("{pointer}: {}", problem.errors()[0].detail);
            assert_eq!(problem.detail(), whole);
        }
    }

    #[test]
    fn what_the_store_said_does_not_reach_the_caller() {
        let problem = Problem::from(ServiceError::StoreUnavailable(Some(Arc::new(
            StoreError::Unreachable {
                what: "postgres at db.internal".into(),
                detail: "refused".into(),
            },
        ))));
        assert_eq!(problem.kind(), ProblemKind::StoreUnavailable);
        assert!(!problem.detail().contains("db.internal"));
    }

    #[test]
    fn what_does_not_fit_says_by_how_much() {
        let mut problem = Problem::from(ServiceError::OverMemoryBudget {
            needed_bytes: 10,
            left_bytes: u64::MAX,
        });
        assert_eq!(problem.kind(), ProblemKind::OverMemoryBudget);
        assert_eq!(problem.members_mut().needed_bytes, Some(10));
        assert_eq!(
            problem.members_mut().left_bytes,
            Some(9_007_199_254_740_991)
        );
    }
}
