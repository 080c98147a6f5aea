//! Probes: whether a source's `confirm_query` finds what its `query` gives.
//!
//! A few rows of the source are asked for as they are, in lower and in upper case, wherever that is
//! the same item. A query that compares too exactly misses some of them, and is not believed then
//! when it finds nothing. A table without rows tells nothing, and is not believed either.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Service;
use super::askable::Probe;
use super::confirm::has;
use super::declaration::FilterName;
use super::ports::{FilterId, StoreError};
use super::registry::ConfiguredSource;
use crate::filter::profile::Profile;

/// How long a probe may take.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// After a probe that did not find all the next one comes sooner than the next refresh.
const NEXT_ATTEMPT: Duration = Duration::from_secs(10);

/// The longest row that is asked for: a longer one is no item of any profile.
const LONGEST_ROW_BYTES: usize = 4_096;

/// Tries a source's `confirm_query`, now and again after each of its refresh intervals. Ends when the
/// filter is gone, or the source has no such query.
pub(super) async fn keep_probing(
    service: Arc<Service>,
    filter: FilterId,
    name: FilterName,
    source: ConfiguredSource,
    index: usize,
) {
    while let Some(hosted) = service.registry.all().of(filter).cloned() {
        let probed = probe(&source, &hosted.declaration.profile);
        let outcome = match tokio::time::timeout(PROBE_LIMIT, probed).await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(outcome))) => outcome,
            Ok(Err(error)) => {
                tracing::debug!(filter = %name, source = source.name, %error, "not probed");
                Probe::Untried
            }
            Err(_elapsed) => Probe::Untried,
        };
        // A generation that came in meanwhile has a probe of its own to come.
        for generation in hosted.generations() {
            let Some(feed) = generation.sources.get(index) else {
                return;
            };
            let before = feed.askable.was_probed(outcome);
            if outcome == Probe::Misses && before != Probe::Misses {
                tracing::warn!(
                    filter = %name, source = source.name,
                    "confirm_query does not find rows that query gives; no maybe is settled by it"
                );
            }
        }
        tokio::time::sleep(match outcome {
            Probe::Finds => source.refresh_interval,
            Probe::Untried | Probe::Misses => source.refresh_interval.min(NEXT_ATTEMPT),
        })
        .await;
    }
}

/// None where the source has no query to try.
async fn probe(source: &ConfiguredSource, profile: &Profile) -> Result<Option<Probe>, StoreError> {
    let mut outcome = Probe::Untried;
    // Twice, for a row may go between the sample and the question.
    for _attempt in 0..2 {
        if source.adapter.look_up(&[]).await?.is_none() {
            return Ok(None);
        }
        let sample = source.adapter.sample().await?;
        let rows = sample.iter().map(|row| &*row.item);
        let spellings: Vec<_> = rows.flat_map(|row| spellings(profile, row)).collect();
        let Some(found) = source.adapter.look_up(&spellings).await? else {
            return Ok(None);
        };
        if spellings.is_empty() {
            return Ok(Some(Probe::Untried));
        }
        let finds_all = spellings.iter().zip(&found).all(|(spelling, candidates)| {
            let canonical = profile.canonicalize(spelling.as_bytes());
            canonical
                .is_some_and(|canonical| has(candidates, profile, &canonical.bytes, Timestamp::MIN))
        });
        if finds_all && found.len() == spellings.len() {
            return Ok(Some(Probe::Finds));
        }
        outcome = Probe::Misses;
    }
    Ok(Some(outcome))
}

/// A row as it is, in lower and in upper case, as far as these are the same item. Of ASCII alone:
/// rows whose case is another one are never settled by a question.
fn spellings(profile: &Profile, row: &[u8]) -> Vec<String> {
    let (Ok(text), Some(canonical)) = (str::from_utf8(row), profile.canonicalize(row)) else {
        return Vec::new();
    };
    if row.len() > LONGEST_ROW_BYTES {
        return Vec::new();
    }
    let mut spellings = vec![
        text.to_owned(),
        text.to_ascii_lowercase(),
        text.to_ascii_uppercase(),
    ];
    spellings.retain(|spelling| {
        let other = profile.canonicalize(spelling.as_bytes());
        other.is_some_and(|other| other.bytes == canonical.bytes)
    });
    spellings.dedup();
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::profile::EmailOptions;

    #[test]
    fn a_row_is_asked_for_in_each_case_that_is_the_same_item() {
        let email = Profile::Email(EmailOptions::default());
        assert_eq!(
            spellings(&email, b"Ann@Example.COM"),
            ["Ann@Example.COM", "ann@example.com", "ANN@EXAMPLE.COM"]
        );
        assert_eq!(spellings(&Profile::Text, b"Ann"), ["Ann"]);
        assert_eq!(spellings(&Profile::Jti, b"aB-1"), ["aB-1"]);
        let uuid = "6f9619ff-8b86-d011-b42d-00c04fc964ff";
        assert_eq!(
            spellings(&Profile::Jti, uuid.as_bytes()),
            [uuid.to_owned(), uuid.to_ascii_uppercase()]
        );
        assert!(spellings(&email, b"  ").is_empty());
        assert!(spellings(&email, b"\xe9@example.com").is_empty());
    }
}
