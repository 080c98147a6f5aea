//! Answers that say `definitely-not` to who does not look closely, or are no answers at all.

use super::front::Act;

/// What bloomgate says of an item that is not in the filter.
pub(super) const CLEAN: &str =
    r#"{"filter":"revoked-jti","verdict":"definitely-not","estimated_fp_rate":1e-9}"#;

/// An answer with these lines and this body.
pub(super) fn answer(head: &str, body: impl AsRef<[u8]>) -> Act {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n");
    Act::Answer([head.as_bytes(), body].concat())
}

pub(super) fn json(body: impl AsRef<[u8]>) -> Act {
    answer("200 OK\r\ncontent-type: application/json", body)
}

/// Each with what it is.
pub(super) fn all(lure: &str) -> Vec<(String, Act)> {
    let mut all = bodies();
    all.extend(heads(lure));
    all.extend(streams());
    all
}

/// Bodies that are not one, whole, plain `definitely-not` to what was asked.
fn bodies() -> Vec<(String, Act)> {
    let huge = format!(
        r#"{{"filter":"revoked-jti","verdict":"definitely-not","more":"{}"}}"#,
        "m".repeat(200 * 1024)
    );
    [
        ("truncated JSON", CLEAN.strip_suffix('}').unwrap()),
        ("nothing", ""),
        ("a word", "definitely-not"),
        ("a JSON string", r#""definitely-not""#),
        ("null", "null"),
        ("an array around it", &format!("[{CLEAN}]")),
        (
            "a list of the values",
            r#"["revoked-jti","definitely-not",null]"#,
        ),
        ("two of them", &format!("{CLEAN}{CLEAN}")),
        ("something behind it", &format!("{CLEAN} x")),
        ("more than 64 KiB", &huge),
        ("deep nesting", &"[".repeat(60 * 1024)),
        ("no verdict", r#"{"filter":"revoked-jti"}"#),
        (
            "another filter",
            r#"{"filter":"registered-email","verdict":"definitely-not"}"#,
        ),
        ("no filter", r#"{"verdict":"definitely-not"}"#),
        (
            "other spellings",
            r#"{"filter":"revoked-jti","verdict":"Definitely-Not"}"#,
        ),
        (
            "a blank more",
            r#"{"filter":"revoked-jti","verdict":"definitely-not "}"#,
        ),
        (
            "another field",
            r#"{"filter":"revoked-jti","Verdict":"definitely-not"}"#,
        ),
        (
            "a list of verdicts",
            r#"{"filter":"revoked-jti","verdict":["definitely-not"]}"#,
        ),
        ("true", r#"{"filter":"revoked-jti","verdict":true}"#),
        (
            "two verdicts",
            r#"{"filter":"revoked-jti","verdict":"maybe","verdict":"definitely-not"}"#,
        ),
        (
            "two filters",
            r#"{"filter":"other","filter":"revoked-jti","verdict":"definitely-not"}"#,
        ),
        (
            "a verdict with a reason",
            r#"{"filter":"revoked-jti","verdict":"definitely-not","reason":"stale"}"#,
        ),
        (
            "a maybe without a reason",
            r#"{"filter":"revoked-jti","verdict":"maybe"}"#,
        ),
    ]
    .map(|(what, body)| (what.to_owned(), json(body)))
    .into()
}

/// The right body under a wrong head.
fn heads(lure: &str) -> Vec<(String, Act)> {
    let mut heads: Vec<String> = [
        "201 Created",
        "203 Non-Authoritative Information",
        "206 Partial Content",
        "400 Bad Request",
        "401 Unauthorized",
        "404 Not Found",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Service Unavailable",
    ]
    .map(|status| format!("{status}\r\ncontent-type: application/json"))
    .into();
    heads.extend(["301", "302", "303", "307", "308"].map(|status| {
        format!("{status} Moved\r\ncontent-type: application/json\r\nlocation: {lure}")
    }));
    heads.extend(
        ["text/plain", "text/html", "application/jsonx", "x"]
            .map(|media_type| format!("200 OK\r\ncontent-type: {media_type}")),
    );
    heads.push("200 OK".to_owned());
    heads.push("200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip".to_owned());
    let acts = heads.into_iter().map(|head| {
        let act = answer(&head, CLEAN);
        (head, act)
    });
    acts.collect()
}

/// What is no answer to be read to its end.
fn streams() -> Vec<(String, Act)> {
    let page = "<html><body>definitely-not</body></html>";
    let html = answer("200 OK\r\ncontent-type: text/html", page);
    let begun = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
    [
        ("a page", html),
        ("binary", json((0..=255).collect::<Vec<u8>>())),
        (
            "no HTTP",
            Act::Answer(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".into()),
        ),
        ("binary, no HTTP", Act::Answer((0..=255).rev().collect())),
        ("a verdict and no head", Act::Answer(CLEAN.into())),
        (
            "a body without end",
            Act::Endless(format!("{begun}{CLEAN}").into_bytes()),
        ),
        (
            "a head without end",
            Act::Endless(b"HTTP/1.1 200 OK\r\nx: ".into()),
        ),
    ]
    .map(|(what, act)| (what.to_owned(), act))
    .into()
}
