//! One key, whatever case mapping a database knows: over all code points, over the mappings that
//! depend on a language, and over strings made to break them. PostgreSQL's own are tried where a
//! server is at hand.

use std::thread;

use icu_casemap::CaseMapper;
use proptest::prelude::*;

use super::*;

fn key_under(options: EmailOptions, text: &str) -> String {
    full_key(text, options)
}

fn key(text: &str) -> String {
    key_under(EmailOptions::default(), text)
}

/// What lower() and upper() of databases give: character by character (libc, builtin), of the
/// whole string, and by language (ICU).
fn cased(text: &str) -> Vec<String> {
    let mapper = CaseMapper::new();
    let root = "und".parse().expect("the root");
    let mut forms = vec![
        text.to_lowercase(),
        text.to_uppercase(),
        text.to_uppercase().to_lowercase(),
        text.chars().map(|c| mapper.simple_lowercase(c)).collect(),
        text.chars().map(|c| mapper.simple_uppercase(c)).collect(),
        text.chars().map(|c| mapper.simple_titlecase(c)).collect(),
        mapper.lowercase_to_string(text, &root).into_owned(),
        mapper.uppercase_to_string(text, &root).into_owned(),
    ];
    for language in ["tr", "az", "lt", "el", "hy"] {
        let language = language.parse().expect("a language code");
        forms.push(mapper.lowercase_to_string(text, &language).into_owned());
        forms.push(mapper.uppercase_to_string(text, &language).into_owned());
    }
    forms.retain(|form| form != text);
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Fails unless all case forms of the text have its key, and the key is its own.
fn assert_one_key(text: &str) -> String {
    assert_one_key_of(text, &cased(text))
}

fn assert_one_key_of(text: &str, forms: &[String]) -> String {
    let expected = key(text);
    for form in forms {
        assert_eq!(key(form), expected, "{text:?} and {form:?}");
    }
    assert_eq!(key(&expected), expected, "twice: {text:?}");
    expected
}

/// Calls the check for each code point, on all cores, and gives back what it gave, in order.
fn over_all_code_points<T: Send>(check: impl Fn(char) -> T + Sync) -> Vec<T> {
    const CHUNK: usize = 0x1000;
    let chunks: Vec<u32> = (0..=0x10_ffff_u32).step_by(CHUNK).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let chunk = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(&first) = chunks.get(chunk) else {
                return done;
            };
            let range = (first..).take(CHUNK).filter_map(char::from_u32);
            done.push((chunk, range.map(&check).collect::<Vec<T>>()));
        }
    };
    let mut results: Vec<_> = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(2, usize::from);
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        started
            .into_iter()
            .flat_map(|thread| thread.join().expect("no failed check"))
            .collect()
    });
    results.sort_unstable_by_key(|(chunk, _)| *chunk);
    results.into_iter().flat_map(|(_, values)| values).collect()
}

/// Unassigned and private code points are checked as well: what is none today may be in a row.
#[test]
fn every_code_point_has_one_key_in_any_case_and_the_keys_are_pinned() {
    let digests = over_all_code_points(|c| {
        let mut digest = blake3::Hasher::new();
        let has_case = !cased(&c.to_string()).is_empty();
        for text in [
            format!("a{c}b@x.com"),
            format!("{c}@x.com"),
            format!("x@{c}y.com"),
        ] {
            // Most have no case: no language then does more to the text than upper() does.
            let key = if has_case {
                assert_one_key(&text)
            } else {
                assert_one_key_of(&text, &[text.to_uppercase()])
            };
            digest.update(key.as_bytes());
            digest.update(b"\n");
        }
        *digest.finalize().as_bytes()
    });
    assert_eq!(digests.len(), 0x11_0000 - 0x800);
    let mut digest = blake3::Hasher::new();
    for of_one in digests {
        digest.update(&of_one);
    }
    // A change here is a change of keys: raise VERSION with it, or rows already loaded are missed.
    assert_eq!(
        (VERSION, digest.finalize().to_hex().as_str()),
        (
            1,
            "d0d7fff98dc9ed1920b9a6c25c2b9e1f95282c8eb36dd84ab47bd81fb8ea961c"
        )
    );
}

/// Case mapping moves the iota subscript, the dot above and Greek accents about.
#[test]
fn every_cased_letter_has_one_key_under_any_two_marks() {
    const MARKS: [&str; 8] = [
        "", "\u{301}", "\u{307}", "\u{308}", "\u{323}", "\u{345}", "\u{34f}", "\u{3b9}",
    ];
    over_all_code_points(|c| {
        if cased(&c.to_string()).is_empty() {
            return;
        }
        for first in MARKS {
            for second in MARKS {
                assert_one_key(&format!("{c}{first}{second}@x.com"));
            }
        }
    });
}

#[test]
fn the_special_casings_of_each_language_are_one_key() {
    let one = [
        ["\u{130}@x", "i@x"],                     // Turkish
        ["j\u{307}\u{301}@x", "j\u{301}@x"],      // Lithuanian
        ["\u{3ac}\u{3b9}@x", "\u{391}\u{3aa}@x"], // Greek: the accent goes, a dialytika comes
        ["\u{1fb4}@x", "\u{391}\u{399}@x"],       // Greek: the iota subscript
        ["\u{587}@x", "\u{535}\u{54e}@x"],        // Armenian
        ["\u{df}@x", "\u{1e9e}@x"],
        ["\u{3c2}@x", "\u{3a3}@x"],
        ["\u{1c5}@x", "D\u{17d}@x"],
        ["\u{fb01}@x", "FI@x"],
        ["\u{10d0}@x", "\u{1c90}@x"], // Georgian Mtavruli
        ["\u{ab70}@x", "\u{13a0}@x"], // Cherokee
    ];
    for [left, right] in one {
        assert_eq!(key(left), key(right));
        assert_one_key(left);
        assert_one_key(right);
    }
}

/// Characters picked for what they do to each other.
fn troublesome() -> impl Strategy<Value = String> {
    let letters = "aiIjsS.@+\" -\u{130}\u{131}\u{df}\u{1e9e}\u{3b1}\u{3c3}\u{3c2}\u{1fb4}\u{390}\u{1c5}\u{fb03}\
        \u{565}\u{57e}\u{587}\u{301}\u{307}\u{308}\u{323}\u{345}\u{34f}\u{200b}\u{200d}\u{ad}\u{a0}\u{85}\u{7}\
        \u{3002}\u{ff20}\u{a8}\u{1e9a}\u{149}\u{13a0}\u{10d0}\u{5d0}\u{661}\u{1100}\u{1161}\u{94d}\u{915}\u{456}";
    let letters: Vec<char> = letters.chars().collect();
    let piece = prop_oneof![
        10 => proptest::sample::select(letters).prop_map(String::from),
        1 => any::<char>().prop_map(String::from),
        1 => proptest::sample::select(vec![
            "@gmail.com", "@googlemail.com", "xn--", "xn--bcher-kva", "xn--strae-oqa", ".com",
        ]).prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Domains as their A-labels, whatever these hold.
fn encoded_domain() -> impl Strategy<Value = String> {
    troublesome().prop_filter_map("no label", |text| {
        Some(format!("x@xn--{}.com", idna::punycode::encode_str(&text)?))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn any_text_has_one_key_in_any_case(text in troublesome()) {
        assert_one_key(&text);
    }

    #[test]
    fn any_text_keeps_its_key_under_all_rules(text in prop_oneof![troublesome(), encoded_domain()], bits in 0_u8..8) {
        let options = EmailOptions {
            gmail_dots: bits & 1 != 0,
            googlemail: bits & 2 != 0,
            plus_tags: bits & 4 != 0,
        };
        let once = key_under(options, &text);
        prop_assert_eq!(key_under(options, &once), once.clone());
        for form in cased(&text) {
            prop_assert_eq!(key_under(options, &form), once.clone());
        }
    }
}
