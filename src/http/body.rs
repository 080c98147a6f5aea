//! Request bodies: bounded in bytes and in time, and of the media type that they claim to be.
//!
//! A server that answers while the caller still writes, and then closes, resets the connection,
//! and the caller loses the answer. So whoever refuses a body reads on for a while, within bounds,
//! before the answer goes out: see [`refuse`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderName};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::timeout;

use super::AppState;
use super::parse::{Object, parse};
use super::problem::Problem;
use super::problem_kind::ProblemKind;
use super::wire::whole;

/// The most that is read of a body that nobody looks at: bytes, and time.
const DRAIN_MAX_BYTES: usize = 64 * 1024 * 1024;
const DRAIN_MAX_TIME: Duration = Duration::from_secs(5);

/// A JSON body within the limits, not parsed yet: what is parsed may borrow from it.
pub struct JsonBody(Bytes);

impl JsonBody {
    /// Reads the body as an object.
    ///
    /// # Errors
    /// 400 where it is no JSON, 422 where a field is not as it must be.
    pub fn parse<'body, T: Deserialize<'body>>(&'body self) -> Result<T, Problem> {
        let Object(request) = parse(&self.0)?;
        Ok(request)
    }
}

impl FromRequest<Arc<AppState>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<AppState>) -> Result<Self, Problem> {
        let (parts, mut body) = request.into_parts();
        let read = match media_type(&parts.headers, &["application/json"]) {
            Ok(_) => read(&mut body, state).await,
            Err(problem) => Err(problem),
        };
        match read {
            Ok(bytes) => Ok(Self(bytes)),
            Err(problem) => Err(refuse(problem, &parts.headers, body).await),
        }
    }
}

/// Which of `allowed` the body claims to be. Parameters do not count, but for another charset
/// than UTF-8.
///
/// # Errors
/// 415 for anything else, a compressed body included.
pub fn media_type(
    headers: &HeaderMap,
    allowed: &'static [&'static str],
) -> Result<&'static str, Problem> {
    let expected = allowed.join(" or ");
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(CONTENT_ENCODING).is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
        return Err(Problem::new(
            ProblemKind::UnsupportedMediaType,
            format!("expected {expected} without a Content-Encoding; send it uncompressed"),
        ));
    }
    let claimed = text(CONTENT_TYPE).unwrap_or_default();
    let mut parts = claimed.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let utf8 = parts
        .filter_map(|parameter| parameter.split_once('='))
        .filter(|(name, _)| name.eq_ignore_ascii_case("charset"))
        .all(|(_, charset)| charset.trim_matches('"').eq_ignore_ascii_case("utf-8"));
    let found = allowed
        .iter()
        .find(|allowed| essence.eq_ignore_ascii_case(allowed));
    match found {
        Some(found) if utf8 => Ok(found),
        _ => Err(Problem::new(
            ProblemKind::UnsupportedMediaType,
            format!("expected the header Content-Type: {expected}, in UTF-8"),
        )),
    }
}

/// The whole body, at most `max_body_bytes`.
async fn read(body: &mut Body, state: &AppState) -> Result<Bytes, Problem> {
    let limit = state.limits.max_body_bytes;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(limit));
    }
    let mut whole_body = BytesMut::new();
    loop {
        if whole_body.len() > limit {
            return Err(too_large(limit));
        }
        match next_chunk(body, state.limits.body_idle_timeout).await? {
            // Most bodies are one chunk: nothing is copied.
            Some(chunk)
                if body.is_end_stream() && whole_body.is_empty() && chunk.len() <= limit =>
            {
                return Ok(chunk);
            }
            Some(chunk) => whole_body.extend_from_slice(&chunk),
            None => return Ok(whole_body.freeze()),
        }
    }
}

fn too_large(limit: usize) -> Problem {
    let mut problem = Problem::new(
        ProblemKind::BodyTooLarge,
        format!("a body has at most {limit} bytes; send less at a time, or use bulk-load"),
    );
    problem.members_mut().limit_bytes = Some(whole(limit as u64));
    problem
}

/// The next bytes of a body; none at its end.
///
/// # Errors
/// 408 when none come within `idle_timeout`; 400 when the body breaks off.
pub async fn next_chunk(body: &mut Body, idle_timeout: Duration) -> Result<Option<Bytes>, Problem> {
    loop {
        let frame = timeout(idle_timeout, body.frame()).await.map_err(|_| {
            Problem::new(
                ProblemKind::BodyTimeout,
                format!(
                    "no byte of the body arrived for {} s",
                    idle_timeout.as_secs()
                ),
            )
        })?;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(Problem::new(
                    ProblemKind::MalformedBody,
                    "the body broke off before its end",
                ));
            }
            // What is no data is a trailer, which nothing here needs.
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// Refuses a body: reads on in it for a while, so that the caller comes to reading the problem,
/// which this gives back. One whose body did not come will not go on now.
pub async fn refuse(problem: Problem, headers: &HeaderMap, body: Body) -> Problem {
    if problem.kind() != ProblemKind::BodyTimeout {
        pass_over(headers, body).await;
    }
    problem
}

/// Reads on in a body that nobody looks at, within bounds, so that the answer arrives and the
/// connection can be used again. A caller that waits for `100 Continue` has not begun to write.
pub async fn pass_over(headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let read_on = async {
        let mut drained_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained_bytes += frame.data_ref().map_or(0, Bytes::len);
            if drained_bytes > DRAIN_MAX_BYTES {
                break;
            }
        }
    };
    // Past the bound the caller may lose the answer; a server that reads on for ever loses more.
    let _ = timeout(DRAIN_MAX_TIME, read_on).await;
}
