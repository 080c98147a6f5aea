//! The promises that all profiles share, and those of `jti` and `text`.

use proptest::prelude::*;

use super::*;

const EVERY_OPTION: EmailOptions = EmailOptions {
    gmail_dots: true,
    googlemail: true,
    plus_tags: true,
};

const PROFILES: [Profile; 4] = [
    Profile::Jti,
    Profile::Email(EmailOptions {
        gmail_dots: false,
        googlemail: false,
        plus_tags: false,
    }),
    Profile::Email(EVERY_OPTION),
    Profile::Text,
];

const UUID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";

fn jti(item: &str) -> Vec<u8> {
    let canonical = Profile::Jti.canonicalize(item.as_bytes());
    canonical.expect("no blank item").bytes.into_owned()
}

#[test]
fn names_versions_and_bounds_are_pinned() {
    let told =
        PROFILES.map(|profile| (profile.name(), profile.version(), profile.max_item_bytes()));
    let expected = [
        ("jti", 1, 1_024),
        ("email", 1, 4_096),
        ("email", 1, 4_096),
        ("text", 1, 4_096),
    ];
    assert_eq!(told, expected);
}

#[test]
fn golden_jti_and_text_vectors() {
    let vectors = [
        (Profile::Jti, "AbC-09._~ ü", "AbC-09._~ ü"),
        (Profile::Jti, "12345", "12345"),
        (Profile::Jti, "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", UUID),
        (Profile::Text, " Ann@X.com\t", " Ann@X.com\t"),
        (
            Profile::Text,
            "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
            "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
        ),
    ];
    for (profile, item, expected) in vectors {
        let canonical = profile.canonicalize(item.as_bytes()).unwrap();
        assert_eq!(canonical.bytes, expected.as_bytes(), "{profile:?}");
    }
}

#[test]
fn a_blank_row_has_no_canonical_bytes_and_a_blank_item_is_refused() {
    for profile in PROFILES {
        for blank in ["", "  ", "\t\r\n", "\u{a0}\u{85}\u{3000}"] {
            assert_eq!(profile.canonicalize(blank.as_bytes()), None);
            assert_eq!(profile.accept(blank), Err(ItemError::Blank));
        }
        assert_eq!(profile.canonicalize(b"\xa0\x85"), None, "blank in Latin-1");
    }
    for nothing_left in ["\u{200b}", "\u{feff} \u{ad}", "\u{1}", "\u{200b}\u{7f}"] {
        let email = Profile::Email(EmailOptions::default());
        assert_eq!(email.canonicalize(nothing_left.as_bytes()), None);
        assert_eq!(email.accept(nothing_left), Err(ItemError::Blank));
    }
}

#[test]
fn an_item_is_taken_up_to_its_bound_and_a_row_past_it() {
    for profile in PROFILES {
        let limit_bytes = profile.max_item_bytes();
        assert!(profile.accept(&"a".repeat(limit_bytes)).is_ok());
        let long = "a".repeat(limit_bytes + 1);
        let refused = ItemError::TooLong {
            limit_bytes,
            found_bytes: limit_bytes + 1,
        };
        assert_eq!(profile.accept(&long), Err(refused));
        assert_eq!(
            profile.canonicalize(long.as_bytes()).unwrap().bytes,
            long.as_bytes()
        );
    }
}

#[test]
fn an_item_with_u_0000_is_refused_and_a_row_with_it_is_taken() {
    for profile in PROFILES {
        for item in ["\0", "a\0b", "a\0", "\0a"] {
            assert_eq!(profile.accept(item), Err(ItemError::Nul));
        }
        assert!(profile.canonicalize(b"a\0b").is_some());
    }
}

#[test]
fn bytes_that_are_no_utf_8_are_odd_and_found_by_their_latin_1_reading() {
    for profile in PROFILES {
        let row = profile.canonicalize(b"\xc1\x52@x.com").unwrap();
        assert!(row.odd);
        assert_eq!(row.bytes, profile.accept("ÁR@x.com").unwrap().bytes);
    }
    assert!(!Profile::Jti.canonicalize("ÁR".as_bytes()).unwrap().odd);
}

#[test]
fn every_spelling_of_a_uuid_is_one_jti() {
    let spellings = [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        "urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "URN:UUID:A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
    ];
    for spelling in spellings {
        assert_eq!(jti(spelling), UUID.as_bytes(), "{spelling}");
    }
}

#[test]
fn what_only_resembles_a_uuid_keeps_its_exact_bytes() {
    let others = [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A1",
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A111",
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A1G",
        "A0EEBC99--9C0B-4EF8-BB6D-6BB9BD380A1",
        "-A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        "A0EEBC999C0B4EF8BB6D6BB9BD380A11-",
        "A0EEBC9-99C0B-4EF8-BB6D-6BB9BD380A11",
        "{A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        "A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
        "A0EEBC999C0B4EF8BB6D6BB9BD380A11 ",
    ];
    for other in others {
        assert_eq!(jti(other), other.as_bytes(), "{other}");
    }
}

#[test]
fn a_jti_keeps_case_and_white_space() {
    assert_ne!(jti("abc"), jti("ABC"));
    assert_ne!(jti("abc"), jti("abc "));
}

#[test]
fn what_needs_no_change_is_borrowed() {
    let items = [
        (Profile::Jti, UUID),
        (Profile::Jti, "any-Id_1"),
        (Profile::Text, "Any text"),
        (PROFILES[1], "ann@x.com"),
        (PROFILES[1], " ann@x.com. "),
        (PROFILES[2], "ann@x.com"),
    ];
    for (profile, item) in items {
        let canonical = profile.accept(item).unwrap();
        assert!(
            matches!(canonical.bytes, Cow::Borrowed(_)),
            "{profile:?}, {item}"
        );
    }
}

#[test]
fn a_whole_token_is_refused_as_jti_with_a_hint() {
    let long_token = format!("eyJhbGciOiJSUzI1NiJ9.{}.c2ln", "a".repeat(2_000));
    let tokens = [
        "eyJhbGciOiJIUzI1NiJ9.eyJqdGkiOiJhIn0.c2ln-_",
        "aaa.bbb.ccc",
        " aaa.bbb.ccc\n",
        "eyJhbGciOiJub25lIn0.eyJqdGkiOiJhIn0.",
        "eyJhbGciOiJkaXIifQ..aXY.Y2lwaGVy.dGFn",
        &long_token,
    ];
    for token in tokens {
        assert_eq!(Profile::Jti.accept(token), Err(ItemError::WholeToken));
        assert!(Profile::Text.accept(token).is_ok());
        assert!(
            Profile::Jti.canonicalize(token.as_bytes()).is_some(),
            "a row is taken"
        );
    }
    assert!(ItemError::WholeToken.to_string().contains("`jti` claim"));
    for id in [
        "a.b",
        "a.b.c.d",
        "1.2.3.4.5",
        "a.b.",
        "..",
        "a.b.c=",
        "a.ü.c",
        "a.b c.d",
    ] {
        assert!(Profile::Jti.accept(id).is_ok(), "{id}");
    }
}

#[test]
fn an_authorization_header_is_refused_as_jti_with_a_hint() {
    for header in ["Bearer abc", "bearer  abc", "BEARER\tabc", " Bearer abc"] {
        assert_eq!(Profile::Jti.accept(header), Err(ItemError::BearerScheme));
        assert!(
            Profile::Jti.canonicalize(header.as_bytes()).is_some(),
            "a row is taken"
        );
    }
    assert!(ItemError::BearerScheme.to_string().contains("`jti` claim"));
    for id in ["bearer", "bearer-1", "Bearers of news"] {
        assert!(Profile::Jti.accept(id).is_ok(), "{id}");
    }
}

#[test]
fn no_message_and_no_debug_output_holds_the_item() {
    let secret = "s3cr3t";
    let canonical = Profile::Text.accept(secret).unwrap();
    assert_eq!(
        format!("{canonical:?}"),
        "Canonical { length_bytes: 6, odd: false }"
    );
    let refused = [
        Profile::Jti.accept("Bearer s3cr3t"),
        Profile::Jti.accept("s3cr3t.s3cr3t.s3cr3t"),
        Profile::Text.accept("s3cr3t\0"),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(!format!("{error} {error:?}").contains(secret));
    }
    let long = Profile::Text.accept(&secret.repeat(1_000)).unwrap_err();
    assert!(!format!("{long} {long:?}").contains(secret));
    assert!(
        long.to_string()
            .contains("at most 4096 bytes of UTF-8, found 6000")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_row_has_canonical_bytes_that_stay_the_same_when_canonicalized_again(
        row in proptest::collection::vec(any::<u8>(), 0..64)
    ) {
        for profile in PROFILES {
            if let Some(canonical) = profile.canonicalize(&row) {
                let again = profile.canonicalize(&canonical.bytes).unwrap();
                prop_assert_eq!(&again.bytes, &canonical.bytes);
            } else {
                prop_assert!(!row.iter().any(u8::is_ascii_graphic), "a row was skipped");
            }
        }
    }

    #[test]
    fn whatever_is_accepted_meets_its_row(item in "\\PC{0,24}|[-{}0-9A-Fa-f]{30,40}|[ .@a-zA-Z+\"]{1,20}") {
        for profile in PROFILES {
            if let Ok(accepted) = profile.accept(&item) {
                prop_assert_eq!(Some(accepted), profile.canonicalize(item.as_bytes()));
            }
        }
    }
}
