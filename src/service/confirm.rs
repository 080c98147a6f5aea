//! Confirmation: a `maybe` is looked up, in the store and in every source at once, and settled where
//! that can be.
//!
//! Invariants:
//!
//! * what was found anywhere is there, and stays `maybe`, but for a token that was issued after the time
//!   up to which every row that was found revokes;
//! * `definitely-not` is said only when the store and every source have answered that the item is
//!   not there, or not for that token, nothing that was acknowledged can be missing from the store, and
//!   the filter is declared as this process knows it;
//! * a look-up that cannot be made, or takes too long, changes nothing: the `maybe` stands;
//! * the look-ups at a time are bounded, and whoever is past the bound does not wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Service;
use super::generation::Generation;
use super::ports::{Candidates, Presence, StoreError};
use super::registry::{ConfiguredSource, Hosted};
use super::terms::Revoked;
use super::watermark::Watermark;
use crate::filter::profile::Profile;

/// How long a look-up may take before the `maybe` stands.
pub(super) const CONFIRM_LIMIT: Duration = Duration::from_secs(2);

/// What came of the matches of a filter that were looked up.
#[derive(Debug, Default)]
pub struct Confirmations {
    settled: AtomicU64,
    absent: AtomicU64,
}

impl Confirmations {
    /// It was settled whether the item of a match is there at all, for whichever of its tokens: the bits
    /// know of no times, and are not at fault where they match for a token that is not revoked.
    pub fn settled(&self, is_there: bool) {
        self.absent
            .fetch_add(u64::from(!is_there), Ordering::Relaxed);
        self.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// The share of them that were false; none before the first.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of what was counted")]
    pub fn measured_fp_rate(&self) -> Option<f64> {
        let settled = self.settled.load(Ordering::Relaxed);
        let absent = self.absent.load(Ordering::Relaxed);
        (settled > 0).then(|| absent as f64 / settled as f64)
    }
}

/// An item that is looked up.
#[derive(Clone, Copy)]
pub(super) struct Question<'q> {
    /// As it came.
    pub(super) item: &'q str,
    /// Its canonical bytes.
    pub(super) canonical: &'q [u8],
    /// When the token that bears it was issued, as far as that is known.
    pub(super) issued_at: Option<Timestamp>,
    /// What the store must have reached.
    pub(super) min_watermark: Option<Watermark>,
}

impl Service {
    /// Whether an item is in the set, and for which of its tokens; none where that cannot be asked now, or
    /// is not answered until then.
    pub(super) async fn look_up(
        &self,
        hosted: &Hosted,
        question: Question<'_>,
        until: Instant,
    ) -> Option<Presence> {
        let generation = hosted.generation.as_deref()?;
        let _permit = self.confirms.try_acquire().ok()?;
        let store = self.ask_store(hosted, generation, question).boxed();
        let sources = (0..hosted.sources.len())
            .map(|index| self.ask_source(hosted, generation, index, question).boxed());
        let asked: FuturesUnordered<_> = std::iter::once(store).chain(sources).collect();
        let told = told(asked, question.issued_at);
        tokio::time::timeout_at(until, told).await.ok()
    }

    /// Whether a source has an item, or cannot rule it out.
    pub(super) async fn may_be_in_source(&self, hosted: &Hosted, question: Question<'_>) -> bool {
        let (Some(generation), Ok(_permit)) = (&hosted.generation, self.confirms.try_acquire())
        else {
            return !hosted.sources.is_empty();
        };
        let asked: FuturesUnordered<_> = (0..hosted.sources.len())
            .map(|index| self.ask_source(hosted, generation, index, question).boxed())
            .collect();
        let told = told(asked, question.issued_at);
        let told = tokio::time::timeout(CONFIRM_LIMIT, told).await;
        !told.is_ok_and(|told| told.is_there() == Some(false))
    }

    async fn ask_store(
        &self,
        hosted: &Hosted,
        generation: &Generation,
        question: Question<'_>,
    ) -> Presence {
        let (declaration, leeway) = (&generation.declaration, self.settings.expiry_leeway);
        let asked = self
            .store
            .look_up(generation.filter, declaration, question.canonical, leeway);
        let found = match asked.await {
            Ok(found) => found,
            Err(error) => return unsettled(hosted, &error),
        };
        // Places of another timeline than this process follows: the store may have lost what was
        // acknowledged, and the next poll will tell.
        let is_followed = self.following() == Some(found.as_of.timeline);
        let reaches = question
            .min_watermark
            .is_none_or(|Watermark(at)| found.as_of.reaches(at.timeline, at.place));
        let may_settle =
            is_followed && reaches && hosted.outdated.is_none() && generation.store_has_all();
        Presence {
            is_all: found.presence.is_all && may_settle,
            ..found.presence
        }
    }

    async fn ask_source(
        &self,
        hosted: &Hosted,
        generation: &Generation,
        index: usize,
        question: Question<'_>,
    ) -> Presence {
        let (source, feed) = match (hosted.sources.get(index), generation.sources.get(index)) {
            (Some(source), Some(feed)) => (source, feed),
            (None | Some(_), None) | (None, Some(_)) => return Presence::UNSETTLED,
        };
        let found = match look_up(source, question).await {
            Ok(found) => found,
            Err(error) => return unsettled(hosted, &error),
        };
        let may_settle = feed.askable.settles(question.canonical);
        let is_there = |candidates: &Candidates| {
            let forget_before = forget_before(candidates, self.settings.expiry_leeway);
            has(
                candidates,
                &generation.declaration.profile,
                question.canonical,
                forget_before,
            )
        };
        let Some(found) = found else {
            return Presence::UNSETTLED;
        };
        Presence {
            // A source knows of no times.
            found: found.iter().any(is_there).then_some(Revoked::All),
            is_all: may_settle && found.iter().all(|of| of.are_all),
        }
    }
}

/// Waits for the first by whom the token is revoked, or for all.
async fn told<F: Future<Output = Presence>>(
    mut asked: FuturesUnordered<F>,
    issued_at: Option<Timestamp>,
) -> Presence {
    let mut told = Presence {
        found: None,
        is_all: true,
    };
    while let Some(presence) = asked.next().await {
        told = told.joined(presence);
        if told.is_revoked(issued_at) == Some(true) {
            break;
        }
    }
    told
}

/// The rows of a source that may be the item: asked for as it came, and in its canonical spelling,
/// for the item may be written more oddly than the row.
async fn look_up(
    source: &ConfiguredSource,
    question: Question<'_>,
) -> Result<Option<Vec<Candidates>>, StoreError> {
    let mut spellings = vec![question.item.to_owned()];
    if let Ok(canonical) = str::from_utf8(question.canonical)
        && canonical != question.item
    {
        spellings.push(canonical.to_owned());
    }
    source.adapter.look_up(&spellings).await
}

/// Whether one of the candidates is the item and has not expired before that moment.
pub(super) fn has(
    candidates: &Candidates,
    profile: &Profile,
    canonical: &[u8],
    forget_before: Timestamp,
) -> bool {
    candidates.rows.iter().any(|row| {
        let is_kept = row
            .expires_at
            .is_none_or(|expires| expires >= forget_before);
        let is_the_item = || {
            let row = profile.canonicalize(&row.item);
            row.is_some_and(|row| *row.bytes == *canonical)
        };
        is_kept && is_the_item()
    })
}

fn forget_before(candidates: &Candidates, leeway: SignedDuration) -> Timestamp {
    let moment = candidates.database_now.checked_sub(leeway);
    moment.unwrap_or(Timestamp::MIN)
}

fn unsettled(hosted: &Hosted, error: &StoreError) -> Presence {
    crate::telemetry::record_store_error();
    // For each check that asks for it: no louder than this.
    tracing::debug!(filter = %hosted.name, %error, "a maybe was not settled");
    Presence::UNSETTLED
}
