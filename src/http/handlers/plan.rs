//! Planning a filter.

use std::str::FromStr;

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;

use crate::filter::sizing::Sizing;
use crate::http::problem::Problem;
use crate::http::problem_kind::ProblemKind;
use crate::http::refusal::sizing_refusal;
use crate::http::wire_filters::{Plan, PlanQuery};

type Pairs = Vec<(String, String)>;

/// Plan a filter
///
/// What a filter of that capacity and rate takes, and what becomes of its rate when it is
/// overfilled. Nothing is made.
#[utoipa::path(
    get,
    path = "/v1/plan",
    operation_id = "planFilter",
    tag = "filters",
    params(PlanQuery),
    responses((status = 200, description = "What the filter would take", body = Plan))
)]
pub async fn plan_filter(
    pairs: Result<Query<Pairs>, QueryRejection>,
) -> Result<Json<Plan>, Problem> {
    let Query(pairs) = pairs.map_err(|_| invalid("", "the query is not in form"))?;
    let query = plan_query(&pairs)?;
    let sizing = Sizing::new(query.capacity, query.false_positive_rate)
        .map_err(|error| sizing_refusal(&error))?;
    Ok(Json(Plan::from(&sizing)))
}

fn plan_query(pairs: &Pairs) -> Result<PlanQuery, Problem> {
    let known = ["capacity", "false_positive_rate"];
    if pairs.iter().any(|(name, _)| !known.contains(&name.as_str())) {
        return Err(invalid(
            "",
            "the query has capacity and false_positive_rate, and nothing else",
        ));
    }
    Ok(PlanQuery {
        capacity: parameter(pairs, "capacity", "a whole number of at least 1")?,
        false_positive_rate: parameter(
            pairs,
            "false_positive_rate",
            "a number above 0 and below 1",
        )?,
    })
}

fn parameter<T: FromStr>(pairs: &Pairs, name: &str, expected: &str) -> Result<T, Problem> {
    let pointer = format!("/{name}");
    let mut given = pairs.iter().filter(|(given, _)| given == name);
    let (_, value) = given.next().ok_or_else(|| invalid(&pointer, "is required"))?;
    if given.next().is_some() {
        return Err(invalid(&pointer, "is given twice"));
    }
    value
        .parse()
        .map_err(|_| invalid(&pointer, &format!("must be {expected}")))
}

fn invalid(pointer: &str, detail: &str) -> Problem {
    Problem::at(ProblemKind::InvalidField, pointer, detail)
}
