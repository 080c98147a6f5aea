//! The interface, to the letter: what each operation answers, and how it refuses.

mod answers;
mod declarations;
mod items;
mod limits;
mod many;
mod privacy;
mod problems;
mod rates;
mod shutdown;
mod store_down;
mod streams;
mod watermarks;

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::Value;

use crate::support::Answer;

/// Long enough for whatever must come on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Sends a request and reads the answer to its end.
async fn send(request: RequestBuilder) -> Answer {
    Answer::read(request.send().await.unwrap()).await.unwrap()
}

/// The names of an object's fields, in alphabetical order.
#[track_caller]
fn fields(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().collect();
    names.sort();
    names.into_iter().map(String::as_str).collect()
}

/// Where the one field at fault stands. Panics where the problem does not name exactly one.
#[track_caller]
fn pointer(problem: &Value) -> &str {
    let errors = problem["errors"].as_array();
    let errors = errors.unwrap_or_else(|| panic!("no errors: {problem}"));
    assert_eq!(errors.len(), 1, "{problem}");
    assert_eq!(fields(&errors[0]), ["detail", "pointer"]);
    errors[0]["pointer"].as_str().unwrap()
}
