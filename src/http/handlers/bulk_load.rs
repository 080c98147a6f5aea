//! Loading a stream of items.
//!
//! Invariant: however the stream ends, what was pushed before is finished, so that the answer says
//! how much of it is durable.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::FilterInPath;
use crate::http::AppState;
use crate::http::body::{media_type, next_chunk, refuse};
use crate::http::lines::{LineTooLong, Lines, MAX_LINE_BYTES};
use crate::http::parse::{Fault, Text, parse};
use crate::http::problem::Problem;
use crate::http::problem_kind::ProblemKind;
use crate::http::wire::{BatchItem, BulkLoadAnswer, ItemStream, rate, whole};
use crate::service::bulk_load::BulkLoad;
use crate::service::terms::Terms;

const NDJSON: &str = "application/x-ndjson";
const PLAIN: &str = "text/plain";

/// Add a stream of items
///
/// A line holds a JSON string, or an object as an item of `addItems`; a line has at most 64 KiB, a
/// stream any number of them. Blank lines and items are counted and passed over. With
/// `Content-Type: text/plain` a line is an item as it stands; one trailing CR and a leading byte
/// order mark do not belong to it.
///
/// A line that is refused ends the load with 422 and says which it was, and how many items before
/// it were accepted: those are durable, and sending them again does no harm.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/bulk-load",
    operation_id = "bulkLoad",
    tag = "items",
    params(FilterInPath),
    request_body(
        content = inline(ItemStream),
        content_type = "application/x-ndjson",
        description = "A JSON string or an object a line",
        example = "\"one\"\n{\"item\": \"two\", \"expires_at\": \"2030-01-01T00:00:00Z\"}\n"
    ),
    responses((status = 200, description = "Every item is durable", body = BulkLoadAnswer<'_>))
)]
pub async fn bulk_load(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, mut body) = request.into_parts();
    let begun = match media_type(&parts.headers, &[NDJSON, PLAIN]) {
        Ok(format) => {
            let load = state.service.bulk_load(&filter).await;
            load.map(|load| (format, load)).map_err(Problem::from)
        }
        Err(problem) => Err(problem),
    };
    let loaded = match begun {
        Err(problem) => Err(problem),
        Ok((format, load)) => {
            let mut stream = Stream {
                format,
                load,
                lines: Lines::default(),
                idle_timeout: state.limits.body_idle_timeout,
            };
            stream.run(&filter, &mut body).await
        }
    };
    match loaded {
        Ok(answer) => Ok(answer),
        Err(problem) => Err(refuse(problem, &parts.headers, body).await),
    }
}

struct Stream<'s> {
    format: &'static str,
    load: BulkLoad<'s>,
    lines: Lines,
    idle_timeout: Duration,
}

impl Stream<'_> {
    async fn run(&mut self, filter: &str, body: &mut Body) -> Result<Response, Problem> {
        let pushed = self.push_all(body).await;
        let finished = self.load.finish().await;
        match (pushed, finished) {
            (Ok(()), Ok(answer)) => Ok(Json(BulkLoadAnswer {
                filter,
                accepted: whole(answer.accepted),
                blank: whole(answer.blank),
                watermark: answer.watermark.encode(),
                estimated_fp_rate: rate(answer.estimated_fp_rate),
            })
            .into_response()),
            (Ok(()), Err(error)) => Err(self.ended_by(error.into())),
            (Err(problem), finished) => {
                let mut problem = self.ended_by(problem);
                let watermark = finished.ok().map(|answer| answer.watermark.encode());
                problem.members_mut().watermark = watermark;
                Err(problem)
            }
        }
    }

    /// The problem, and how far the load came before it.
    fn ended_by(&self, mut problem: Problem) -> Problem {
        let members = problem.members_mut();
        members.line = Some(whole(self.lines.number()));
        members.accepted = Some(whole(self.load.accepted()));
        members.blank = Some(whole(self.load.blank()));
        problem
    }

    async fn push_all(&mut self, body: &mut Body) -> Result<(), Problem> {
        while let Some(chunk) = next_chunk(body, self.idle_timeout).await? {
            self.lines.push(&chunk);
            while let Some(line) = self.lines.next_line().map_err(too_long)? {
                self.push(&line).await?;
            }
        }
        match self.lines.last_line().map_err(too_long)? {
            Some(line) => self.push(&line).await,
            None => Ok(()),
        }
    }

    async fn push(&mut self, line: &Bytes) -> Result<(), Problem> {
        let text = std::str::from_utf8(line).map_err(|_| refused("is not UTF-8"))?;
        if text.trim().is_empty() {
            self.load.push_blank();
            return Ok(());
        }
        let line = if self.format == PLAIN {
            Line::alone(Cow::Borrowed(text))
        } else {
            parse(line).map_err(line_fault)?
        };
        Ok(self.load.push(line.item.as_ref(), line.terms).await?)
    }
}

/// A line at fault as a whole.
fn refused(detail: &str) -> Problem {
    Problem::at(ProblemKind::InvalidField, "", format!("the line {detail}"))
}

fn too_long(_: LineTooLong) -> Problem {
    refused(&format!("is longer than {MAX_LINE_BYTES} bytes"))
}

/// A pointer points into the line, whose number the problem gives.
fn line_fault(fault: Fault) -> Problem {
    match fault {
        Fault::Malformed { line: _, column } => refused(&format!(
            "is no JSON from byte {column} on; a line is a JSON string or an object"
        )),
        Fault::Field { pointer, detail } => Problem::at(ProblemKind::InvalidField, pointer, detail),
    }
}

/// A line: an item, alone or with its terms.
struct Line<'a> {
    item: Text<'a>,
    terms: Terms,
}

impl<'a> Line<'a> {
    fn alone(item: Cow<'a, str>) -> Self {
        Self {
            item: Text(item),
            terms: Terms::default(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Line<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an object")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Line::alone(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Line::alone(Cow::Owned(text.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let request = BatchItem::deserialize(MapAccessDeserializer::new(map))?;
        let terms = request.terms();
        Ok(Line {
            item: request.item,
            terms,
        })
    }
}
