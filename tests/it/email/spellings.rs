//! What people, keyboards and forms make of an address.

use serde_json::json;

use crate::support::{Database, DatabaseOptions, Roads};

/// Brings the first of each pair by every road, and asks for the second.
async fn assert_meet(roads: &Roads, pairs: &[(&str, &str)]) {
    let brought: Vec<_> = pairs.iter().map(|(brought, _)| *brought).collect();
    roads.bring(&brought).await;
    for (brought, item) in pairs {
        roads.assert_found(brought, item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_case_in_which_an_address_came_or_is_asked_for_does_not_tell() {
    let roads = Roads::start("email", "").await;
    assert_meet(
        &roads,
        &[
            ("Ann@Example.COM", "ann@example.com"),
            ("bob@example.com", "BOB@Example.Com"),
            ("ΟΔΥΣΣΕΥΣ@Example.com", "οδυσσευς@example.com"),
            ("große@example.com", "GROSSE@EXAMPLE.COM"),
            ("carl@BÜCHER.example", "carl@xn--bcher-kva.example"),
        ],
    )
    .await;
    roads.assert_absent("anne@example.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn white_space_around_and_invisible_characters_anywhere_do_not_tell() {
    let roads = Roads::start("email", "").await;
    assert_meet(
        &roads,
        &[
            ("space@x.com ", "space@x.com"),
            ("tab@x.com\t", "tab@x.com"),
            ("nbsp@x.com\u{a0}", "nbsp@x.com"),
            ("nel@x.com\u{85}", "nel@x.com"),
            ("line@x.com\r\n", "line@x.com"),
            ("\u{200b}zero-width@x.com", "zero-width@x.com"),
            ("\u{feff}mark@x.com", "mark@x.com"),
            ("so\u{ad}ft@x.com", "soft@x.com"),
            ("jo\u{2060}iner@x.com", "joiner@x.com"),
            ("inside@\u{200b}x\u{feff}.com", "inside@x.com"),
            ("clean@x.com", " \u{feff}cl\u{ad}ean@x.com\u{85}\u{a0}\t"),
        ],
    )
    .await;
    roads.assert_absent("sp ace@x.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_unicode_or_a_keyboard_writes_in_two_ways_do_not_tell() {
    let roads = Roads::start("email", "").await;
    assert_meet(
        &roads,
        &[
            ("jose\u{301}@x.com", "jos\u{e9}@x.com"),
            ("ren\u{e9}@x.com", "rene\u{301}@x.com"),
            ("mike@x.com", "m\u{131}ke@x.com"),
            ("l\u{131}z@x.com", "liz@x.com"),
            ("\u{212a}elvin@x.com", "kelvin@x.com"),
            ("karl@x.com", "\u{212a}arl@x.com"),
        ],
    )
    .await;
    roads.assert_absent("jose@x.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dot_of_the_root_does_not_tell() {
    let roads = Roads::start("email", "").await;
    let pairs = [("ann@x.com.", "ann@x.com"), ("bob@x.com", "bob@x.com.")];
    assert_meet(&roads, &pairs).await;
    roads.assert_absent("ann@x.com.uk").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_turkish_database_makes_of_an_address_is_the_address() {
    for options in [
        DatabaseOptions {
            icu_locale: Some("tr-TR"),
            ..DatabaseOptions::default()
        },
        DatabaseOptions {
            locale: Some("tr_TR.UTF-8"),
            ..DatabaseOptions::default()
        },
    ] {
        let database = Database::create_with(options).await;
        let roads = Roads::start_over(database, "email", "").await;
        let addresses = ["INFO@X.COM", "İpek@x.com", "ışık@x.com", "inci@x.com"];
        roads.bring(&addresses).await;
        assert_eq!(
            roads
                .database()
                .query_value::<String>("SELECT lower('INFO')")
                .await,
            "ınfo"
        );
        for address in addresses {
            let mappings =
                format!("SELECT ARRAY['{address}', lower('{address}'), upper('{address}')]");
            for mapped in roads.database().query_value::<Vec<String>>(&mappings).await {
                roads.assert_found(address, &mapped).await;
            }
        }
        roads.assert_found("INFO@X.COM", "info@x.com").await;
        roads.assert_absent("ipekk@x.com").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_some_providers_ignore_tells_unless_it_is_told_not_to() {
    let plain = Roads::start("email", "").await;
    let opted = "gmail_dots = true, googlemail = true, plus_tags = true";
    let opted = Roads::start("email", opted).await;
    let pairs = [
        ("a.b@gmail.com", "ab@gmail.com"),
        ("cd@gmail.com", "c.d@googlemail.com"),
        ("ann@x.com", "ann+tag@x.com"),
        ("bob+tag@x.com", "bob@x.com"),
    ];
    assert_meet(&opted, &pairs).await;
    plain.bring(&pairs.map(|(brought, _)| brought)).await;
    for (_, item) in pairs {
        plain.assert_absent(item).await;
    }
    // Dots tell everywhere else.
    for roads in [&opted, &plain] {
        roads.bring(&["a.b@hotmail.com"]).await;
        roads.assert_absent("ab@hotmail.com").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_were_one_under_a_provider_rule_are_both_there_without_it() {
    let mut roads = Roads::start("email", "gmail_dots = true").await;
    roads
        .bring(&["a.b@gmail.com", "ab@gmail.com", "c.d@gmail.com"])
        .await;
    roads.assert_found("c.d@gmail.com", "cd@gmail.com").await;
    roads.restart_as("email", "").await;
    for address in ["a.b@gmail.com", "ab@gmail.com", "c.d@gmail.com"] {
        roads.assert_found(address, address).await;
    }
    roads.assert_absent("cd@gmail.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blank_rows_are_counted_and_asked_for_in_vain() {
    let roads = Roads::start("email", "").await;
    let rows = r"INSERT INTO arrival VALUES (NULL), (''), ('  '), (E'\t\n'), (E'\u00a0\u200b')";
    roads.database().execute(rows).await;
    roads.bring(&["ann@x.com"]).await;
    roads.assert_found("ann@x.com", "ann@x.com").await;
    let filter = Roads::filter_of_source();
    let source = &roads.service().describe(&filter).await["sources"][0];
    assert_eq!(
        (&source["rows_loaded"], &source["rows_blank"]),
        (&json!(6), &json!(5))
    );
    let path = format!("/v1/filters/{filter}/check");
    for blank in ["", "  ", "\t\n", "\u{a0}\u{200b}"] {
        let answer = roads.service().post(&path, &json!({ "item": blank })).await;
        answer.expect_problem(422, "invalid-item");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_address_is_loaded_counted_and_found_by_the_same_text() {
    let roads = Roads::start("email", "").await;
    let long = format!("{}@x.com", "x".repeat(400));
    let odd = [
        "not-an-email",
        &long,
        "two@at@x.com",
        "@x.com",
        "ann@",
        "@",
        "ann@x..com",
        "an n@x.com",
        "ann@exa mple.com",
        "Ann <ann@x.com>",
        "\"@x.com",
        "ann@[192.0.2.1]",
    ];
    roads.bring(&odd).await;
    for item in odd {
        roads.assert_found(item, item).await;
        roads.assert_found(item, &item.to_uppercase()).await;
        roads.assert_found(item, &format!(" {item}\t")).await;
    }
    let filter = Roads::filter_of_source();
    let source = &roads.service().describe(&filter).await["sources"][0];
    assert_eq!(
        (&source["rows_odd"], &source["rows_blank"]),
        (&json!(odd.len()), &json!(0))
    );
    roads.assert_absent("not-an-email-either").await;
}
