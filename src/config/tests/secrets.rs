//! No password, URL or key is in a message or in `Debug`.

use super::*;

/// Every malformed form of a URL that still holds the password.
const MALFORMED: [&str; 10] = [
    "mysql://app:hunter2secret@h/d",
    "hunter2secret",
    "postgres:app:hunter2secret@h/d",
    "postgres://app:hunter2secret@h:port/d",
    "postgres://app:hunter2secret#x@h/d",
    "postgres://app:12#hunter2secret@h/d",
    "postgres://app:12/hunter2secret@h/d",
    "postgres://app:12?hunter2secret@h/d",
    "postgres://app:hunter2secret@h/d?sslmode=off",
    "postgres://app:hunter2secret@[::1/d",
];

#[test]
fn a_malformed_url_is_a_problem_that_does_not_show_it() {
    for url in MALFORMED {
        let errors = World::default().variable("DATABASE_URL", url).errors();
        let told = format!("{errors}\n{errors:?}");
        assert_eq!(errors.problems()[0].key(), "database_url");
        assert!(!told.contains(PASSWORD), "{told}");
        assert!(!told.contains("sslmode=off"), "{told}");
    }
}

#[test]
fn the_urls_that_people_use_are_well_formed() {
    for url in [
        URL,
        "postgresql://h",
        "postgres:///d?host=/run/postgresql",
        "postgres://%2Frun%2Fpostgresql/d",
        "postgres://a:p%40%23%2F@[::1]:5433/d?sslmode=verify-full&sslrootcert=/ca.pem",
        "postgres://h/d?user=app@tenant&channel_binding=require",
    ] {
        let world = World::default().variable("DATABASE_URL", url);
        assert_eq!(store_url(&world.config()), Some(url));
    }
}

#[test]
fn a_url_under_the_wrong_key_is_not_shown() {
    let mut file = String::new();
    for key in [
        "listen",
        "store",
        "max_staleness",
        "memory_budget",
        "poll_interval",
    ] {
        file.push_str(&format!("{key} = \"{URL}\"\n"));
    }
    file.push_str(&format!(
        "\"{URL}\" = 1\n[filters.\"{URL}\"]\nprofile = \"{URL}\"\n"
    ));
    file.push_str(&format!("[[keys]]\nid = \"{URL}\"\nscopes = [\"{URL}\"]\n"));
    file.push_str(&format!("filters = [\"{URL}\"]\nsha256 = \"{URL}\"\n"));
    let errors = World::with_file(&file).errors();
    assert!(errors.problems().len() >= 11, "{errors}");
    let told = format!("{errors}\n{errors:?}");
    assert!(!told.contains(PASSWORD), "{told}");
}

#[test]
fn a_key_that_stands_where_its_digest_belongs_is_not_shown() {
    let scopes = std::iter::once(Scope::Check).collect();
    let key = new_key("a", scopes, None).expect("randomness");
    let secret = exposed(&key.secret);
    let file =
        format!("[[keys]]\nid = \"{secret}\"\nsha256 = \"{secret}\"\nscopes = [\"{secret}\"]");
    let errors = World::with_file(&file).errors();
    assert_eq!(errors.problems().len(), 3, "{errors}");
    assert!(
        !format!("{errors:?}{errors}").contains(&secret[3..]),
        "{errors}"
    );
}

#[test]
fn an_address_under_the_wrong_key_is_not_shown() {
    let errors = World::with_file("listen = \"ann@example.com\"").errors();
    assert!(!format!("{errors:?}{errors}").contains("ann@"), "{errors}");
}

#[test]
fn a_line_that_is_no_toml_is_not_shown() {
    for line in [
        format!("database_url = {URL}"),
        format!("database_url = \"{URL}"),
        format!("database_url = \"{URL}\" \"{PASSWORD}\""),
        format!("database_url = \"a\"\ndatabase_url = \"{PASSWORD}\""),
    ] {
        let errors = World::with_file(&line).errors();
        let told = format!("{errors}\n{errors:?}");
        assert!(!told.contains(PASSWORD), "{told}");
    }
}

#[test]
fn no_debug_and_no_print_of_a_configuration_shows_a_secret() {
    let file = format!(
        "[filters.f]\nprofile = \"jti\"\ncapacity = 10\nfalse_positive_rate = 0.01\n\
         [[filters.f.sources]]\nname = \"s\"\nquery = \"SELECT a FROM b\"\n\
         [[filters.f.sources]]\nname = \"t\"\nquery = \"SELECT a FROM b\"\n\
         database_url = \"{URL}&application_name=own\"\n\
         [[keys]]\nid = \"gateway\"\nsha256 = \"{SHA256}\"\nscopes = [\"check\"]"
    );
    let world = World::with_file(&file).flags(|flags| flags.database_url = Some(URL.into()));
    let config = world.config();
    assert_eq!(store_url(&config), Some(URL));
    let digest = format!("{:?}", config.keys[0].sha256);
    for told in [
        format!("{config:?}"),
        format!("{config:#?}"),
        format!("{:?}", world.flags),
        config.effective(),
    ] {
        assert!(!told.contains(PASSWORD), "{told}");
        assert!(!told.contains(SHA256) && !told.contains(&digest), "{told}");
    }
    assert!(config.effective().contains("database_url = \"***\""));
}
