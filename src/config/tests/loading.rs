//! Defaults, values and the order of the layers.

use super::*;
use crate::filter::profile::{EmailOptions, Profile};
use crate::service::declaration::Declaration;

const EVERY_KEY: &str = r#"
listen = "127.0.0.2:9090"
data_dir = "/var/lib/bloomgate"
store = "postgres"
database_url = "postgresql:///auth?host=/run/postgresql"
hash_key_file = "/run/secrets/hash_key"
max_staleness = "10s"
poll_interval = "100ms"
memory_budget = "64MiB"
snapshot_interval = "5m"
rebuild_interval = "12h"
expiry_leeway = "0s"
change_retention = "2d"
wait_timeout = "3s"

[limits]
max_body = "1MiB"
max_batch = 500
header_timeout = "1s"
request_timeout = "2s"
drain_timeout = "3s"
max_connections = 99
max_confirms = 7

[filters.members]
profile = "email"
capacity = 2_000
false_positive_rate = 0.02
profile_options = { gmail_dots = true, plus_tags = true }

[[filters.members.sources]]
name = "users"
query = "SELECT email FROM users"

[[filters.members.sources]]
name = "invited"
database_url = "postgres://other/db"
query = "SELECT email FROM invitations"
refresh_interval = "1m"
max_staleness = "90s"
confirm_query = "SELECT email FROM invitations WHERE lower(email) = $1"

[[keys]]
id = "gateway"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
scopes = ["check", "read"]
filters = ["members", "not-yet-declared"]
requests_per_second = 250
"#;

#[test]
fn with_nothing_configured_every_default_is_the_documented_one() {
    let config = World::default().config();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.data_dir, Path::new("./data"));
    assert!(matches!(config.store, StoreConfig::Sqlite));
    assert_eq!(config.hash_key_file, None);
    assert_eq!(config.max_staleness, Duration::from_secs(30));
    assert_eq!(config.poll_interval, Duration::from_millis(500));
    assert_eq!(config.memory_budget_bytes, GIB / 4 * 3);
    assert_eq!(config.snapshot_interval, Duration::from_secs(15 * 60));
    assert_eq!(config.rebuild_interval, Duration::from_secs(24 * 3600));
    assert_eq!(config.expiry_leeway, Duration::from_secs(120));
    assert_eq!(config.change_retention, Duration::from_secs(24 * 3600));
    assert_eq!(config.wait_timeout, Duration::from_secs(10));
    let limits = Limits {
        max_body_bytes: 8 * 1024 * 1024,
        max_batch: 10_000,
        header_timeout: Duration::from_secs(10),
        request_timeout: Duration::from_secs(30),
        drain_timeout: Duration::from_secs(20),
        max_connections: 10_000,
        max_confirms: 32,
    };
    assert_eq!(config.limits, limits);
    assert!(config.keys.is_empty());
    assert!(!config.accept_new_store);
}

#[test]
fn without_a_filters_table_there_are_the_two_default_filters() {
    let config = World::with_file("listen = \"127.0.0.1:0\"").config();
    let declared: Vec<_> = config
        .filters
        .iter()
        .map(|filter| {
            let Declaration {
                profile, sizing, ..
            } = &filter.declaration;
            let rate = sizing.false_positive_rate();
            (filter.name.as_str(), *profile, sizing.capacity(), rate)
        })
        .collect();
    let email = Profile::Email(EmailOptions::default());
    let expected = [
        ("registered-email", email, 5_000_000, 0.001),
        ("revoked-jti", Profile::Jti, 1_000_000, 0.01),
    ];
    assert_eq!(declared, expected);
    assert!(World::with_file("[filters]").config().filters.is_empty());
}

#[test]
fn every_key_of_the_file_takes_effect() {
    let config = World::with_file(EVERY_KEY).config();
    assert_eq!(config.listen.to_string(), "127.0.0.2:9090");
    assert_eq!(config.data_dir, Path::new("/var/lib/bloomgate"));
    let socket_url = "postgresql:///auth?host=/run/postgresql";
    assert_eq!(store_url(&config), Some(socket_url));
    let hash_key_file = Some(PathBuf::from("/run/secrets/hash_key"));
    assert_eq!(config.hash_key_file, hash_key_file);
    assert_eq!(config.max_staleness, Duration::from_secs(10));
    assert_eq!(config.poll_interval, Duration::from_millis(100));
    assert_eq!(config.memory_budget_bytes, 64 << 20);
    assert_eq!(config.snapshot_interval, Duration::from_secs(300));
    assert_eq!(config.rebuild_interval, Duration::from_secs(12 * 3600));
    assert_eq!(config.expiry_leeway, Duration::ZERO);
    assert_eq!(config.change_retention, Duration::from_secs(48 * 3600));
    assert_eq!(config.wait_timeout, Duration::from_secs(3));
    let limits = Limits {
        max_body_bytes: 1 << 20,
        max_batch: 500,
        header_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_secs(2),
        drain_timeout: Duration::from_secs(3),
        max_connections: 99,
        max_confirms: 7,
    };
    assert_eq!(config.limits, limits);
}

#[test]
fn a_declared_filter_has_its_options_and_sources() {
    let config = World::with_file(EVERY_KEY).config();
    let [filter] = config.filters.as_slice() else {
        panic!("expected one filter, found {:?}", config.filters);
    };
    let options = EmailOptions {
        gmail_dots: true,
        googlemail: false,
        plus_tags: true,
    };
    assert_eq!(filter.declaration.profile, Profile::Email(options));
    let declared = filter.declaration.sources.iter();
    let names: Vec<_> = declared.map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["invited", "users"]);
    let [users, invited] = filter.sources.as_slice() else {
        panic!("expected two sources, found {:?}", filter.sources);
    };
    assert_eq!(Some(exposed(&users.database_url)), store_url(&config));
    assert_eq!(users.refresh_interval, Duration::from_secs(300));
    assert_eq!(users.max_staleness, Duration::from_secs(600));
    assert_eq!(users.confirm_query, None);
    assert_eq!(exposed(&invited.database_url), "postgres://other/db");
    assert_eq!(invited.refresh_interval, Duration::from_secs(60));
    assert_eq!(invited.max_staleness, Duration::from_secs(90));
    assert!(invited.confirm_query.is_some());
}

#[test]
fn twice_the_stated_refresh_interval_bounds_a_sources_age() {
    let file = EVERY_KEY.replace("max_staleness = \"90s\"", "");
    let config = World::with_file(&file).config();
    let invited = &config.filters[0].sources[1];
    assert_eq!(invited.max_staleness, Duration::from_secs(120));
}

#[test]
fn a_flag_beats_a_variable_and_a_variable_the_file() {
    let mut world = World::with_file("listen = \"127.0.0.1:1\"\nmax_staleness = \"9s\"");
    assert_eq!(world.config().listen.port(), 1);
    world = world.variable("BLOOMGATE_LISTEN", "127.0.0.1:2");
    assert_eq!(world.config().listen.port(), 2);
    world = world.flags(|flags| flags.listen = Some("127.0.0.1:3".to_owned()));
    assert_eq!(world.config().listen.port(), 3);
    assert_eq!(world.config().max_staleness, Duration::from_secs(9));
}

#[test]
fn the_database_url_of_the_highest_layer_hides_both_forms_below() {
    let mut world = World::with_file("database_url = \"postgres://in-file/a\"");
    assert_eq!(store_url(&world.config()), Some("postgres://in-file/a"));
    world = world.variable("DATABASE_URL", "postgres://ambient/a");
    assert_eq!(store_url(&world.config()), Some("postgres://ambient/a"));
    world = world
        .file("/run/secrets/url", "postgres://in-secret/a\n")
        .variable("BLOOMGATE_DATABASE_URL_FILE", "/run/secrets/url");
    assert_eq!(store_url(&world.config()), Some("postgres://in-secret/a"));
    world.variables.remove("BLOOMGATE_DATABASE_URL_FILE");
    world = world.variable("BLOOMGATE_DATABASE_URL", "postgres://ours/a");
    assert_eq!(store_url(&world.config()), Some("postgres://ours/a"));
    world = world.flags(|flags| flags.database_url = Some("postgres://flag/a".into()));
    assert_eq!(store_url(&world.config()), Some("postgres://flag/a"));
    let in_secret = World::with_file("database_url_file = \"/run/secrets/url\"");
    let hidden = in_secret.variable("DATABASE_URL", URL);
    assert_eq!(store_url(&hidden.config()), Some(URL));
}

#[test]
fn every_top_level_value_has_its_variable() {
    for (key, value) in [
        ("LISTEN", "somewhere"),
        ("DATA_DIR", ""),
        ("STORE", "mysql"),
        ("DATABASE_URL", "mysql://a/b"),
        ("DATABASE_URL_FILE", "/not/there"),
        ("MAX_STALENESS", "soon"),
        ("POLL_INTERVAL", "soon"),
        ("MEMORY_BUDGET", "much"),
        ("SNAPSHOT_INTERVAL", "soon"),
        ("REBUILD_INTERVAL", "soon"),
        ("EXPIRY_LEEWAY", "soon"),
        ("CHANGE_RETENTION", "soon"),
        ("WAIT_TIMEOUT", "soon"),
    ] {
        let name = format!("BLOOMGATE_{key}");
        let errors = World::default().variable(&name, value).errors();
        let line = errors.to_string();
        let expected = format!("{} (from {name}): ", key.to_lowercase());
        assert!(line.starts_with(&expected), "{line}");
    }
    let world = World::default().variable("BLOOMGATE_HASH_KEY_FILE", "/key");
    assert_eq!(world.config().hash_key_file, Some(PathBuf::from("/key")));
}

#[test]
fn the_file_may_be_named_by_the_environment_and_the_flag_beats_it() {
    let mut world = World::default()
        .file("a.toml", "listen = \"127.0.0.1:1\"")
        .file("b.toml", "listen = \"127.0.0.1:2\"")
        .variable("BLOOMGATE_CONFIG", "a.toml");
    assert_eq!(world.config().listen.port(), 1);
    world = world.flags(|flags| flags.config = Some(PathBuf::from("b.toml")));
    assert_eq!(world.config().listen.port(), 2);
}

#[test]
fn a_database_url_chooses_postgres_unless_the_store_is_stated() {
    let with_url = World::default().variable("DATABASE_URL", URL);
    assert_eq!(store_url(&with_url.config()), Some(URL));
    let source = "store = \"sqlite\"\n[filters.a]\nprofile = \"jti\"\ncapacity = 10\n\
                  false_positive_rate = 0.01\n[[filters.a.sources]]\nname = \"s\"\n\
                  query = \"SELECT a FROM b\"";
    let for_the_source = World::with_file(source).variable("DATABASE_URL", URL);
    let config = for_the_source.config();
    assert_eq!(store_url(&config), None);
    assert_eq!(exposed(&config.filters[0].sources[0].database_url), URL);
}

#[test]
fn an_address_that_others_can_reach_needs_a_stated_store_and_keys_or_the_flag() {
    let open = |flags: &mut Flags| flags.listen = Some("0.0.0.0:8080".to_owned());
    assert_eq!(
        World::default().flags(open).faulty_keys(),
        ["store", "keys"]
    );
    let stated = World::default()
        .flags(open)
        .variable("BLOOMGATE_STORE", "sqlite");
    assert_eq!(stated.faulty_keys(), ["keys"]);
    stated.flags(|flags| flags.insecure_no_keys = true).config();
    let key = format!("[[keys]]\nid = \"a\"\nsha256 = \"{SHA256}\"\nscopes = [\"admin\"]");
    let keyed = World::with_file(&key).flags(open);
    keyed.variable("DATABASE_URL", URL).config();
    for loopback in ["127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        World::default()
            .variable("BLOOMGATE_LISTEN", loopback)
            .config();
    }
}

#[test]
fn what_takes_effect_reads_back_to_the_same() {
    for world in [World::default(), World::with_file(EVERY_KEY)] {
        let effective = world.config().effective();
        let table: toml::Table = effective.parse().expect("TOML");
        assert!(!table.contains_key("config"));
        let unmasked = effective
            .replace("sha256 = \"***\"", &format!("sha256 = \"{SHA256}\""))
            .replace("\"***\"", "\"postgres://a/b\"");
        assert_eq!(World::with_file(&unmasked).config().effective(), effective);
    }
}

#[test]
fn a_longer_file_than_the_bound_is_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("long.toml");
    let bound = usize::try_from(MAX_FILE_BYTES).expect("a bound that fits");
    std::fs::write(&path, " ".repeat(bound)).expect("written");
    assert_eq!(read_text_file(&path).expect("read").len(), bound);
    std::fs::write(&path, " ".repeat(bound + 1)).expect("written");
    let error = read_text_file(&path).expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}
