//! Planning a filter.

use std::str::FromStr;

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::filter::sizing::Sizing;
use crate::http::problem::Problem;
use crate::http::problem_kind::ProblemKind;
use crate::http::refusal::sizing_refusal;
use crate::http::wire::{rate, whole};
use crate::http::wire_filters::small;

type Pairs = Vec<(String, String)>;

/// What a plan is asked for.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlanQuery {
    /// How many items the filter is to hold.
    #[param(value_type = i64, minimum = 1, maximum = 1_000_000_000_000_i64, example = 1_000_000)]
    pub capacity: u64,
    /// How probably an absent item may check `maybe` then.
    #[param(minimum = 0.000_000_000_1, maximum = 0.5, example = 0.01)]
    pub false_positive_rate: f64,
}

/// What a filter would take, and what becomes of its rate when it is overfilled.
#[derive(Debug, Serialize, ToSchema)]
pub struct Plan {
    /// Bits of the filter.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub bit_count: i64,
    /// Bits that an item sets.
    #[schema(minimum = 1)]
    pub hash_count: i32,
    /// Bytes of the bits.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub memory_bytes: i64,
    /// The rate at twice the capacity.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub fp_rate_at_2x: f64,
    /// The rate at ten times the capacity.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub fp_rate_at_10x: f64,
}

impl From<&Sizing> for Plan {
    fn from(sizing: &Sizing) -> Self {
        let rate_at = |times: u64| rate(sizing.fp_rate_at(sizing.capacity().saturating_mul(times)));
        Self {
            bit_count: whole(sizing.bit_count()),
            hash_count: small(sizing.hash_count()),
            memory_bytes: whole(sizing.memory_bytes()),
            fp_rate_at_2x: rate_at(2),
            fp_rate_at_10x: rate_at(10),
        }
    }
}

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
    if pairs
        .iter()
        .any(|(name, _)| !known.contains(&name.as_str()))
    {
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
    let (_, value) = given
        .next()
        .ok_or_else(|| invalid(&pointer, "is required"))?;
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
