//! What a bulk load says of itself when a commit in its middle fails.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::service::stand_in::{StandIn, service_on};

#[tokio::test]
async fn what_is_accepted_is_a_prefix_of_the_stream_also_when_a_commit_in_the_middle_fails() {
    for failing_commit in 1..=4 {
        let store = Arc::new(StandIn {
            failing_commit,
            ..StandIn::default()
        });
        let (service, writer) = service_on(&store).await;
        let stop = CancellationToken::new();
        let writing = tokio::spawn(writer.run(stop.clone()));

        let mut load = service.bulk_load("f").await.unwrap();
        let stream: Vec<String> = (0..PART_ITEMS * 7 / 2).map(|n| n.to_string()).collect();
        for item in &stream {
            if load.push(item, Terms::default()).await.is_err() {
                break;
            }
        }
        let _ = load.finish().await;

        let accepted = usize::try_from(load.accepted()).unwrap();
        assert_eq!(
            accepted,
            PART_ITEMS * usize::try_from(failing_commit - 1).unwrap()
        );
        assert_eq!(*store.items.lock().unwrap(), stream[..accepted]);
        drop(load);
        stop.cancel();
        writing.await.unwrap();
    }
}
