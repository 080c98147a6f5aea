//! The layers hold: *filter computes, service decides, adapters do I/O, http translates.* Each rule
//! is tried here on a sample that breaks it, and then on all of `src`.

mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use self::source::{NamedPath, code_only, named_paths};

/// Past this many lines a file wants splitting.
const LONGEST_FILE_LINES: usize = 450;

/// A folder of `src` and what nothing in it may name.
struct Layer {
    folder: &'static str,
    forbidden: &'static [&'static str],
}

const LAYERS: [Layer; 5] = [
    // Pure and synchronous: no I/O, no clock, no tasks, and nothing of the layers above.
    Layer {
        folder: "filter",
        forbidden: &[
            "axum",
            "hyper",
            "reqwest",
            "rustix",
            "sqlx",
            "tokio",
            "tokio_util",
            "tower",
            "std::env",
            "std::fs",
            "std::net",
            "std::process",
            "std::time::Instant",
            "std::time::SystemTime",
            "crate::app",
            "crate::config",
            "crate::disk",
            "crate::http",
            "crate::service",
            "crate::store",
            "crate::telemetry",
        ],
    },
    // Policy over ports: what it needs of the world it asks its ports for.
    Layer {
        folder: "service",
        forbidden: &[
            "axum",
            "hyper",
            "reqwest",
            "sqlx",
            "std::fs",
            "tokio::fs",
            "tower",
            "utoipa",
            "crate::app",
            "crate::config",
            "crate::disk",
            "crate::http",
            "crate::store",
        ],
    },
    Layer {
        folder: "http",
        forbidden: &["sqlx", "crate::app", "crate::disk", "crate::store"],
    },
    Layer {
        folder: "store",
        forbidden: &["axum", "crate::app", "crate::http"],
    },
    Layer {
        folder: "disk",
        forbidden: &["axum", "sqlx", "crate::app", "crate::http", "crate::store"],
    },
];

/// What a file, by its path below `src`, names against the rules of its layer.
fn forbidden_paths(file: &Path, text: &str) -> Vec<String> {
    let in_layer = |layer: &&Layer| {
        file.starts_with(layer.folder) || file == Path::new(layer.folder).with_extension("rs")
    };
    let Some(layer) = LAYERS.iter().find(in_layer) else {
        return Vec::new();
    };
    let mut broken = Vec::new();
    for path in named_paths(text, &module_of(file)) {
        // Tests may run threads and take the time, but reach no other layer.
        if is_test_module(file) && path.segments.first().is_some_and(|name| name == "std") {
            continue;
        }
        for forbidden in layer.forbidden {
            // The tests of http ask a real service, and that stands on a real store and a real disk.
            if matches!(*forbidden, "crate::store" | "crate::disk")
                && file.starts_with("http/tests")
            {
                continue;
            }
            if reaches(&path, forbidden) {
                let (file, line, path) = (file.display(), path.line, path.segments.join("::"));
                broken.push(format!(
                    "src/{file}:{line}: {path}: {forbidden} has no place in {}",
                    layer.folder
                ));
            }
        }
    }
    broken
}

fn is_test_module(file: &Path) -> bool {
    let name = file.file_stem().unwrap().to_str().unwrap();
    name == "tests" || name.ends_with("_tests")
}

/// Whether a path leads to what is forbidden: into it, or, by a glob or a name, to what holds it.
fn reaches(path: &NamedPath, forbidden: &str) -> bool {
    let segments = match path.segments.as_slice() {
        [holder @ .., last] if last == "*" => holder,
        segments => segments,
    };
    let mut pairs = segments.iter().zip(forbidden.split("::"));
    !segments.is_empty() && pairs.all(|(own, other)| own == other)
}

/// The path of the module that a file below `src` is.
fn module_of(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    std::iter::once("crate".to_owned())
        .chain(names.filter(|name| !matches!(name.as_str(), "mod" | "lib" | "main")))
        .collect()
}

fn is_too_long(text: &str) -> bool {
    text.lines().count() > LONGEST_FILE_LINES
}

fn says_what_it_is(text: &str) -> bool {
    text.starts_with("//! ")
}

fn forbids_unsafe_code(text: &str) -> bool {
    code_only(text).contains("#![forbid(unsafe_code)]")
}

/// Every source file, as its path below `src` and its text.
fn source_files() -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(&root).unwrap().to_owned(), text)
    };
    files.into_iter().map(read).collect()
}

/// The source files that a rule finds fault with.
fn faulty_files(is_faulty: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let files = source_files().into_iter();
    let faulty = files.filter(|(_, text)| is_faulty(text));
    faulty.map(|(file, _)| file).collect()
}

#[test]
fn every_layer_names_only_what_its_place_allows() {
    let files = source_files();
    for layer in ["filter", "service"] {
        let is_there = files.iter().any(|(file, _)| file.starts_with(layer));
        assert!(is_there, "src/{layer} is gone: this rule looks at nothing");
    }
    let broken: Vec<String> = files
        .iter()
        .flat_map(|(file, text)| forbidden_paths(file, text))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_source_file_is_too_long() {
    assert_eq!(faulty_files(is_too_long), Vec::<PathBuf>::new());
}

#[test]
fn every_module_begins_with_what_it_is_for() {
    let silent = faulty_files(|text| !says_what_it_is(text));
    assert_eq!(silent, Vec::<PathBuf>::new());
}

#[test]
fn unsafe_code_is_forbidden_in_both_crates() {
    let files = source_files();
    for root in ["lib.rs", "main.rs"] {
        let (_, text) = files
            .iter()
            .find(|(file, _)| file == Path::new(root))
            .unwrap();
        assert!(forbids_unsafe_code(text), "src/{root}");
    }
}

/// The packages of a lock file, as name and version.
fn locked_packages(lock_file: &str) -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(lock_file);
    let lock: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let packages = lock["package"].as_array().unwrap().iter();
    packages
        .map(|package| (text(&package["name"]), text(&package["version"])))
        .collect()
}

#[track_caller]
fn assert_stands_on_what_is_shipped(workspace: &str) {
    let shipped = locked_packages("Cargo.lock");
    let is_shipped = |name: &str| shipped.iter().any(|(other, _)| other == name);
    let used = locked_packages(&format!("{workspace}/Cargo.lock"));
    let others: Vec<_> = used
        .difference(&shipped)
        .filter(|(name, _)| is_shipped(name))
        .collect();
    assert!(
        others.is_empty(),
        "{others:?}: to follow, `cp Cargo.lock {workspace}/ && cargo update -w --manifest-path {workspace}/Cargo.toml`"
    );
}

#[test]
fn what_is_fuzzed_stands_on_the_versions_that_are_shipped() {
    assert_stands_on_what_is_shipped("fuzz");
}

#[test]
fn what_is_compared_stands_on_the_versions_that_are_shipped() {
    assert_stands_on_what_is_shipped("benches/compare");
}

#[test]
fn the_sample_for_tower_stands_on_the_versions_that_are_shipped() {
    assert_stands_on_what_is_shipped("clients/tower");
}

#[track_caller]
fn assert_broken(file: &str, text: &str) {
    let broken = forbidden_paths(Path::new(file), text);
    assert_eq!(broken.len(), 1, "{file}: {text}: {broken:?}");
}

#[test]
fn every_way_to_name_a_forbidden_path_is_seen() {
    for text in [
        "use axum::Json;",
        "use ::axum::Json;",
        "pub(crate) use axum as web;",
        "fn f() -> axum::Json<u8> { todo() }",
        "fn f() { let g = <u8 as axum::extract::FromRef<u8>>::from_ref; }",
        "#[axum::debug_handler] fn f() {}",
        "use std::{fmt, fs::{self as files}};",
        "use std::{fs::{File as F}, fmt};",
        "use std::fs::*;",
        "use tokio::{sync, fs};",
        "fn f(text: &'static str, c: char) { if c == '\"' { sqlx::query(text); } }",
        "fn f() { g('\\''); sqlx::query(\"\"); }",
        "fn f() { g(r#\"a \" b\"#); sqlx::query(\"\"); }",
        "/* a /* nested */ comment */ use hyper::body::Body;",
        "use crate::{filter::bits, store};",
        "use super::super::store::Sqlite;",
        "mod tests { use super::super::super::config::Config; }",
        "mod a { mod b { } fn f() { super::super::super::app::run(); } }",
    ] {
        assert_broken("service/a.rs", text);
    }
    assert_broken("service/a/b.rs", "use super::super::super::disk;");
}

#[test]
fn a_glob_or_a_name_for_what_holds_a_forbidden_path_is_seen() {
    assert_broken("disk/mod.rs", "use sqlx::*;");
    assert_broken("store/mod.rs", "use axum;");
    let everything = forbidden_paths(Path::new("filter/bits.rs"), "use std::*;");
    assert!(everything.len() > 1, "{everything:?}");
    let clock = forbidden_paths(Path::new("filter/bits.rs"), "use std::time;");
    assert!(!clock.is_empty());
}

#[test]
fn a_test_module_may_take_the_time_and_reach_no_other_layer() {
    for file in ["filter/bits/tests.rs", "filter/unicode_tests.rs"] {
        let clock = forbidden_paths(Path::new(file), "use std::time::Instant;");
        assert!(clock.is_empty(), "{clock:?}");
        assert_broken(file, "use crate::service::ports;");
    }
}

#[test]
fn every_layer_has_its_own_rules() {
    for path in LAYERS[0].forbidden {
        assert_broken("filter/profile/mod.rs", &format!("use {path}::x;"));
    }
    for layer in &LAYERS[1..] {
        for path in layer.forbidden {
            assert_broken(
                &format!("{}/a/b.rs", layer.folder),
                &format!("use {path}::x;"),
            );
            assert_broken(
                &format!("{}.rs", layer.folder),
                &format!("fn f() {{ {path}::x(); }}"),
            );
        }
    }
}

#[test]
fn what_a_layer_may_name_is_left_alone() {
    for text in [
        "// use axum::Json;\nuse crate::filter::bits;",
        "/// Not `crate::http::x`, nor axum::Json.\nfn f() {}",
        "const HINT: &str = \"axum::Json\";",
        "const HINT: &str = r#\"see \"axum::Json\"\"#; const BYTES: &[u8] = br\"axum::Json\";",
        "use crate::service::http::x;",
        "use super::ports::{self, Store};",
        "use std::sync::Arc; use tokio::sync::watch;",
        "fn f<'a>(x: &'a str) -> &'a str { fs::x(x) }",
        "mod tests { use super::*; }",
        "let axum = 1; axum.f();",
    ] {
        let broken = forbidden_paths(Path::new("service/mod.rs"), text);
        assert!(broken.is_empty(), "{text}: {broken:?}");
    }
    let anything = forbidden_paths(Path::new("app.rs"), "use axum::Json; use crate::store;");
    assert!(anything.is_empty());
}

#[test]
fn a_file_past_the_limit_is_seen() {
    assert!(!is_too_long(&"x\n".repeat(LONGEST_FILE_LINES)));
    assert!(is_too_long(&"x\n".repeat(LONGEST_FILE_LINES + 1)));
}

#[test]
fn a_module_that_does_not_say_what_it_is_for_is_seen() {
    assert!(says_what_it_is("//! The core.\n"));
    for text in ["", "use std::fmt;\n", "// The core.\n", "//!\n"] {
        assert!(!says_what_it_is(text), "{text:?}");
    }
}

#[test]
fn a_crate_that_allows_unsafe_code_is_seen() {
    assert!(forbids_unsafe_code("//! Docs.\n#![forbid(unsafe_code)]\n"));
    for text in [
        "",
        "// #![forbid(unsafe_code)]\n",
        "#![deny(unsafe_code)]\n",
    ] {
        assert!(!forbids_unsafe_code(text), "{text:?}");
    }
}
