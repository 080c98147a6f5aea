//! Every fault has its key and its remedy, and none hides another.

use super::*;

/// A filter without sources, to hang faults on.
const FILTER: &str = "[filters.f]\nprofile = \"jti\"\ncapacity = 10\nfalse_positive_rate = 0.01\n";

/// The same with a source that has its own database.
fn with_source(lines: &str) -> String {
    format!("{FILTER}[[filters.f.sources]]\n{lines}\n")
}

fn with_key(lines: &str) -> String {
    format!("[[keys]]\n{lines}\n")
}

#[track_caller]
fn assert_faulty(file: &str, keys: &[&str]) {
    assert_eq!(World::with_file(file).faulty_keys(), keys, "{file}");
}

#[test]
fn a_fault_at_the_top_level_has_its_key() {
    for (line, key) in [
        ("listen = \"localhost:80\"", "listen"),
        ("listen = 8080", "listen"),
        ("data_dir = \" \"", "data_dir"),
        ("store = \"\"", "store"),
        ("store = \"postgres\"", "store"),
        ("max_staleness = \"99ms\"", "max_staleness"),
        ("max_staleness = \"25h\"", "max_staleness"),
        ("max_staleness = 30", "max_staleness"),
        ("poll_interval = \"9ms\"", "poll_interval"),
        ("poll_interval = \"61s\"", "poll_interval"),
        ("poll_interval = \"30s\"", "poll_interval"),
        ("memory_budget = \"0%\"", "memory_budget"),
        ("memory_budget = \"101%\"", "memory_budget"),
        ("memory_budget = -1", "memory_budget"),
        ("memory_budget = true", "memory_budget"),
        ("memory_budget = \"2MiB\"", "memory_budget"),
        ("snapshot_interval = \"0s\"", "snapshot_interval"),
        ("rebuild_interval = \"91d\"", "rebuild_interval"),
        ("expiry_leeway = \"25h\"", "expiry_leeway"),
        ("change_retention = \"0s\"", "change_retention"),
        ("wait_timeout = \"11m\"", "wait_timeout"),
        ("limits = 3", "limits"),
        ("filters = 3", "filters"),
        ("keys = 3", "keys"),
        ("keys = [3]", "keys[0]"),
    ] {
        assert_faulty(line, &[key]);
    }
}

#[test]
fn a_fault_in_the_limits_has_its_key() {
    for (line, key) in [
        ("max_body = \"1023\"", "limits.max_body"),
        ("max_body = \"2GiB\"", "limits.max_body"),
        ("max_batch = 0", "limits.max_batch"),
        ("max_batch = 10_001", "limits.max_batch"),
        ("max_batch = \"10\"", "limits.max_batch"),
        ("header_timeout = \"0s\"", "limits.header_timeout"),
        ("request_timeout = \"11m\"", "limits.request_timeout"),
        ("drain_timeout = \"1\"", "limits.drain_timeout"),
        ("max_connections = -1", "limits.max_connections"),
        ("max_confirms = 1_025", "limits.max_confirms"),
    ] {
        assert_faulty(&format!("[limits]\n{line}"), &[key]);
    }
}

#[test]
fn a_fault_in_a_filter_has_its_key() {
    let replaced = |from: &str, to: &str| FILTER.replace(from, to);
    assert_faulty(&replaced("filters.f", "filters.F"), &["filters.F"]);
    assert_faulty(&replaced("\"jti\"", "\"jwt\""), &["filters.f.profile"]);
    let capacity = &["filters.f.capacity"];
    assert_faulty(&replaced("10", "0"), &["filters.f.capacity"]);
    assert_faulty(&replaced("10", "-10"), capacity);
    assert_faulty(&replaced("10", "\"10\""), capacity);
    let rate = &["filters.f.false_positive_rate"];
    for value in ["0.0", "1", "nan", "inf", "\"1%\"", "7"] {
        assert_faulty(&replaced("0.01", value), rate);
    }
    assert_faulty(
        "[filters.f]\n",
        &[
            "filters.f.profile",
            "filters.f.capacity",
            "filters.f.false_positive_rate",
        ],
    );
    let both = replaced("10", "0").replace("0.01", "2.0");
    assert_faulty(&both, &[capacity[0], rate[0]]);
    let options = format!("{FILTER}profile_options = {{ gmail_dots = true }}");
    assert_faulty(&options, &["filters.f.profile_options.gmail_dots"]);
    let options = options.replace("jti", "email").replace("true", "1");
    assert_faulty(&options, &["filters.f.profile_options.gmail_dots"]);
    assert_faulty("filters.f = 3", &["filters.f"]);
}

#[test]
fn a_fault_in_a_source_has_its_key() {
    const WHOLE: &str =
        "name = \"s\"\nquery = \"SELECT a FROM b\"\ndatabase_url = \"postgres://h/d\"";
    World::with_file(&with_source(WHOLE)).config();
    let base = "filters.f.sources[0]";
    for (from, to, key) in [
        ("name = \"s\"", "", "name"),
        ("\"s\"", "\"S\"", "name"),
        ("query = \"SELECT a FROM b\"", "", "query"),
        ("SELECT a FROM b", " ", "query"),
        ("database_url = \"postgres://h/d\"", "", "database_url"),
        ("postgres://h/d", "", "database_url"),
        ("database_url", "database_url_file", "database_url_file"),
        (
            "\"s\"",
            "\"s\"\nrefresh_interval = \"8d\"",
            "refresh_interval",
        ),
        ("\"s\"", "\"s\"\nmax_staleness = \"5m\"", "max_staleness"),
        ("\"s\"", "\"s\"\nconfirm_query = \"\"", "confirm_query"),
        ("\"s\"", "\"s\"\nqeury = 3", "qeury"),
    ] {
        let file = with_source(&WHOLE.replace(from, to));
        assert_faulty(&file, &[&format!("{base}.{key}")]);
    }
    let twice = format!("{}[[filters.f.sources]]\n{WHOLE}", with_source(WHOLE));
    assert_faulty(&twice, &["filters.f.sources[1].name"]);
    assert_faulty(&format!("{FILTER}sources = 3"), &["filters.f.sources"]);
}

#[test]
fn a_fault_in_a_key_has_its_key() {
    let whole = format!("id = \"a\"\nsha256 = \"{SHA256}\"\nscopes = [\"check\"]");
    World::with_file(&with_key(&whole)).config();
    let empty_digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (from, to, key) in [
        ("\"a\"", "\"a b\"", "id"),
        ("\"a\"", "\"\"", "id"),
        ("id = \"a\"", "", "id"),
        (SHA256, &SHA256[1..], "sha256"),
        (SHA256, empty_digest, "sha256"),
        ("[\"check\"]", "[\"chek\"]", "scopes"),
        ("[\"check\"]", "[]", "scopes"),
        ("[\"check\"]", "\"check\"", "scopes"),
        ("\"a\"", "\"a\"\nfilters = []", "filters"),
        ("\"a\"", "\"a\"\nfilters = [\"A\"]", "filters"),
        (
            "\"a\"",
            "\"a\"\nrequests_per_second = 0",
            "requests_per_second",
        ),
        ("\"a\"", "\"a\"\nscope = \"add\"", "scope"),
    ] {
        let file = with_key(&whole.replace(from, to));
        assert_faulty(&file, &[&format!("keys[0].{key}")]);
    }
    let twice = format!("{}{}", with_key(&whole), with_key(&whole));
    assert_faulty(&twice, &["keys[1].id", "keys[1].sha256"]);
}

#[test]
fn a_database_url_that_is_set_but_empty_starts_nothing() {
    let remedy = "unset it, say store = \"sqlite\"";
    for (name, key) in [
        ("DATABASE_URL", "database_url"),
        ("BLOOMGATE_DATABASE_URL", "database_url"),
        ("BLOOMGATE_DATABASE_URL_FILE", "database_url_file"),
    ] {
        for empty in ["", " \n"] {
            if name.ends_with("_FILE") && !empty.is_empty() {
                continue;
            }
            let world = World::default().variable(name, empty);
            let line = world.errors().to_string();
            assert!(
                line.starts_with(&format!("{key} (from {name}): ")),
                "{line}"
            );
            assert!(line.contains(remedy), "{line}");
            world.variable("BLOOMGATE_STORE", "sqlite").config();
        }
    }
    assert_faulty("database_url = \"\"", &["database_url"]);
    let flag = World::default().flags(|flags| flags.database_url = Some("".into()));
    assert_eq!(flag.faulty_keys(), ["database_url"]);
    let secret = World::default().file("/secret", "\n");
    let secret = secret.variable("BLOOMGATE_DATABASE_URL_FILE", "/secret");
    assert_eq!(secret.faulty_keys(), ["database_url_file"]);
    let missing = World::default().variable("BLOOMGATE_DATABASE_URL_FILE", "/gone");
    assert_eq!(missing.faulty_keys(), ["database_url_file"]);
    let postgres = World::default().variable("DATABASE_URL", "");
    let postgres = postgres.variable("BLOOMGATE_STORE", "postgres");
    assert_eq!(postgres.faulty_keys(), ["database_url"]);
}

#[test]
fn a_database_that_nothing_would_ask_is_a_problem() {
    let world = World::with_file("store = \"sqlite\"").variable("DATABASE_URL", URL);
    assert_eq!(world.faulty_keys(), ["database_url"]);
    assert_faulty(
        "database_url = \"postgres://h/d\"\ndatabase_url_file = \"/secret\"",
        &["database_url"],
    );
}

#[test]
fn all_problems_are_reported_at_once_one_a_line() {
    let world = World::with_file(
        "max_stalenes = \"30s\"\nlisten = 1\nsnapshot_interval = \"x\"\n[limits]\nmax_batch = 0\n\
         [filters.A]\nprofile = \"jti\"\ncapacity = 1\nfalse_positive_rate = 2.0\n\
         [[filters.A.sources]]\n[[keys]]\nid = \"\"",
    )
    .variable("BLOOMGATE_POLL_INTERVAL", "often")
    .flags(|flags| flags.store = Some("postgres".to_owned()));
    let mut keys = world.faulty_keys();
    assert_eq!(world.errors().to_string().lines().count(), keys.len());
    keys.sort();
    let expected = [
        "filters.A",
        "filters.A.false_positive_rate",
        "filters.A.sources[0].database_url",
        "filters.A.sources[0].name",
        "filters.A.sources[0].query",
        "keys[0].id",
        "keys[0].scopes",
        "keys[0].sha256",
        "limits.max_batch",
        "listen",
        "max_stalenes",
        "poll_interval",
        "snapshot_interval",
        "store",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_known_one() {
    for (file, expected) in [
        ("max-staleness = \"1s\"", "did you mean max_staleness?"),
        ("[limit]", "did you mean limits?"),
        ("[limits]\nmax_bodies = 3", "did you mean max_body?"),
        ("zzz = 1", "there is no such key; remove it"),
    ] {
        let line = World::with_file(file).errors().to_string();
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_file_that_is_no_toml_is_one_problem_with_its_place() {
    let errors = World::with_file("listen = \"127.0.0.1:1\"\n\nstore = = 3\n").errors();
    let line = errors.to_string();
    assert!(
        line.starts_with("bloomgate.toml: line 3, column 9: "),
        "{line}"
    );
    assert_eq!(errors.problems().len(), 1);
}

#[test]
fn a_configuration_file_that_is_named_must_be_there() {
    let flags = |path: &str| {
        let path = PathBuf::from(path);
        World::default().flags(|flags| flags.config = Some(path))
    };
    let line = flags("/gone.toml").errors().to_string();
    assert!(
        line.starts_with("config (from --config): /gone.toml cannot be read"),
        "{line}"
    );
    assert_eq!(flags("").faulty_keys(), ["config"]);
    let empty = World::default().variable("BLOOMGATE_CONFIG", "");
    assert_eq!(empty.faulty_keys(), ["config"]);
}

#[test]
fn a_fault_of_one_key_is_not_told_again_as_a_fault_of_another() {
    assert_faulty(
        "max_staleness = \"200ms\"\npoll_interval = \"x\"",
        &["poll_interval"],
    );
    let open = World::with_file("store = \"sqlite\"\nkeys = 3");
    let open = open.variable("BLOOMGATE_LISTEN", "0.0.0.0:1");
    assert_eq!(open.faulty_keys(), ["keys"]);
    let source = with_source("name = \"s\"\nquery = \"SELECT a\"");
    let world = World::with_file(&source).variable("DATABASE_URL", "");
    assert_eq!(world.faulty_keys(), ["database_url"]);
}
