//! The profiles, on any bytes that a row may hold and any text that a caller may send.
//!
//! * None panics; a row has no canonical bytes exactly when it is blank.
//! * Canonicalizing canonical bytes changes nothing.
//! * What is accepted has the canonical bytes of its row; what is refused is refused for its
//!   reason.
//! * Whatever a database's `lower()`, `upper()` or normalization makes of an address has its key,
//!   and so has the address with its domain as DNS writes it.
//!
//! Input: a byte of options, then the row; as bytes, or as UTF-16, of which every change is again
//! some text.

#![no_main]

#[allow(dead_code, unused_imports)] // A target calls its part.
#[path = "../../src/filter"]
mod filter {
    pub(crate) mod profile;
}

use std::str;

use filter::profile::{EmailOptions, ItemError, Profile};
use icu_casemap::CaseMapper;
use icu_normalizer::{ComposingNormalizer, DecomposingNormalizer};
use icu_properties::CodePointSetData;
use icu_properties::props::DefaultIgnorableCodePoint;
use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use libfuzzer_sys::fuzz_target;

/// The languages that have case mappings of their own, and the root.
const LANGUAGES: [&str; 6] = ["und", "tr", "az", "lt", "el", "hy"];

fuzz_target!(|input: &[u8]| {
    let Some((&choice, row)) = input.split_first() else {
        return;
    };
    let options = EmailOptions {
        gmail_dots: choice & 1 != 0,
        googlemail: choice & 2 != 0,
        plus_tags: choice & 4 != 0,
    };
    let utf16: Vec<u16> = row
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    let of_utf16 = String::from_utf16_lossy(&utf16);
    let row = if choice & 8 == 0 {
        row
    } else {
        of_utf16.as_bytes()
    };
    for profile in [Profile::Jti, Profile::Text, Profile::Email(options)] {
        assert_canonical(profile, row);
        if let Ok(item) = str::from_utf8(row) {
            assert_meets_its_row(profile, item);
        }
    }
    assert_one_key(options, &text_of(row));
});

/// A row as text: UTF-8 or else Latin-1.
fn text_of(row: &[u8]) -> String {
    match str::from_utf8(row) {
        Ok(text) => text.to_owned(),
        Err(_) => row.iter().copied().map(char::from).collect(),
    }
}

fn assert_canonical(profile: Profile, row: &[u8]) {
    let text = text_of(row);
    let Some(canonical) = profile.canonicalize(row) else {
        let is_nothing = |c: char| match profile {
            Profile::Email(_) => is_nothing_to_email(c),
            Profile::Jti | Profile::Text => c.is_whitespace(),
        };
        assert!(
            text.chars().all(is_nothing),
            "{profile:?} passes {text:?} over"
        );
        return;
    };
    assert!(!text.trim().is_empty(), "{profile:?} takes a blank row");
    assert!(!canonical.bytes.is_empty(), "{profile:?}: {text:?}");
    assert!(
        str::from_utf8(&canonical.bytes).is_ok(),
        "{profile:?}: {text:?}"
    );
    assert!(
        canonical.odd || str::from_utf8(row).is_ok(),
        "{profile:?}: {text:?}"
    );
    let again = profile
        .canonicalize(&canonical.bytes)
        .expect("it is not blank");
    assert_eq!(again.bytes, canonical.bytes, "{profile:?}, twice: {text:?}");
    match profile {
        Profile::Text => assert_eq!(canonical.bytes, text.as_bytes()),
        Profile::Jti => assert!(
            canonical.bytes == text.as_bytes() || canonical.bytes.len() == 36,
            "no UUID, and changed: {text:?}"
        ),
        Profile::Email(_) => {}
    }
}

fn is_nothing_to_email(c: char) -> bool {
    let is_ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c);
    c.is_whitespace() || c.is_control() || is_ignorable
}

fn assert_meets_its_row(profile: Profile, item: &str) {
    let row = profile.canonicalize(item.as_bytes());
    match profile.accept(item) {
        Ok(accepted) => assert_eq!(Some(accepted), row, "{profile:?}: {item:?}"),
        Err(ItemError::Blank) => assert!(row.is_none(), "{profile:?}: {item:?}"),
        Err(ItemError::Nul) => assert!(item.contains('\0')),
        Err(ItemError::TooLong {
            limit_bytes,
            found_bytes,
        }) => {
            assert_eq!(limit_bytes, profile.max_item_bytes());
            assert_eq!(found_bytes, item.len());
            assert!(found_bytes > limit_bytes);
        }
        Err(ItemError::WholeToken | ItemError::BearerScheme) => {
            assert_eq!(profile, Profile::Jti);
            assert!(item.contains('.') || item.to_ascii_lowercase().contains("bearer"));
        }
    }
}

fn assert_one_key(options: EmailOptions, text: &str) {
    let key = |text: &str| {
        let canonical = Profile::Email(options).canonicalize(text.as_bytes());
        canonical.map(|canonical| canonical.bytes.into_owned())
    };
    let expected = key(text);
    for form in forms(text).into_iter().chain(with_ascii_domain(text)) {
        assert_eq!(key(&form), expected, "{options:?}: {text:?} and {form:?}");
    }
}

/// The address with its domain as A-labels, where it has such a form. The bound keeps clear of the
/// length past which a domain is left as it is.
fn with_ascii_domain(text: &str) -> Option<String> {
    const LONGEST_DOMAIN_BYTES: usize = 90;
    let (local, domain) = text.rsplit_once('@')?;
    let ascii = Uts46::new().to_ascii(
        domain.as_bytes(),
        AsciiDenyList::URL,
        Hyphens::Allow,
        DnsLength::Ignore,
    );
    let ascii = ascii.ok()?;
    (domain.len() <= LONGEST_DOMAIN_BYTES).then(|| format!("{local}@{ascii}"))
}

/// What databases make of a text: by character (libc, builtin), as a whole, by language (ICU), and
/// in each normalization form.
fn forms(text: &str) -> Vec<String> {
    let mapper = CaseMapper::new();
    let mut forms = vec![
        text.to_lowercase(),
        text.to_uppercase(),
        text.to_uppercase().to_lowercase(),
        text.chars().map(|c| mapper.simple_lowercase(c)).collect(),
        text.chars().map(|c| mapper.simple_uppercase(c)).collect(),
        text.chars().map(|c| mapper.simple_titlecase(c)).collect(),
        ComposingNormalizer::new_nfc().normalize(text).into_owned(),
        ComposingNormalizer::new_nfkc().normalize(text).into_owned(),
        DecomposingNormalizer::new_nfd()
            .normalize(text)
            .into_owned(),
        DecomposingNormalizer::new_nfkd()
            .normalize(text)
            .into_owned(),
    ];
    for language in LANGUAGES {
        let language = language.parse().expect("a language code");
        forms.push(mapper.lowercase_to_string(text, &language).into_owned());
        forms.push(mapper.uppercase_to_string(text, &language).into_owned());
    }
    forms.retain(|form| form != text);
    forms.sort_unstable();
    forms.dedup();
    forms
}
