//! The promises of the `email` profile, address by address.

use std::time::Instant;

use proptest::prelude::*;

use super::*;

const NONE: EmailOptions = EmailOptions {
    gmail_dots: false,
    googlemail: false,
    plus_tags: false,
};

fn options_of(bits: u8) -> EmailOptions {
    EmailOptions {
        gmail_dots: bits & 1 != 0,
        googlemail: bits & 2 != 0,
        plus_tags: bits & 4 != 0,
    }
}

fn key_under(options: EmailOptions, text: &str) -> String {
    let canonical = canonical(text, options).expect("no blank text");
    String::from_utf8(canonical.bytes.into_owned()).expect("a key is text")
}

fn key(text: &str) -> String {
    key_under(NONE, text)
}

fn is_odd(text: &str) -> bool {
    canonical(text, NONE).expect("no blank text").odd
}

#[test]
fn golden_vectors() {
    let vectors = [
        ("Ann@Example.COM", "ann@example.com"),
        ("jose\u{301}@x.com", "josé@x.com"),
        ("Straße@straße.de", "strasse@strasse.de"),
        ("x@BÜCHER.example.", "x@xn--bcher-kva.example"),
        ("ΑΣ@x.com", "ας@x.com".replace('ς', "σ").as_str()),
        ("\"Ann.B\"@x.com", "ann.b@x.com"),
        ("\"ann b\"@x.com", "\"ann b\"@x.com"),
        ("a\u{ff20}b\u{ff0e}com", "a@b.com"),
        ("not an Email", "not an email"),
        ("@", "@"),
    ]
    .map(|(text, expected)| (text, expected.to_owned()));
    for (text, expected) in vectors {
        assert_eq!(key(text), expected, "{text}");
    }
}

#[test]
fn case_never_tells() {
    for spelling in ["Ann@Example.COM", "ANN@EXAMPLE.COM", "ann@example.com"] {
        assert_eq!(key(spelling), "ann@example.com");
    }
}

#[test]
fn white_space_controls_and_ignorables_at_the_ends_are_nothing() {
    for edge in [
        " ",
        "\t",
        "\r\n",
        "\u{a0}",
        "\u{85}",
        "\u{3000}",
        "\u{1680}",
        "\u{2028}",
        "\u{1}",
        "\u{7f}",
        "\u{9f}",
        "\u{200b}",
        "\u{feff}",
        "\u{ad}",
        "\u{2060}",
        " \u{200b} \u{feff}\u{a0}",
    ] {
        assert_eq!(
            key(&format!("ann@x.com{edge}")),
            "ann@x.com",
            "{edge:?} behind"
        );
        assert_eq!(
            key(&format!("{edge}ann@x.com")),
            "ann@x.com",
            "{edge:?} in front"
        );
        assert_eq!(
            key(&format!("{edge}Ann@x.com.{edge}")),
            "ann@x.com",
            "{edge:?} around"
        );
    }
}

#[test]
fn ignorables_inside_are_nothing_and_white_space_inside_stays() {
    for inside in [
        "\u{200b}", "\u{feff}", "\u{ad}", "\u{2060}", "\u{fe0f}", "\u{200d}",
    ] {
        assert_eq!(key(&format!("an{inside}n@x{inside}.com")), "ann@x.com");
    }
    assert_eq!(key("an n@x.com"), "an n@x.com");
}

#[test]
fn composed_and_decomposed_are_one() {
    assert_eq!(key("jose\u{301}@x.com"), key("jos\u{e9}@x.com"));
    assert_eq!(key("JOSE\u{301}@x.com"), key("jos\u{e9}@x.com"));
    assert_ne!(key("jose@x.com"), key("jos\u{e9}@x.com"));
}

#[test]
fn dotless_i_and_the_kelvin_sign_are_i_and_k() {
    assert_eq!(key("m\u{131}\u{212a}e@x.com"), "mike@x.com");
    assert_eq!(key("m\u{131}ke@x.com"), key("mike@x.com"));
}

#[test]
fn what_a_turkish_database_makes_of_i_is_one() {
    assert_eq!(key("INFO@X.COM"), "info@x.com");
    assert_eq!(key("\u{131}nfo@x.com"), "info@x.com");
    assert_eq!(key("\u{130}NFO@X.COM"), "info@x.com");
    for spelling in [
        "\u{130}pek@x.com",
        "ipek@x.com",
        "i\u{307}pek@x.com",
        "I\u{307}PEK@x.com",
    ] {
        assert_eq!(key(spelling), "ipek@x.com");
    }
    assert_eq!(key("i\u{323}\u{307}@x.com"), key("\u{130}\u{323}@x.com"));
}

#[test]
fn what_is_different_stays_different_by_default() {
    let addresses = [
        "ab@hotmail.com",
        "a.b@hotmail.com",
        "ann@x.com",
        "ann+t@x.com",
        "ab@gmail.com",
        "a.b@gmail.com",
        "ab@googlemail.com",
        "ann@x.org",
        "ann@y.x.com",
        "an@nx.com",
    ];
    for (place, one) in addresses.iter().enumerate() {
        for other in &addresses[place + 1..] {
            assert_ne!(key(one), key(other));
        }
    }
}

#[test]
fn each_provider_rule_does_its_own_and_nothing_else() {
    let table = [
        (1, "A.n.n+t@Gmail.com.", "ann+t@gmail.com"),
        (1, "a.n@googlemail.com", "a.n@googlemail.com"),
        (2, "a.n@googlemail.com", "a.n@gmail.com"),
        (3, "a.n@GoogleMail.com", "an@gmail.com"),
        (4, "Ann+T+u@x.com", "ann@x.com"),
        (4, "a.n+t@gmail.com", "a.n@gmail.com"),
        (7, "\u{200b}a.n+t@googlemail.com", "an@gmail.com"),
        (7, "a.n@x.com", "a.n@x.com"),
        (7, "a.n@mygmail.com", "a.n@mygmail.com"),
        (7, "\"a.n+t\"@gmail.com", "an@gmail.com"),
        (7, "\"a n+t\"@gmail.com", "\"a n+t\"@gmail.com"),
        (7, "JOS\u{c9}.+t@gmail.com", "jos\u{e9}@gmail.com"),
    ];
    for (bits, text, expected) in table {
        assert_eq!(
            key_under(options_of(bits), text),
            expected,
            "rules {bits:b}"
        );
    }
}

#[test]
fn a_local_part_of_which_a_rule_would_leave_nothing_keeps_itself() {
    assert_eq!(key_under(options_of(7), "+tag@x.com"), "+tag@x.com");
    assert_eq!(key_under(options_of(7), "..@gmail.com"), "..@gmail.com");
    assert_eq!(key_under(options_of(7), ".+tag@gmail.com"), ".@gmail.com");
}

#[test]
fn rules_that_lay_a_new_edge_bare_still_come_to_rest() {
    for text in [
        ". a@gmail.com",
        "a.\u{301}@gmail.com",
        ".\"a.b\"+t@gmail.com",
        "i.\u{307}@gmail.com",
    ] {
        let once = key_under(options_of(7), text);
        assert_eq!(key_under(options_of(7), &once), once);
    }
    assert_eq!(
        key_under(options_of(7), ".\"ab\"+t@gmail.com"),
        "ab@gmail.com"
    );
}

#[test]
fn two_addresses_that_a_rule_once_joined_are_still_found_without_it() {
    // The rows hold what was added; each is canonicalized anew under the options of the day.
    for row in ["a.b@gmail.com", "ab@gmail.com"] {
        assert_eq!(key_under(options_of(1), row), "ab@gmail.com");
        assert_eq!(key(row), row);
    }
}

#[test]
fn the_dot_of_the_root_is_nothing() {
    for domain in [
        "x.com.",
        "x.com..",
        "X.COM.",
        "x.com. ",
        "x.com\u{3002}",
        "x.com\u{ff0e}",
        "x.com .",
    ] {
        assert_eq!(key(&format!("ann@{domain}")), "ann@x.com", "{domain:?}");
    }
    let unicode = key("ann@b\u{fc}cher.de\u{3002}");
    assert_eq!(unicode, "ann@xn--bcher-kva.de");
}

#[test]
fn every_form_of_a_domain_is_one() {
    for domain in [
        "b\u{fc}cher.de",
        "BU\u{308}CHER.de",
        "xn--bcher-kva.de",
        "XN--BCHER-KVA.DE",
    ] {
        assert_eq!(key(&format!("x@{domain}")), "x@xn--bcher-kva.de");
    }
    // An A-label whose name folds to another: a capital ß has no way back.
    for domain in [
        "stra\u{df}e.de",
        "STRASSE.DE",
        "xn--strae-oqa.de",
        "STRA\u{1e9e}E.DE",
    ] {
        assert_eq!(key(&format!("x@{domain}")), "x@strasse.de");
    }
    assert_eq!(key("x@a\u{3002}com"), "x@a.com");
}

#[test]
fn a_domain_past_any_name_in_dns_is_kept_as_folded() {
    let short = format!("x@{}de", "\u{fc}.".repeat(300));
    assert!(key(&short).is_ascii());
    let long = format!("x@{}de", "\u{fc}.".repeat(400));
    assert_eq!(key(&long.to_uppercase()), long);
    for domain in [short, long] {
        assert_eq!(key(&key(&domain)), key(&domain));
    }
}

#[test]
fn a_label_that_only_looks_encoded_is_kept_as_folded() {
    assert_eq!(key("x@xn--example-.org"), "x@xn--example-.org");
    assert_ne!(key("x@xn--example-.org"), key("x@example.org"));
    assert_eq!(key("x@XN--\u{fc}.org"), "x@xn--\u{fc}.org");
}

#[test]
fn only_a_plain_dot_atom_loses_its_quotes() {
    assert_eq!(key("\"ann\"@x.com"), "ann@x.com");
    assert_eq!(key("\"j\u{fc}rgen.b\"@x.com"), "j\u{fc}rgen.b@x.com");
    for local in [
        "\"\"",
        "\"a b\"",
        "\"a@b\"",
        "\"a..b\"",
        "\".a\"",
        "\"a.\"",
        "\"a\\b\"",
        "\"\"a\"\"",
        "\"a",
        "\"",
    ] {
        assert_eq!(key(&format!("{local}@x.com")), format!("{local}@x.com"));
    }
}

#[test]
fn what_is_no_address_is_odd_and_finds_itself() {
    let long_local = format!("{}@x.com", "a".repeat(65));
    let long = format!("ann@{}com", "x.".repeat(196));
    for row in [
        "not-an-email",
        "a@b@c.com",
        "@x.com",
        "ann@",
        "@",
        "ann@x..com",
        "ann@.com",
        "an n@x.com",
        "ann@x y.com",
        "ann@x\u{fffd}.com",
        "\"ann@x.com",
        "Ann <ann@x.com>",
        &long_local,
        &long,
    ] {
        assert!(is_odd(row), "{row}");
        assert_eq!(key(&row.to_uppercase()), key(row));
        assert_eq!(key(&key(row)), key(row));
    }
    for address in [
        "ann@x.com",
        " Ann@localhost. ",
        "a.b+c'd@x_y.co.uk",
        "\"a@b\"@x.com",
        "j\u{fc}@b\u{fc}.de",
    ] {
        assert!(!is_odd(address), "{address}");
    }
}

#[test]
fn a_row_of_any_length_takes_linear_time() {
    let letters = [
        "a",
        "\u{fc}",
        "\u{301}",
        "\u{345}",
        "\u{fdfa}",
        ".",
        "@",
        "+",
        "\"",
        "xn--a.",
        "xn--bcher-kva.",
        "\u{3c9}\u{301}",
    ];
    let started = Instant::now();
    for letter in letters {
        let run = letter.repeat(300_000 / letter.len());
        for row in [run.clone(), format!("x@{run}"), format!("{run}@gmail.com")] {
            assert!(canonical(&row, options_of(7)).is_some());
        }
    }
    let seconds = started.elapsed().as_secs();
    assert!(seconds < 60, "{seconds} s for what takes one or two");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_short_way_gives_what_the_long_way_gives(
        text in "[ -~]{0,16}|[\\x00-\\x7f]{0,12}|[.+aA \"]{0,6}@(gmail|googleMail|x|XN--|-)[.]{0,2}(com)?[. ]{0,3}",
        bits in 0_u8..8
    ) {
        let options = options_of(bits);
        if let Some(short) = ascii_key(&text, options) {
            prop_assert_eq!(short, full_key(&text, options));
        }
    }

    #[test]
    fn an_ordinary_address_takes_the_short_way(text in "[ ]{0,2}[!-~&&[^\"@]]{1,12}@[a-zA-Z0-9.]{1,12}") {
        prop_assert!(ascii_key(&text, NONE).is_some());
    }
}
