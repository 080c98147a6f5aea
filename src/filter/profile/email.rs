//! The `email` profile: a key for look-up, never proof that two people are one.
//!
//! The key is at least as coarse as any unique index that a user may have over addresses, for any
//! `lower()` of any database: `key(lower(x)) = key(upper(x)) = key(x)`. Where two addresses share
//! a key, a check costs one look-up more; where one address had two keys, an address in use would
//! be answered `definitely-not`.
//!
//! The recipe: [`fold`] the text; split it at the last `@`; bring the domain to its ASCII form
//! (UTS #46, non-transitional, A-labels decoded and folded first) or, where that fails, keep it as
//! folded; take needless quotes off the local part; apply the provider rules that are switched on;
//! all of it again until nothing changes. What is no address takes the same way and counts as odd.
//!
//! Invariants: total; linear; idempotent; the short way for plain ASCII gives what the long way
//! gives. Everything after folding looks at the folded text alone, so that case tells nowhere.

mod fold;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unicode_tests;

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use super::Canonical;
use fold::{fold, is_edge};

/// Raise it with any change that alters the canonical bytes of any item: of the recipe, and also
/// of the Unicode data in a newer `icu_*` or `idna` crate. A test pins the keys of all code points.
pub(super) const VERSION: u32 = 1;

/// The longest item the API takes, in bytes.
pub(super) const MAX_ITEM_BYTES: usize = 4_096;

/// Far past any name that DNS can hold (253 octets); beyond it a domain is kept as folded, for
/// Punycode takes quadratic time.
const MAX_DOMAIN_BYTES: usize = 1_024;

/// How often the recipe may change its own outcome before it is given up. Every change takes
/// something off (quotes, a tag, dots, an edge), and each of them is there to take but once.
const MAX_ROUNDS: usize = 8;

/// Rules of single providers. They make addresses one that other databases hold as two, so that
/// all are off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EmailOptions {
    /// Dots in the local part of gmail.com mean nothing; with `googlemail`, in that of
    /// googlemail.com as well.
    pub gmail_dots: bool,
    /// googlemail.com is gmail.com.
    pub googlemail: bool,
    /// The local part ends before its first `+`, in every domain.
    pub plus_tags: bool,
}

/// The canonical bytes of an address or of whatever stands in its place; none when nothing is
/// left of it.
pub(super) fn canonical(text: &str, options: EmailOptions) -> Option<Canonical<'_>> {
    let key = ascii_key(text, options).unwrap_or_else(|| Cow::Owned(full_key(text, options)));
    if key.is_empty() {
        return None;
    }
    let odd = !is_address(&key);
    let bytes = match key {
        Cow::Borrowed(key) => Cow::Borrowed(key.as_bytes()),
        Cow::Owned(key) => Cow::Owned(key.into_bytes()),
    };
    Some(Canonical { bytes, odd })
}

/// The short way, for plain ASCII: what [`full_key`] gives, or none where that takes more than
/// lower case, trimmed ends and the provider rules.
fn ascii_key(text: &str, options: EmailOptions) -> Option<Cow<'_, str>> {
    let text = if is_plain(text) {
        text
    } else {
        let trimmed = text.trim_matches(|end: char| end.is_ascii() && is_edge(end));
        Some(trimmed).filter(|trimmed| is_plain(trimmed))?
    };
    let Some((local, domain)) = text.rsplit_once('@') else {
        return Some(ascii_lower(text));
    };
    // An A-label has two hyphens; whoever else has them goes the long way for nothing.
    if domain.as_bytes().windows(2).any(|pair| pair == b"--") {
        return None;
    }
    let domain = domain.trim_end_matches('.');
    let key = ascii_lower(&text[..local.len() + 1 + domain.len()]);
    let changed = options.apply(&key[..local.len()], &key[local.len() + 1..]);
    Some(changed.map_or(key, Cow::Owned))
}

/// Whether the long way has nothing to do but lower the case and to look at the domain.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'"')
}

fn ascii_lower(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// The recipe as the head of this module tells it.
fn full_key(text: &str, options: EmailOptions) -> String {
    settle(fold(text), |key| {
        // Joining the parts anew can bring a mark to a letter, or white space to an end.
        let next = fold(&with_plain_parts(key, options));
        (next != key).then_some(next)
    })
}

/// A folded address with its domain, local part and provider rules brought to their plain form.
fn with_plain_parts(key: &str, options: EmailOptions) -> Cow<'_, str> {
    let Some((local, domain)) = key.rsplit_once('@') else {
        return Cow::Borrowed(key);
    };
    let local = unquoted(local);
    let domain = ascii_domain(domain);
    let address = options.apply(local, &domain);
    Cow::Owned(address.unwrap_or_else(|| format!("{local}@{domain}")))
}

/// Applies a step until it has nothing more to change. Should it never come to rest, the start
/// itself stands, which is then given for itself again: idempotent either way.
fn settle(start: String, step: impl Fn(&str) -> Option<String>) -> String {
    let mut current = Cow::Borrowed(start.as_str());
    for _ in 0..MAX_ROUNDS {
        match step(&current) {
            Some(next) => current = Cow::Owned(next),
            None => return current.into_owned(),
        }
    }
    start
}

/// The local part without its quotes where these hold a plain dot-atom (RFC 5322, section 3.2.3,
/// with the characters that RFC 6532 adds), which means the same.
fn unquoted(local: &str) -> &str {
    local
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .filter(|inside| {
            inside
                .split('.')
                .all(|atom| !atom.is_empty() && atom.chars().all(is_atom_text))
        })
        .unwrap_or(local)
}

fn is_atom_text(character: char) -> bool {
    if character.is_ascii() {
        character.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(character)
    } else {
        !is_edge(character)
    }
}

/// The domain's ASCII form without the root's dot, or the domain as folded where it has none.
fn ascii_domain(folded: &str) -> Cow<'_, str> {
    let domain = without_root(folded);
    let is_plain = domain.is_ascii() && !domain.contains("xn--");
    if is_plain || domain.len() > MAX_DOMAIN_BYTES {
        return Cow::Borrowed(domain);
    }
    // A decoded A-label may fold to something else (`ß` to `ss`), whose A-label is another.
    Cow::Owned(settle(domain.to_owned(), |domain| {
        let uts46 = Uts46::new();
        let (unicode, decoded) =
            uts46.to_unicode(domain.as_bytes(), AsciiDenyList::URL, Hyphens::Allow);
        let unicode = match decoded {
            Ok(()) => fold(&unicode),
            Err(_) => domain.to_owned(),
        };
        let unicode = without_root(&unicode);
        let encoded = uts46.to_ascii(
            unicode.as_bytes(),
            AsciiDenyList::URL,
            Hyphens::Allow,
            DnsLength::Ignore,
        );
        let next = encoded.unwrap_or(Cow::Borrowed(unicode));
        (next != domain).then(|| next.into_owned())
    }))
}

/// The ideographic full stop is a dot to UTS #46.
fn without_root(domain: &str) -> &str {
    domain.trim_end_matches(|end| matches!(end, '.' | '\u{3002}') || is_edge(end))
}

/// Whether a key looks like an address that mail could be sent to (RFC 5321, section 4.5.3.1, for
/// the lengths). It decides nothing but what is counted as odd.
fn is_address(key: &str) -> bool {
    let Some((local, domain)) = key.rsplit_once('@') else {
        return false;
    };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_atom = local
        .bytes()
        .all(|byte| byte > b' ' && !matches!(byte, b'@' | b'"' | b'\x7f'));
    (1..=64).contains(&local.len())
        && key.len() <= 254
        && (is_atom || is_quoted)
        && is_domain(domain)
}

/// Whether letters, digits, hyphens and underscores stand between single dots.
fn is_domain(domain: &str) -> bool {
    let mut before = b'.';
    for byte in domain.bytes() {
        let is_label = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !is_label && (byte != b'.' || before == b'.') {
            return false;
        }
        before = byte;
    }
    before != b'.'
}

impl EmailOptions {
    /// The address after the rules that are switched on; none where they change nothing. A local
    /// part of which nothing would be left keeps itself, and a quoted one is left alone.
    fn apply(self, local: &str, domain: &str) -> Option<String> {
        let mut address = (Cow::Borrowed(local), domain);
        if self.googlemail && domain == "googlemail.com" {
            address.1 = "gmail.com";
        }
        if !local.starts_with('"') {
            if self.plus_tags
                && let Some((user, _)) = local.split_once('+')
                && !user.is_empty()
            {
                address.0 = Cow::Borrowed(user);
            }
            if self.gmail_dots && address.1 == "gmail.com" {
                let plain = address.0.replace('.', "");
                if !plain.is_empty() {
                    address.0 = Cow::Owned(plain);
                }
            }
        }
        let (new_local, new_domain) = address;
        (new_local != local || new_domain != domain).then(|| format!("{new_local}@{new_domain}"))
    }
}
