//! The document, and the pages that explain problems.

use std::future::{Ready, ready};

use axum::extract::Path;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::response::Html;
use bytes::Bytes;
use utoipa::openapi::OpenApi;

use crate::http::problem::Problem;
use crate::http::problem_kind::ProblemKind;

type JsonText = ([(HeaderName, &'static str); 1], Bytes);

/// Answers with the document, which is written once.
pub fn document(
    document: &OpenApi,
) -> impl FnOnce() -> Ready<JsonText> + Clone + Send + Sync + 'static {
    // The document is made of strings and integers, which always serialize.
    let text = Bytes::from(document.to_pretty_json().unwrap_or_default());
    move || ready(([(CONTENT_TYPE, "application/json")], text))
}

/// The page of a kind of problem.
pub async fn problem_page(name: Option<Path<String>>) -> Result<Html<String>, Problem> {
    let kind = name.and_then(|Path(name)| ProblemKind::of_name(&name));
    let kind = kind
        .ok_or_else(|| Problem::new(ProblemKind::NotFound, "there is no problem of this name"))?;
    let row = kind.row();
    Ok(Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{name}</title>\n\
         <h1>{name}</h1>\n<p>{status}: {title}.</p>\n<p>{explanation}</p>\n</html>\n",
        name = row.name,
        status = row.status.as_u16(),
        title = row.title,
        explanation = row.explanation,
    )))
}
