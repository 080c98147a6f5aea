//! Times as they come over the wire: RFC 3339 with an offset.

use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// The longest text that is looked at: nine digits of a second and an offset take 35 bytes.
const MAX_BYTES: usize = 64;

/// A time as it came.
#[derive(Clone, Copy)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a time of RFC 3339 with an offset, such as 2030-01-01T00:00:00Z")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let malformed = || E::invalid_value(Unexpected::Other("text"), &self);
        if text.len() > MAX_BYTES {
            return Err(malformed());
        }
        text.parse().map(Time).map_err(|_| malformed())
    }
}
