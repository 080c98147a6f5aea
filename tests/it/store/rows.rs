//! What the tests of this topic share: rows to add, and a sink that keeps what it is given.

use std::collections::BTreeMap;
use std::time::Duration;

use bloomgate::filter::profile::Profile;
use bloomgate::service::cursor::Cursor;
use bloomgate::service::declaration::{Declaration, DeclaredBy, FilterName};
use bloomgate::service::ports::{
    ChangeSink, FilterId, NewRow, Polled, RowSink, Store, StoreError, StoredFilter,
};
use bloomgate::service::terms::Terms;
use bloomgate::store::{PostgresStore, PostgresStoreOptions};
use jiff::Timestamp;
use uuid::Uuid;

/// The rows of a load.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) expected: u64,
    pub(super) database_now: Option<Timestamp>,
    pub(super) null_rows: u64,
    pub(super) found: Vec<(Vec<u8>, Option<Timestamp>)>,
}

impl RowSink for Rows {
    fn begin(&mut self, rows_expected: u64, database_now: Timestamp) {
        self.expected = rows_expected;
        self.database_now = Some(database_now);
    }

    fn row(&mut self, item: Option<&[u8]>, expires_at: Option<Timestamp>) {
        match item {
            None => self.null_rows += 1,
            Some(item) => self.found.push((item.to_vec(), expires_at)),
        }
    }
}

impl Rows {
    /// The items, in order.
    pub(super) fn items(&self) -> Vec<String> {
        let mut items: Vec<_> = self
            .found
            .iter()
            .map(|(item, _)| String::from_utf8(item.clone()).unwrap())
            .collect();
        items.sort();
        items
    }

    pub(super) fn expiries(&self) -> BTreeMap<String, Option<Timestamp>> {
        self.found
            .iter()
            .map(|(item, expiry)| (String::from_utf8(item.clone()).unwrap(), *expiry))
            .collect()
    }
}

/// A row that never expires.
pub(super) fn row(filter: FilterId, item: &str) -> NewRow {
    bytes_row(filter, item.as_bytes())
}

pub(super) fn bytes_row(filter: FilterId, item: &[u8]) -> NewRow {
    NewRow {
        filter,
        item: item.into(),
        canonical: item.into(),
        profile_version: 1,
        terms: Terms::default(),
    }
}

/// A row that expires so many seconds after 1970.
pub(super) fn expiring(filter: FilterId, item: &str, expires_s: i64) -> NewRow {
    NewRow {
        terms: Terms {
            expires_at: Some(moment(expires_s)),
            revoke_issued_until: None,
        },
        ..row(filter, item)
    }
}

pub(super) fn moment(unix_s: i64) -> Timestamp {
    Timestamp::from_second(unix_s).unwrap()
}

pub(super) fn filter_name(name: &str) -> FilterName {
    FilterName::parse(name).unwrap()
}

pub(super) fn a_declaration() -> Declaration {
    Declaration::new(Profile::Text, 1_000, 0.01).unwrap()
}

/// Declares a filter by a PUT.
pub(super) async fn declared(store: &dyn Store, name: &str) -> StoredFilter {
    store
        .declare(&filter_name(name), &a_declaration(), DeclaredBy::Api)
        .await
        .unwrap()
        .unwrap()
}

/// What a poll brings.
#[derive(Debug, Default)]
pub(super) struct Changes(pub(super) Vec<(FilterId, Vec<u8>)>);

impl ChangeSink for Changes {
    fn change(&mut self, filter: FilterId, item: &[u8]) {
        self.0.push((filter, item.to_vec()));
    }
}

/// Polls without a look at what it brings.
pub(super) async fn polled(store: &dyn Store) -> Result<Polled, StoreError> {
    store.poll(None, &mut Changes::default()).await
}

/// The items that were written since a cursor, in order, and the cursor of the moment.
pub(super) async fn followed(
    store: &dyn Store,
    after: &Cursor,
) -> Result<(Vec<String>, Cursor), StoreError> {
    let mut changes = Changes::default();
    let polled = store.poll(Some(after), &mut changes).await?;
    let items = changes.0.into_iter();
    let mut items: Vec<_> = items
        .map(|(_, item)| String::from_utf8(item).unwrap())
        .collect();
    items.sort();
    Ok((items, polled.cursor))
}

pub(super) async fn loaded(store: &dyn Store, filter: FilterId) -> Rows {
    let mut rows = Rows::default();
    store.load(filter, None, &mut rows).await.unwrap();
    assert_eq!(rows.expected, rows.found.len() as u64);
    rows
}

pub(super) fn unknown_filter() -> FilterId {
    FilterId(Uuid::new_v4())
}

/// A store that is not yet open.
pub(super) fn postgres_at(url: &str) -> PostgresStore {
    PostgresStore::new(&postgres_options(url)).unwrap()
}

pub(super) fn postgres_options(url: &str) -> PostgresStoreOptions {
    PostgresStoreOptions {
        url: url.into(),
        max_staleness: Duration::from_secs(30),
        max_connections: 8,
    }
}

/// A store that is open.
pub(super) async fn open_postgres(url: &str) -> PostgresStore {
    let store = postgres_at(url);
    store.open().await.unwrap();
    store
}

/// Deletes every row of deleted filters.
pub(super) async fn purge_all(store: &dyn Store) {
    while store.purge().await.unwrap() {}
}
