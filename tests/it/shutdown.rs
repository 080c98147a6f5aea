//! SIGTERM and SIGINT: not ready, what is under way is finished or cut, exit 0, nothing lost.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::{Answer, Bloomgate, Database, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

fn config(drain_timeout: &str) -> String {
    format!(
        "[filters.f]\nprofile = \"text\"\ncapacity = 100000\nfalse_positive_rate = 0.0001\n\
         [limits]\ndrain_timeout = \"{drain_timeout}\"\n"
    )
}

/// Lines that one part of a bulk load takes.
const OTHERS: usize = 2_000;

/// A bulk load whose lines the test sends one by one.
struct Stream {
    lines: mpsc::Sender<String>,
    answer: JoinHandle<reqwest::Result<Response>>,
}

impl Stream {
    fn open(service: &Bloomgate) -> Self {
        let (lines, receiver) = mpsc::channel(1);
        let body = futures_util::stream::unfold(receiver, |mut receiver| async {
            let line: String = receiver.recv().await?;
            Some((Ok::<_, Infallible>(line), receiver))
        });
        let request = service
            .request(Method::POST, "/v1/filters/f/bulk-load")
            .header("content-type", "text/plain")
            .body(reqwest::Body::wrap_stream(body));
        let answer = tokio::spawn(request.send());
        Self { lines, answer }
    }

    /// Sends a line among so many others that the service writes them at once, and waits until it
    /// has.
    async fn send(&self, service: &Bloomgate, line: &str) {
        let others: String = (0..OTHERS).map(|n| format!("{line} {n}\n")).collect();
        self.lines.send(format!("{line}\n{others}")).await.unwrap();
        eventually("the line has arrived", DEADLINE, async || {
            service.check("f", line).await.is_match().then_some(())
        })
        .await;
    }
}

/// Waits until the service says that it wants no traffic, by word or by taking no connection.
async fn until_not_ready(service: &Bloomgate) {
    eventually("the service is not ready", DEADLINE, async || match service
        .request(Method::GET, "/readyz")
        .send()
        .await
    {
        Ok(answer) if answer.status() == 200 => None,
        Ok(answer) => {
            assert_eq!(answer.status(), 503);
            Some(())
        }
        Err(error) => {
            assert!(!error.is_timeout(), "{error}");
            Some(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_load_under_way_is_finished() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut service = Bloomgate::start(&config("20s")).await;
        service.wait_live("f").await;
        let stream = Stream::open(&service);
        stream.send(&service, "before").await;
        service.send(signal);
        until_not_ready(&service).await;
        let Stream { lines, answer } = stream;
        lines.send("after".to_owned()).await.unwrap();
        drop(lines);
        let answer = Answer::read(answer.await.unwrap().unwrap()).await.unwrap();
        assert_eq!(answer.expect_status(200)["accepted"], OTHERS + 2);
        assert_eq!(service.wait_end(DEADLINE).await.code(), Some(0));

        service.restart().await;
        service.wait_live("f").await;
        let verdicts = service
            .check_batch("f", &["before", "after", "absent"])
            .await;
        assert_eq!(verdicts, [true, true, false]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_end_is_cut_at_the_deadline() {
    let mut service = Bloomgate::start(&config("1s")).await;
    service.wait_live("f").await;
    service.add("f", "added").await;
    let stream = Stream::open(&service);
    stream.send(&service, "before").await;
    // An idle connection beside it: this client keeps the one of its last request.
    let begun = Instant::now();
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(900),
        "cut before its time: {took:?}"
    );
    assert!(took < Duration::from_secs(10), "{took:?}");
    let answer = stream.answer.await.unwrap();
    assert!(answer.is_err(), "{answer:?}");

    service.restart().await;
    service.wait_live("f").await;
    assert!(service.check("f", "added").await.is_match());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_service_ends_at_once() {
    let mut service = Bloomgate::start(&config("20s")).await;
    service.wait_live("f").await;
    let begun = Instant::now();
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

/// Adds until the service is gone; gives what was acknowledged.
async fn add_until_gone(service: &Bloomgate, name: &str) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let item = format!("{name} {number}");
        let request = service.request(Method::POST, "/v1/filters/f/add");
        match request.json(&json!({ "item": item })).send().await {
            Ok(answer) if answer.status() == 200 => acknowledged.push(item),
            Ok(answer) => assert_eq!(answer.status(), 503),
            Err(_) => break,
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_up_to_the_end_is_there_for_a_successor_that_starts_at_once() {
    let database = Database::create().await;
    for launch in [Launch::new(), Launch::new().database_url(database.url())] {
        let mut service = launch.config(&config("20s")).start().await;
        let mut acknowledged = Vec::new();
        for (round, signal) in [Signal::TERM, Signal::INT, Signal::TERM]
            .into_iter()
            .enumerate()
        {
            service.wait_live("f").await;
            let stop = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                service.send(signal);
            };
            let (first, second) = (format!("{round} a"), format!("{round} b"));
            let ((), first, second) = tokio::join!(
                stop,
                add_until_gone(&service, &first),
                add_until_gone(&service, &second),
            );
            assert!(!first.is_empty() && !second.is_empty());
            acknowledged.extend(first.into_iter().chain(second));
            assert_eq!(service.wait_end(DEADLINE).await.code(), Some(0));
            service.restart().await;
            service.wait_live("f").await;
            let verdicts = service.check_batch("f", &acknowledged).await;
            assert!(verdicts.iter().all(|is_maybe| *is_maybe));
        }
    }
}
