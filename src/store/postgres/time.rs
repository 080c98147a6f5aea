//! `timestamptz` on the wire: microseconds since 2000-01-01 00:00 UTC, big-endian, with the two
//! ends of the range for `-infinity` and `infinity`.
//!
//! Source: PostgreSQL, `src/include/datatype/timestamp.h`.

use jiff::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef, Postgres};
use sqlx::{Decode, Encode, Type};

use crate::store::rows::unix_us_rounded_up;

/// 2000-01-01 00:00 UTC, in microseconds since 1970.
const EPOCH_UNIX_US: i64 = 946_684_800_000_000;

/// The first moment that PostgreSQL knows, 4714-11-24 BC.
const FIRST_US: i64 = -211_813_488_000_000_000;

const OID: Oid = Oid(1184);
const ARRAY_OID: Oid = Oid(1185);

/// A `timestamptz`, in microseconds since 2000-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PgTime(pub(crate) i64);

impl PgTime {
    /// A moment for the database, rounded up to the microsecond: never too early.
    pub(crate) fn rounded_up(time: Timestamp) -> Self {
        Self((unix_us_rounded_up(time) - EPOCH_UNIX_US).max(FIRST_US))
    }

    /// The moment; none when it lies behind every one that a [`Timestamp`] knows, as `infinity`
    /// does. What lies before all of them becomes the first.
    pub(crate) fn moment(self) -> Option<Timestamp> {
        let first_us = Timestamp::MIN.as_microsecond();
        let us = self.0.saturating_add(EPOCH_UNIX_US);
        if us < first_us {
            return Some(Timestamp::MIN);
        }
        Timestamp::from_microsecond(us).ok()
    }
}

impl Type<Postgres> for PgTime {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(OID)
    }
}

impl PgHasArrayType for PgTime {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(ARRAY_OID)
    }
}

impl Encode<'_, Postgres> for PgTime {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for PgTime {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let bytes = value.as_bytes()?;
        Ok(Self(i64::from_be_bytes(bytes.try_into()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_comes_back_as_it_went() {
        for text in [
            "2000-01-01T00:00:00Z",
            "1969-12-31T23:59:59.999999Z",
            "9999-12-30T22:00:00Z",
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(PgTime::rounded_up(time).moment(), Some(time), "{text}");
        }
        assert_eq!(
            PgTime(0).moment(),
            Some("2000-01-01T00:00:00Z".parse().unwrap())
        );
    }

    #[test]
    fn infinity_is_never_and_minus_infinity_is_long_ago() {
        assert_eq!(PgTime(i64::MAX).moment(), None);
        assert_eq!(PgTime(i64::MIN).moment(), Some(Timestamp::MIN));
        // 12000-01-01, later than any Timestamp: never, rather than too early.
        assert_eq!(PgTime(315_569_520_000_000_000).moment(), None);
    }

    #[test]
    fn no_moment_is_outside_of_what_the_database_takes() {
        assert_eq!(PgTime::rounded_up(Timestamp::MIN), PgTime(FIRST_US));
        assert!(PgTime::rounded_up(Timestamp::MAX).0 < i64::MAX);
    }
}
