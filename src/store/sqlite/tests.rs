//! What needs the connection within: a file that may not grow.

use jiff::Timestamp;

use super::*;
use crate::filter::profile::Profile;
use crate::service::terms::Terms;

/// Counts the rows of a load.
#[derive(Default)]
struct Rows(u64);

impl RowSink for Rows {
    fn begin(&mut self, _rows_expected: u64, _database_now: Timestamp) {}

    fn row(&mut self, _item: Option<&[u8]>, _expires_at: Option<Timestamp>) {
        self.0 += 1;
    }
}

/// Takes changes that nobody looks at.
struct NoChanges;

impl ChangeSink for NoChanges {
    fn change(&mut self, _filter: FilterId, _item: &[u8]) {}
}

fn rows(filter: FilterId, items: std::ops::Range<u32>) -> Vec<NewRow> {
    items
        .map(|item| NewRow {
            filter,
            item: item.to_be_bytes().into(),
            canonical: item.to_be_bytes().into(),
            profile_version: 1,
            terms: Terms::default(),
        })
        .collect()
}

/// Lets the file grow to so many pages and no further: the same code as for a full disk.
async fn limit_pages(store: &SqliteStore, pages: &'static str) {
    let mut writer = store.writer().await.unwrap();
    sqlx::query(pages)
        .execute(writer.connection())
        .await
        .unwrap();
}

async fn rows_loaded(store: &SqliteStore, filter: FilterId) -> u64 {
    let mut rows = Rows::default();
    store.load(filter, None, &mut rows).await.unwrap();
    rows.0
}

#[tokio::test]
async fn a_full_disk_fails_the_add_and_loses_nothing_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::new(folder.path());
    store.open().await.unwrap();
    let declaration = Declaration::new(Profile::Text, 1_000, 0.01).unwrap();
    let name = FilterName::parse("f").unwrap();
    let declared = store.declare(&name, &declaration, DeclaredBy::Api).await;
    let filter = declared.unwrap().unwrap().id;
    let before = store.add(&rows(filter, 0..1)).await.unwrap();

    limit_pages(&store, "PRAGMA max_page_count = 40").await;
    let many = rows(filter, 1..10_001);
    let error = store.add(&many).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("free space"), "{error}");
    assert_eq!(rows_loaded(&store, filter).await, 1);

    limit_pages(&store, "PRAGMA max_page_count = 1000000").await;
    let after = store.add(&many).await.unwrap();
    assert!(after.place > before.place);
    assert_eq!(rows_loaded(&store, filter).await, 10_001);
}

#[tokio::test]
async fn an_add_that_is_given_up_half_way_is_whole_or_not_there_and_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::new(folder.path());
    store.open().await.unwrap();
    let declaration = Declaration::new(Profile::Text, 1_000, 0.01).unwrap();
    let name = FilterName::parse("f").unwrap();
    let declared = store.declare(&name, &declaration, DeclaredBy::Api).await;
    let filter = declared.unwrap().unwrap().id;
    let many = rows(filter, 1..5_001);
    for patience_us in [0, 300, 3_000, 10_000, 30_000] {
        let patience = Duration::from_micros(patience_us);
        let _ = tokio::time::timeout(patience, store.add(&many)).await;
        let there = rows_loaded(&store, filter).await;
        assert!(there == 0 || there == 5_000 || there == 5_001, "{there}");
    }
    store.add(&rows(filter, 0..1)).await.unwrap();
    store.poll(None, &mut NoChanges).await.unwrap();
    assert!(matches!(rows_loaded(&store, filter).await, 1 | 5_001));
}
