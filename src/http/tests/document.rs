//! The document: the one that is checked in, and the conventions that generators of clients need.

use std::collections::HashSet;

use serde_json::Value;

use crate::http::openapi;

fn document() -> Value {
    serde_json::to_value(openapi()).unwrap()
}

fn operations(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let mut found = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            found.push((format!("{method} {path}"), operation.clone()));
        }
    }
    found
}

#[test]
fn the_document_that_is_checked_in_is_the_one_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    let current = openapi().to_pretty_json().unwrap();
    assert!(
        checked_in.trim_end() == current.trim_end(),
        "openapi/openapi.json has drifted from the routes; make it anew with\n\
         cargo run -- openapi > openapi/openapi.json"
    );
}

#[test]
fn every_operation_is_named_as_promised() {
    let document = document();
    let mut names: Vec<_> = operations(&document)
        .iter()
        .map(|(_, operation)| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "addItem",
            "addItems",
            "authorize",
            "bulkLoad",
            "checkItem",
            "checkItems",
            "checkMany",
            "deleteFilter",
            "describeFilter",
            "getLiveness",
            "getMetrics",
            "getReadiness",
            "listFilters",
            "planFilter",
            "putFilter",
            "rebuildFilter",
            "removeItem",
        ]
    );
}

#[test]
fn every_operation_has_one_tag_a_summary_and_described_responses() {
    let document = document();
    let tags: HashSet<_> = document["tags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| tag["name"].clone())
        .collect();
    for (name, operation) in operations(&document) {
        let of_operation = operation["tags"].as_array().unwrap();
        assert_eq!(of_operation.len(), 1, "{name}");
        assert!(tags.contains(&of_operation[0]), "{name}");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            let description = response["description"].as_str().unwrap();
            assert!(!description.is_empty(), "{name} {status}");
        }
        if let Some(content) = operation["requestBody"]["content"].as_object() {
            assert_eq!(content.len(), 1, "{name}");
        }
    }
}

#[test]
fn every_refusal_is_one_schema_and_probes_are_open_explicitly() {
    let document = document();
    for (name, operation) in operations(&document) {
        let open = name.ends_with("livez") || name.ends_with("readyz");
        let security = operation["security"].as_array().unwrap();
        assert_eq!(security.is_empty(), open, "{name}");
        let responses = operation["responses"].as_object().unwrap();
        let expected: &[&str] = if open {
            // A generator of Rust clients takes one schema for all refusals, and 503 has its own.
            assert!(!responses.contains_key("500"), "{name}");
            &[]
        } else if name.contains("/authz/") {
            let statuses: Vec<_> = responses.keys().collect();
            assert_eq!(statuses, ["200", "401", "403"]);
            assert_eq!(security.len(), 1, "Authorization is the end user's");
            &["401", "403"]
        } else {
            &["401", "403", "429", "500", "503"]
        };
        for status in expected {
            assert!(responses.contains_key(*status), "{name} {status}");
        }
        for (status, response) in responses {
            let probe = name.ends_with("readyz") && status == "503";
            if status.starts_with(['4', '5']) && !probe {
                let content = response["content"].as_object().unwrap();
                let problem = &content["application/problem+json"]["schema"]["$ref"];
                assert_eq!(problem, "#/components/schemas/Problem", "{name} {status}");
            }
        }
    }
}

fn walk(value: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                walk(member, &format!("{path}/{name}"), visit);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                walk(element, &format!("{path}/{index}"), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn nothing_is_a_choice_or_null_and_every_integer_has_its_width() {
    let document = document();
    let mut integers = 0;
    walk(&document, "", &mut |path, value| {
        assert!(!value.is_null(), "{path}");
        for choice in ["oneOf", "anyOf", "allOf"] {
            assert!(value.get(choice).is_none(), "{path}/{choice}");
        }
        let Some(kind) = value.get("type").filter(|_| !path.ends_with("/properties")) else {
            return;
        };
        assert!(kind.is_string(), "{path}: {kind}");
        if kind == "integer" {
            integers += 1;
            let format = value["format"].as_str().unwrap_or_default();
            assert!(["int32", "int64"].contains(&format), "{path}: {format}");
            for bound in ["minimum", "maximum"] {
                let within = value[bound].as_i64().is_none_or(|at| at.abs() < (1 << 53));
                assert!(within, "{path}/{bound}");
            }
        }
        if kind == "number" {
            assert_eq!(value["format"], "double", "{path}");
        }
    });
    assert!(integers > 10);
}

#[test]
fn enums_are_schemas_of_their_own_with_the_names_of_the_wire() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    for (name, values) in [
        ("Verdict", vec!["definitely-not", "maybe"]),
        ("Reason", vec!["match", "loading", "stale", "behind"]),
        ("State", vec!["loading", "live", "stale"]),
        ("DeclaredBy", vec!["config", "api"]),
        ("Profile", vec!["jti", "email", "text"]),
        ("ProbeStatus", vec!["ok", "unready"]),
    ] {
        assert_eq!(schemas[name]["enum"], serde_json::json!(values), "{name}");
    }
    assert_eq!(
        document["info"]["license"]["identifier"],
        "MIT OR Apache-2.0"
    );
}

#[test]
fn optional_fields_are_optional_and_the_others_are_required() {
    let document = document();
    let required = |name: &str| -> HashSet<String> {
        let schema = &document["components"]["schemas"][name];
        serde_json::from_value(schema["required"].clone()).unwrap()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(required("CheckRequest"), set(&["item"]));
    assert_eq!(required("CheckManyRequest"), set(&["checks"]));
    assert_eq!(required("FilterCheck"), set(&["filter", "item"]));
    assert_eq!(required("CheckManyAnswer"), set(&["verdict", "results"]));
    assert_eq!(required("AddRequest"), set(&["item"]));
    assert_eq!(
        required("CheckAnswer"),
        set(&["filter", "verdict", "estimated_fp_rate"])
    );
    assert_eq!(
        required("Problem"),
        set(&["type", "title", "status", "detail", "request_id"])
    );
    let problem = &document["components"]["schemas"]["Problem"]["properties"];
    for member in [
        "errors",
        "limit_bytes",
        "line",
        "accepted",
        "blank",
        "watermark",
    ] {
        assert!(problem.get(member).is_some(), "{member}");
    }
}
