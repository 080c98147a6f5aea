//! The README's curl lines print what it says they print.
//!
//! Each block of `sh` that begins with `curl`, or pipes into it, is run as it stands, in order,
//! against one freshly started service with nothing configured. Where a block of `json` or `text` follows, the output
//! must be that: `…` stands for any rest of a string or of a line, everything else for itself.

use std::process::Command;

use serde_json::{Number, Value};

use crate::support::Launch;

const WHERE_THE_README_SERVES: &str = "localhost:8080";
const ANY_REST: char = '…';

/// A block of code in the README.
#[derive(Debug, PartialEq)]
struct Block<'t> {
    language: &'t str,
    code: String,
    /// The line that its code begins on, counted from 1.
    line: usize,
}

/// A command and what it must print, if that is said.
#[derive(Debug)]
struct Example<'t> {
    command: Block<'t>,
    output: Option<Block<'t>>,
}

/// The blocks of code; each with whether it follows the one before directly.
fn blocks(text: &str) -> Vec<(Block<'_>, bool)> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    let mut follows = false;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    language,
                    code: String::new(),
                    line: index + 2,
                });
            }
            (None, None) => follows &= line.trim().is_empty(),
            (Some(block), None) => block.code += &format!("{line}\n"),
            (Some(_), Some(_)) => {
                blocks.extend(open.take().map(|block| (block, follows)));
                follows = true;
            }
        }
    }
    assert_eq!(open, None, "a block of code is not closed");
    blocks
}

fn examples(text: &str) -> Vec<Example<'_>> {
    let mut blocks = blocks(text).into_iter().peekable();
    let mut examples = Vec::new();
    while let Some((command, _)) = blocks.next() {
        let is_curl = command.code.starts_with("curl ") || command.code.contains("| curl ");
        if command.language != "sh" || !is_curl {
            continue;
        }
        let is_output = |(block, follows): &(Block<'_>, bool)| {
            *follows && ["json", "text"].contains(&block.language)
        };
        let output = blocks.next_if(is_output).map(|(block, _)| block);
        examples.push(Example { command, output });
    }
    examples
}

/// Where `found` differs from `expected`, as a path and a complaint; none where it does not.
fn difference(path: &str, expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::String(expected), Value::String(found)) if is_line(expected, found) => None,
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let mut pairs = expected.iter().zip(found).enumerate();
            pairs.find_map(|(index, (expected, found))| {
                difference(&format!("{path}/{index}"), expected, found)
            })
        }
        (Value::Object(expected), Value::Object(found)) if expected.keys().eq(found.keys()) => {
            expected.iter().find_map(|(name, expected)| {
                difference(&format!("{path}/{name}"), expected, &found[name])
            })
        }
        // The last digit is the parser's.
        (Value::Number(expected), Value::Number(found))
            if expected.is_f64() && is_close(expected, found) =>
        {
            None
        }
        _ if expected == found => None,
        _ => Some(format!("at {path:?}: expected {expected}, found {found}")),
    }
}

fn is_close(expected: &Number, found: &Number) -> bool {
    match (expected.as_f64(), found.as_f64()) {
        (Some(expected), Some(found)) => (expected - found).abs() <= expected.abs() * 1e-9,
        _ => false,
    }
}

/// Whether a line is the expected one, up to the first `…` in that.
fn is_line(expected: &str, found: &str) -> bool {
    match expected.split_once(ANY_REST) {
        Some((beginning, _)) => found.starts_with(beginning),
        None => expected == found,
    }
}

/// What is wrong with an output; none where it is as the README says.
fn complaint(output: &Block<'_>, found: &str) -> Option<String> {
    if output.language == "json" {
        let expected = serde_json::from_str(&output.code);
        let expected = expected.unwrap_or_else(|error| panic!("the README's answer: {error}"));
        return match serde_json::from_str(found) {
            Ok(found) => difference("", &expected, &found),
            Err(error) => Some(format!("no JSON: {error}")),
        };
    }
    let expected: Vec<_> = output.code.trim_end().lines().collect();
    let found: Vec<_> = found.trim_end().lines().collect();
    let is_same = expected.len() == found.len()
        && expected
            .iter()
            .zip(&found)
            .all(|(expected, found)| is_line(expected, found));
    (!is_same).then(|| "the lines differ".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_curl_line_prints_what_the_readme_says() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let examples = examples(&text);
    assert!(examples.len() >= 3, "the README shows the API by curl");
    assert!(examples.iter().any(|example| example.output.is_some()));

    let service = Launch::new().start().await;
    service.wait_live("revoked-jti").await;
    service.wait_live("registered-email").await;
    let mut complaints = String::new();
    let address = service
        .base_url()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    for Example { command, output } in examples {
        let line = command.line;
        assert!(
            command.code.contains(WHERE_THE_README_SERVES),
            "README.md:{line}: expected {WHERE_THE_README_SERVES} in\n{}",
            command.code
        );
        let ran = Command::new("bash")
            .args(["-euo", "pipefail", "-c"])
            .arg(command.code.replace(WHERE_THE_README_SERVES, &address))
            .current_dir(service.launched_as().folder())
            .output()
            .unwrap();
        let stdout = String::from_utf8(ran.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success(),
            "README.md:{line}: {}\n{stderr}",
            ran.status
        );
        let complaint = output
            .as_ref()
            .and_then(|output| complaint(output, &stdout));
        if let (Some(complaint), Some(output)) = (complaint, output) {
            complaints += &format!(
                "README.md:{}: {complaint}\n--- the command\n{}--- the README says\n{}\
                 --- it printed\n{stdout}\n\n",
                output.line, command.code, output.code
            );
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
}

#[test]
fn a_block_that_follows_directly_is_the_output_of_a_curl_line() {
    let text = "```sh\ncargo run\n```\n\n```sh\ncurl -s \\\n  a\n```\n\n```json\n{}\n```\n\
                ```sh\necho | curl b\n```\nText.\n```json\n1\n```\n";
    let found = examples(text);
    let lines: Vec<_> = found.iter().map(|example| example.command.line).collect();
    assert_eq!(lines, [6, 14]);
    assert_eq!(found[0].command.code, "curl -s \\\n  a\n");
    assert_eq!(found[0].output.as_ref().unwrap().code, "{}\n");
    assert!(found[1].output.is_none());
}

#[test]
fn an_output_is_held_to_everything_but_an_ellipsis() {
    let complaint_of = |language, code: &str, found: &str| {
        let block = Block {
            language,
            code: code.to_owned(),
            line: 1,
        };
        complaint(&block, found)
    };
    let expected = r#"{"a": [1, 0.5], "w": "AQ…"}"#;
    assert_eq!(
        complaint_of("json", expected, r#"{"w":"AQx_1","a":[1,0.5]}"#),
        None
    );
    for found in [
        r#"{"a":[1,0.5]}"#,
        r#"{"a":[1,0.5],"w":"A"}"#,
        r#"{"a":[1,0.51],"w":"AQ"}"#,
        r#"{"a":[1,0.5,2],"w":"AQ"}"#,
        r#"{"a":[1,0.5],"w":"AQ","x":1}"#,
        r#"{"a":[1,0.5],"w":1}"#,
        "",
    ] {
        assert!(complaint_of("json", expected, found).is_some(), "{found}");
    }
    assert_eq!(complaint_of("text", "a 1\nb …\n", "a 1\nb 2 3\n"), None);
    for found in ["a 1\n", "a 1\nc 2\n", "a 1\nb 2\nc\n", "a 12\nb 2\n"] {
        assert!(
            complaint_of("text", "a 1\nb …\n", found).is_some(),
            "{found}"
        );
    }
}
