//! Whatever is brought by any road checks `maybe` by any road, before a restart and after.

use std::cell::RefCell;
use std::collections::BTreeSet;

use bloomgate::filter::profile::{EmailOptions, Profile};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::Roads;

/// Sets of items that are brought, each of up to [`MAX_ITEMS`].
const CASES: u32 = 24;

const MAX_ITEMS: usize = 12;

/// Failing cases that are tried on the way to a small one: each goes to the running program.
const MAX_SHRINKS: u32 = 100;

/// Brings sets of what the API takes, and asks for each item as it came, and as `spellings` has it.
fn assert_found_on_every_road(
    profile: Profile,
    items: impl Strategy<Value = String>,
    spellings: fn(&str) -> Vec<String>,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut roads = runtime.block_on(Roads::start(profile.name(), ""));
    let brought = RefCell::new(BTreeSet::new());
    let items = items.prop_filter("the API refuses it", |item| profile.accept(item).is_ok());
    let sets = prop::collection::vec(items, 1..=MAX_ITEMS);
    let config = Config {
        cases: CASES,
        max_shrink_iters: MAX_SHRINKS,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&sets, |items| {
        runtime.block_on(roads.bring(&items));
        for item in &items {
            for spelling in std::iter::once(item.clone()).chain(spellings(item)) {
                let missed = runtime.block_on(roads.missed_on(item, &spelling));
                prop_assert_eq!(missed, Vec::<&str>::new(), "{:?} as {:?}", item, spelling);
            }
        }
        brought.borrow_mut().extend(items);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    runtime.block_on(async {
        roads.restart_as(profile.name(), "").await;
        for item in brought.take() {
            roads.assert_found(&item, &item).await;
        }
    });
}

/// Any text, with what parsers, databases and folding trip over more often than by chance.
fn text() -> impl Strategy<Value = String> {
    let odd = "[ \t\r\n\\\\\"'{}%\u{85}\u{a0}\u{ad}\u{200b}\u{2028}\u{feff}\u{fffe}\u{10ffff}]";
    let piece = prop_oneof![
        4 => "[a-zA-Z0-9._-]{1,8}",
        2 => odd,
        2 => any::<char>().prop_map(String::from),
        1 => "[İıſßΣςǅﬁ\u{345}\u{301}\u{307}\u{212a}]{1,3}",
    ];
    prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

fn uuid() -> impl Strategy<Value = String> {
    any::<u128>().prop_map(|bits| uuid::Uuid::from_u128(bits).to_string())
}

/// What a `uuid` column takes for the same value; nothing for other items.
fn spellings_of_uuid(item: &str) -> Vec<String> {
    let Ok(uuid) = uuid::Uuid::try_parse(item) else {
        return Vec::new();
    };
    let (hyphenated, simple) = (uuid.to_string(), uuid.simple().to_string());
    vec![
        hyphenated.to_uppercase(),
        simple.clone(),
        format!("{{{simple}}}"),
        hyphenated,
    ]
}

#[test]
fn a_token_id_that_came_by_any_road_is_maybe_by_any_road() {
    let items = prop_oneof![uuid(), "[A-Za-z0-9_=+/-]{1,40}", text()];
    assert_found_on_every_road(Profile::Jti, items, spellings_of_uuid);
}

#[test]
fn an_address_that_came_by_any_road_is_maybe_by_any_road() {
    let address = (text(), text()).prop_map(|(local, domain)| format!("{local}@{domain}"));
    let items = prop_oneof![3 => address, 1 => text()];
    let profile = Profile::Email(EmailOptions::default());
    assert_found_on_every_road(profile, items, |address| {
        vec![
            address.to_lowercase(),
            address.to_uppercase(),
            format!(" {address}\u{a0}"),
        ]
    });
}

#[test]
fn a_text_that_came_by_any_road_is_maybe_by_any_road() {
    assert_found_on_every_road(Profile::Text, text(), |_| Vec::new());
}
