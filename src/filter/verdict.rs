//! What may be said of an item: [`Verdict`], and why it may be no more than that: [`Reason`].
//!
//! A wrong `definitely-not` is a security breach and a `maybe` too many costs one look-up, so
//! there is no third answer. This module must not know how a verdict is reached.

/// The answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The item was never added.
    DefinitelyNot,
    /// The item may have been added; only a look-up can tell.
    Maybe(Reason),
}

/// Why a verdict is `maybe`, in order of precedence: the first that holds is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The filter has never been complete since this process started.
    Loading,
    /// The filter has not followed its store or a source within the bound, its declaration is out
    /// of date, or its cursor may no longer hold.
    Stale,
    /// The filter has not reached the watermark that the check asks for.
    Behind,
    /// All bits of the item are set.
    Match,
}

impl Verdict {
    /// The word for it: `definitely-not` or `maybe`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DefinitelyNot => "definitely-not",
            Self::Maybe(_) => "maybe",
        }
    }

    /// Why it is `maybe`; none exactly when it is `definitely-not`.
    #[must_use]
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::DefinitelyNot => None,
            Self::Maybe(reason) => Some(reason),
        }
    }
}

impl Reason {
    /// Every reason, in order of precedence.
    pub const ALL: [Self; 4] = [Self::Loading, Self::Stale, Self::Behind, Self::Match];

    /// The word for it: `loading`, `stale`, `behind` or `match`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Stale => "stale",
            Self::Behind => "behind",
            Self::Match => "match",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_given_exactly_when_the_verdict_is_maybe() {
        assert_eq!(Verdict::DefinitelyNot.as_str(), "definitely-not");
        assert_eq!(Verdict::DefinitelyNot.reason(), None);
        for reason in Reason::ALL {
            assert_eq!(Verdict::Maybe(reason).as_str(), "maybe");
            assert_eq!(Verdict::Maybe(reason).reason(), Some(reason));
        }
    }

    #[test]
    fn reasons_stand_in_order_of_precedence() {
        assert!(Reason::ALL.is_sorted());
        assert_eq!(
            Reason::ALL.map(Reason::as_str),
            ["loading", "stale", "behind", "match"]
        );
    }
}
