//! Unicode folding for the `email` profile: one form for all that any `lower()`, `upper()` or
//! normalization form makes of a text.
//!
//! The ground is caseless matching for identifiers (The Unicode Standard, section 3.13, D147):
//! NFKD, full case folding, NFKC, default-ignorable code points left out. It is made coarser where
//! the case mappings that depend on a language (SpecialCasing.txt and, for Greek and Armenian,
//! ICU) would lead out of it:
//!
//! * Turkish, Azeri: `ı` is `i`, and a dot above on an `i` is none.
//! * Lithuanian puts a dot above on soft-dotted letters and takes it off.
//! * Greek capitals lose their accents, and the iota subscript becomes a letter that takes the
//!   marks after it along: combining marks on and directly before Greek letters are none.
//! * Armenian: the ligature `և` has the capitals of `եւ` or of `եվ`.
//!
//! Invariants: `fold(lower(x)) = fold(upper(x)) = fold(x)`; `fold(fold(x)) = fold(x)`.

use icu_casemap::{CaseMapper, CaseMapperBorrowed};
use icu_normalizer::{
    ComposingNormalizer, ComposingNormalizerBorrowed, DecomposingNormalizer,
    DecomposingNormalizerBorrowed,
};
use icu_properties::props::{CanonicalCombiningClass, DefaultIgnorableCodePoint, SoftDotted};
use icu_properties::{
    CodePointMapData, CodePointMapDataBorrowed, CodePointSetData, CodePointSetDataBorrowed,
};

const NFKD: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizer::new_nfkd();
const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizer::new_nfkc();
const CASE: CaseMapperBorrowed<'static> = CaseMapper::new();
const IGNORABLE: CodePointSetDataBorrowed<'static> =
    CodePointSetData::new::<DefaultIgnorableCodePoint>();
const SOFT_DOTTED: CodePointSetDataBorrowed<'static> = CodePointSetData::new::<SoftDotted>();
const COMBINING_CLASS: CodePointMapDataBorrowed<'static, CanonicalCombiningClass> =
    CodePointMapData::new();

const DOT_ABOVE: char = '\u{307}';
const DOTLESS_I: char = 'ı';
const ARMENIAN_ECH: char = 'ե';
const ARMENIAN_VEW: char = 'վ';
const ARMENIAN_YIWN: char = 'ւ';

/// The folded text, without white space, controls and default-ignorables at its ends. Linear.
pub(super) fn fold(text: &str) -> String {
    let decomposed = NFKD.normalize(text);
    let caseless = CASE.fold_string(&decomposed);
    let plain = without_language_marks(&caseless);
    NFKC.normalize(&plain).trim_matches(is_edge).to_owned()
}

/// Whether the character is nothing at an end of an address. White space includes the no-break
/// space and U+0085; default-ignorables are not asked for, as folding leaves none.
pub(super) fn is_edge(character: char) -> bool {
    character.is_whitespace() || character.is_control()
}

/// Takes decomposed, case-folded text; see the head of this module for what it takes off.
fn without_language_marks(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut base = None;
    let mut marks_from = 0;
    for character in text.chars() {
        if IGNORABLE.contains(character) {
            continue;
        }
        if is_combining(character) {
            let dropped = base.is_some_and(|base| {
                is_greek(base) || (character == DOT_ABOVE && SOFT_DOTTED.contains(base))
            });
            if !dropped {
                plain.push(character);
            }
            continue;
        }
        let letter = match character {
            DOTLESS_I => 'i',
            ARMENIAN_VEW if plain.ends_with(ARMENIAN_ECH) => ARMENIAN_YIWN,
            other => other,
        };
        if is_greek(letter) {
            plain.truncate(marks_from);
        }
        plain.push(letter);
        base = Some(letter);
        marks_from = plain.len();
    }
    plain
}

fn is_combining(character: char) -> bool {
    !character.is_ascii() && COMBINING_CLASS.get(character) != CanonicalCombiningClass::NotReordered
}

/// The block is enough: decomposed text has no other Greek letter with a case.
fn is_greek(letter: char) -> bool {
    matches!(letter, '\u{370}'..='\u{3ff}')
}
