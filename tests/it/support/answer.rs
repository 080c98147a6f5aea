//! What the program answers.

use reqwest::header::HeaderMap;
use serde_json::Value;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body as it came.
    pub(crate) text: String,
}

impl Answer {
    /// Reads an answer to its end.
    pub(crate) async fn read(response: reqwest::Response) -> Result<Self, reqwest::Error> {
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await?,
        })
    }

    /// The body as JSON. Panics where it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// A header's value as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Gives the body where the status is the expected one, and panics where it is not.
    #[track_caller]
    pub(crate) fn expect_status(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.text.is_empty() {
            return Value::Null;
        }
        self.json()
    }

    /// Gives the problem details where status, media type and type (`/problems/<name>`) are the
    /// expected ones, and panics where they are not.
    #[track_caller]
    pub(crate) fn expect_problem(&self, status: u16, name: &str) -> Value {
        let problem = self.expect_status(status);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        assert_eq!(problem["type"], format!("/problems/{name}"), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        problem
    }
}

/// The answer to a check.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checked {
    /// `definitely-not` or `maybe`.
    pub(crate) verdict: String,
    /// Why it is `maybe`.
    pub(crate) reason: Option<String>,
    /// The rate in the answer.
    pub(crate) estimated_fp_rate: f64,
    /// Whether the answer was looked up and settled.
    pub(crate) confirmed: Option<bool>,
}

impl Checked {
    /// Reads a check's body. Panics where it is not of the documented form.
    #[track_caller]
    pub(crate) fn from_body(body: &Value) -> Self {
        let checked = Self {
            verdict: body["verdict"].as_str().unwrap().to_owned(),
            reason: body
                .get("reason")
                .map(|reason| reason.as_str().unwrap().to_owned()),
            estimated_fp_rate: body["estimated_fp_rate"].as_f64().unwrap(),
            confirmed: body
                .get("confirmed")
                .map(|confirmed| confirmed.as_bool().unwrap()),
        };
        match checked.verdict.as_str() {
            "maybe" => assert!(checked.reason.is_some(), "a maybe without a reason: {body}"),
            "definitely-not" => assert_eq!(checked.reason, None, "{body}"),
            other => panic!("{other} is no verdict: {body}"),
        }
        checked
    }

    /// Whether the verdict is `maybe`, for whatever reason.
    pub(crate) fn is_maybe(&self) -> bool {
        self.verdict == "maybe"
    }

    /// Whether the verdict is `maybe` for all bits are set.
    pub(crate) fn is_match(&self) -> bool {
        self.reason.as_deref() == Some("match")
    }
}
