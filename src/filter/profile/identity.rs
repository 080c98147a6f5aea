//! The identity of a profile as snapshots record it: name, version and options.
//!
//! Invariant: two identities are equal exactly when the canonical bytes of every item are. One that
//! this program does not know is kept as it stands, so that it can be told.

use std::fmt;

use super::{EmailOptions, Profile};

/// The options of the email profile in the order of their bits, from the lowest.
const OPTION_NAMES: [&str; 3] = ["gmail_dots", "googlemail", "plus_tags"];

/// Which profile made canonical bytes. It need not be one that this program has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProfileIdentity {
    /// [`Profile::name`].
    pub name: String,
    /// [`Profile::version`].
    pub version: u32,
    /// A bit for each option that is switched on: 0 `gmail_dots`, 1 `googlemail`, 2 `plus_tags`.
    pub options: u8,
}

impl ProfileIdentity {
    /// The profile of this program that makes the same canonical bytes; none where there is none.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let is_on = |bit: u8| self.options & (1 << bit) != 0;
        let options = EmailOptions {
            gmail_dots: is_on(0),
            googlemail: is_on(1),
            plus_tags: is_on(2),
        };
        [Profile::Jti, Profile::Email(options), Profile::Text]
            .into_iter()
            .find(|profile| profile.identity() == *self)
    }
}

impl Profile {
    /// What makes its canonical bytes differ from those of any other profile.
    #[must_use]
    pub fn identity(&self) -> ProfileIdentity {
        let options = match self {
            Self::Email(options) => {
                u8::from(options.gmail_dots)
                    | u8::from(options.googlemail) << 1
                    | u8::from(options.plus_tags) << 2
            }
            Self::Jti | Self::Text => 0,
        };
        ProfileIdentity {
            name: self.name().to_owned(),
            version: self.version(),
            options,
        }
    }
}

impl fmt::Display for ProfileIdentity {
    /// Such as `email version 1 with gmail_dots, plus_tags`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} version {}", self.name, self.version)?;
        let mut lead = " with ";
        for bit in (0..8).filter(|bit| self.options & (1 << bit) != 0) {
            match OPTION_NAMES.get(bit) {
                Some(name) => write!(formatter, "{lead}{name}")?,
                None => write!(formatter, "{lead}unknown option {bit}")?,
            }
            lead = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_identity_and_no_other_is() {
        let mut profiles = vec![Profile::Jti, Profile::Text];
        profiles.extend((0..8_u8).map(|bits| {
            Profile::Email(EmailOptions {
                gmail_dots: bits & 1 != 0,
                googlemail: bits & 2 != 0,
                plus_tags: bits & 4 != 0,
            })
        }));
        for (index, profile) in profiles.iter().enumerate() {
            let identity = profile.identity();
            assert_eq!(identity.profile(), Some(*profile));
            for other in &profiles[index + 1..] {
                assert_ne!(identity, other.identity());
            }
            for changed in [
                ProfileIdentity {
                    version: identity.version + 1,
                    ..identity.clone()
                },
                ProfileIdentity {
                    options: identity.options | 8,
                    ..identity.clone()
                },
                ProfileIdentity {
                    name: "other".to_owned(),
                    ..identity
                },
            ] {
                assert_eq!(changed.profile(), None, "{changed}");
            }
        }
    }

    #[test]
    fn an_identity_reads_as_text() {
        let options = EmailOptions {
            gmail_dots: true,
            googlemail: false,
            plus_tags: true,
        };
        let identity = Profile::Email(options).identity();
        assert_eq!(
            identity.to_string(),
            "email version 1 with gmail_dots, plus_tags"
        );
        assert_eq!(Profile::Jti.identity().to_string(), "jti version 1");
    }
}
