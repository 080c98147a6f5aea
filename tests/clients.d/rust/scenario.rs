//! The scenario, by the client of progenitor.

use std::env;
use std::fmt::Display;

use futures_util::TryStreamExt;
use progenitor_client::{Error, ResponseValue};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Request, StatusCode};

mod bloomgate {
    progenitor::generate_api!(
        spec = "openapi-3.0.json",
        interface = Builder,
        inner_type = crate::Change,
        pre_hook = crate::change,
    );
}

use bloomgate::Client;
use bloomgate::types::*;

const FILTER: &str = "signup-emails";
const LARGEST: u64 = (1 << 53) - 1;
const OF_ANOTHER_STORE: &str = "AmFub3RoZXIgc3RvcmUuLgAAAAAAAAAAAQ";

type Answered<T> = Result<ResponseValue<T>, Error<Problem>>;
type Words = Vec<String>;

/// What is made of a request on its way, where the types forbid it.
#[derive(Debug, Clone, Default)]
pub struct Change {
    method: Option<Method>,
    path: Option<&'static str>,
    body: Option<(&'static str, &'static str)>,
}

fn change(change: &Change, request: &mut Request) {
    if let Some(method) = &change.method {
        *request.method_mut() = method.clone();
    }
    if let Some(path) = change.path {
        request.url_mut().set_path(path);
    }
    if let Some((text, media_type)) = change.body {
        *request.body_mut() = Some(text.into());
        let headers = request.headers_mut();
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn connect_with(url: &str, headers: &[(&'static str, &str)], change: Change) -> Client {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect();
    let client = reqwest::Client::builder().default_headers(headers);
    Client::new_with_client(url, client.build().unwrap(), change)
}

fn connect(url: &str, key: &str) -> Client {
    connect_with(url, &[("x-api-key", key)], Change::default())
}

fn say(step: &str, words: Words) {
    let words: Words = words.into_iter().filter(|word| !word.is_empty()).collect();
    println!("{step}: {}", words.join(" "));
}

macro_rules! words {
    ($($word:expr),* $(,)?) => { vec![$($word.to_string()),*] };
}

/// Says what an operation came to: the words of its answer, or of its problem.
async fn step<T>(name: &str, answered: Answered<T>, words: impl FnOnce(&T) -> Words) -> Option<T> {
    match answered {
        Ok(response) => {
            let mut all = words![response.status().as_u16()];
            all.extend(words(&response));
            say(name, all);
            Some(response.into_inner())
        }
        Err(error) => {
            let (status, headers, problem) = refusal(error).await;
            say(name, words_of(status, &headers, &problem));
            None
        }
    }
}

fn nothing<T>(_: &T) -> Words {
    Vec::new()
}

async fn refusal(error: Error<Problem>) -> (StatusCode, HeaderMap, Problem) {
    match error {
        Error::ErrorResponse(response) => {
            let (status, headers) = (response.status(), response.headers().clone());
            (status, headers, response.into_inner())
        }
        // The document does not give this status for the operation.
        Error::UnexpectedResponse(response) => {
            let (status, headers) = (response.status(), response.headers().clone());
            (status, headers, response.json().await.unwrap())
        }
        other => panic!("{other:?}"),
    }
}

fn words_of(status: StatusCode, headers: &HeaderMap, problem: &Problem) -> Words {
    let texts = [&problem.title, &problem.detail, &*problem.request_id];
    assert!(texts.iter().all(|text| !text.is_empty()), "{problem:?}");
    assert_eq!(problem.status, i32::from(status.as_u16()));
    let mut words = words![problem.status, problem.type_];
    words.extend(problem.errors.iter().map(|error| error.pointer.clone()));
    let count = |count: Option<i64>| count.unwrap();
    if let Some(line) = problem.line {
        let (accepted, blank) = (count(problem.accepted), count(problem.blank));
        words.push(format!("line={line} accepted={accepted} blank={blank}"));
    }
    if let Some(bytes) = problem.limit_bytes {
        words.push(format!("limit_bytes={bytes}"));
    }
    if let Some(bytes) = problem.needed_bytes {
        words.push(format!("needed_bytes={bytes}"));
    }
    if let Some(seconds) = headers.get(RETRY_AFTER) {
        words.push(format!("retry_after={}", seconds.to_str().unwrap()));
    }
    words
}

fn declaration(capacity: u64, rate: f64) -> builder::PutFilterRequest {
    PutFilterRequest::builder()
        .profile(Profile::Email)
        .capacity(std::num::NonZeroU64::new(capacity).unwrap())
        .false_positive_rate(rate)
        .profile_options(ProfileOptions {
            plus_tags: Some(true),
            ..ProfileOptions::default()
        })
}

fn ask(item: &str) -> builder::CheckRequest {
    CheckRequest::builder().item(item)
}

async fn check(
    client: &Client,
    filter: &str,
    request: builder::CheckRequest,
) -> Answered<CheckAnswer> {
    client
        .check_item()
        .filter(filter)
        .body(request)
        .send()
        .await
}

fn item(item: &str) -> builder::AddRequest {
    AddRequest::builder().item(item)
}

async fn add(client: &Client, filter: &str, request: builder::AddRequest) -> Answered<AddAnswer> {
    client.add_item().filter(filter).body(request).send().await
}

fn optional(word: Option<impl Display>) -> String {
    word.map(|word| word.to_string()).unwrap_or_default()
}

fn verdict(answer: &CheckAnswer) -> Words {
    let confirmed = answer.confirmed.filter(|confirmed| *confirmed);
    words![
        answer.verdict,
        optional(answer.reason),
        optional(confirmed.map(|_| "confirmed"))
    ]
}

fn verdicts(answer: &CheckManyAnswer) -> Words {
    let mut words = words![answer.verdict];
    for result in &answer.results {
        words.push(result.filter.clone());
        words.extend(verdict(result));
    }
    words
}

fn declared(answer: &FilterDescription) -> Words {
    let plus_tags = answer.profile_options.plus_tags.filter(|set| *set);
    let plus_tags = optional(plus_tags.map(|_| "plus_tags"));
    words![
        answer.profile,
        answer.capacity,
        answer.declared_by,
        plus_tags
    ]
}

fn removed(answer: &RemoveAnswer) -> Words {
    words![answer.removed, answer.still_in_source]
}

fn first_of<'t>(needle: &str, text: &'t str) -> &'t str {
    let begin = text.find(needle).unwrap();
    let rest = &text[begin + needle.len()..];
    let end = rest.find(|character: char| !character.is_ascii_digit());
    &text[begin..begin + needle.len() + end.unwrap_or(rest.len())]
}

struct Scenario {
    url: String,
    key: String,
    client: Client,
}

impl Scenario {
    async fn check(&self, request: builder::CheckRequest) -> Answered<CheckAnswer> {
        check(&self.client, FILTER, request).await
    }

    async fn load(&self, lines: &[&str]) -> Answered<BulkLoadAnswer> {
        let body = lines.join("\n");
        self.client
            .bulk_load()
            .filter(FILTER)
            .body(body)
            .send()
            .await
    }

    async fn add_batch(&self, items: Vec<BatchItem>) -> Answered<AddBatchAnswer> {
        let batch = AddBatchRequest::builder().items(items);
        self.client
            .add_items()
            .filter(FILTER)
            .body(batch)
            .send()
            .await
    }

    async fn check_many(&self, checks: &[(&str, &str)]) -> Answered<CheckManyAnswer> {
        let checks: Vec<FilterCheck> = checks
            .iter()
            .map(|(filter, item)| FilterCheck::builder().filter(*filter).item(*item))
            .map(|check| check.try_into().unwrap())
            .collect();
        let request = CheckManyRequest::builder().checks(checks);
        self.client.check_many().body(request).send().await
    }

    async fn remove(&self) -> Answered<RemoveAnswer> {
        let request = RemoveRequest::builder().item("ann@x.com");
        self.client
            .remove_item()
            .filter(FILTER)
            .body(request)
            .send()
            .await
    }

    async fn put(
        &self,
        filter: &str,
        declaration: builder::PutFilterRequest,
    ) -> Answered<FilterDescription> {
        self.client
            .put_filter()
            .filter(filter)
            .body(declaration)
            .send()
            .await
    }

    async fn describe(&self, client: &Client) -> Answered<FilterDescription> {
        client.describe_filter().filter(FILTER).send().await
    }

    async fn delete(&self, filter: &str) -> Answered<()> {
        self.client.delete_filter().filter(filter).send().await
    }

    async fn authorize(&self, name: &str, headers: &[(&'static str, &str)]) -> Answered<()> {
        let gateway = connect_with(&self.url, headers, Change::default());
        gateway.authorize().name(name).send().await
    }

    fn raw(&self, change: Change) -> Client {
        connect_with(&self.url, &[("x-api-key", &self.key)], change)
    }

    async fn operations(&self) {
        let client = &self.client;
        let probe = client.get_liveness().send().await.unwrap();
        say("live", words![probe.status().as_u16(), probe.status]);
        let probe = client.get_readiness().send().await.unwrap();
        say("ready", words![probe.status().as_u16(), probe.status]);
        step(
            "make",
            self.put(FILTER, declaration(10_000, 0.01)).await,
            declared,
        )
        .await;
        step(
            "make again",
            self.put(FILTER, declaration(10_000, 0.01)).await,
            declared,
        )
        .await;
        let filter = |answer: &AddAnswer| words![answer.filter];
        step(
            "add",
            add(client, FILTER, item("ann+news@x.com")).await,
            filter,
        )
        .await;
        let expiry: chrono::DateTime<chrono::Utc> = "2099-01-01T00:00:00Z".parse().unwrap();
        let until = item("cy@x.com").expires_at(expiry);
        step("add until", add(client, FILTER, until).await, filter).await;
        let everywhere = item("dee@x.com").wait(Wait::All);
        step(
            "add everywhere",
            add(client, FILTER, everywhere).await,
            |answer| {
                words![if answer.visible == Some(true) {
                    "visible"
                } else {
                    "not visible"
                }]
            },
        )
        .await;
        let bob = BatchItem::builder().item("bob@x.com").try_into().unwrap();
        let eve = BatchItem::builder().item("eve@x.com").expires_at(expiry);
        let batch = vec![bob, eve.try_into().unwrap()];
        step("add batch", self.add_batch(batch).await, |answer| {
            words![answer.accepted]
        })
        .await;
        // The media type is text/plain here: a line is an item as it stands.
        let loaded = self.load(&["joe@x.com", "", "zoe@x.com"]).await;
        let loaded = step("bulk load", loaded, |answer| {
            words![answer.accepted, answer.blank]
        })
        .await;

        step("check", self.check(ask("ANN@x.com")).await, verdict).await;
        let since = |watermark: &str| {
            let watermark: CheckRequestMinWatermark = watermark.parse().unwrap();
            ask("ann@x.com").min_watermark(watermark)
        };
        let reached = since(&loaded.unwrap().watermark);
        step("check reached", self.check(reached).await, verdict).await;
        step(
            "check behind",
            self.check(since(OF_ANOTHER_STORE)).await,
            verdict,
        )
        .await;
        step(
            "check absent",
            self.check(ask("nobody@x.com")).await,
            verdict,
        )
        .await;
        step(
            "check confirmed",
            self.check(ask("ann@x.com").confirm(true)).await,
            verdict,
        )
        .await;
        let items = ["bob@x.com", "nobody@x.com", "zoe@x.com"].map(str::to_owned);
        let batch = CheckBatchRequest::builder().items(items.to_vec());
        let checked = client.check_items().filter(FILTER).body(batch).send().await;
        step("check batch", checked, |answer| {
            answer.verdicts.iter().map(ToString::to_string).collect()
        })
        .await;
        let checks = [(FILTER, "bob@x.com"), ("revoked-jti", "nothing")];
        step("check many", self.check_many(&checks).await, verdicts).await;
        step("remove", self.remove().await, removed).await;
        step("remove again", self.remove().await, removed).await;
        step(
            "check removed",
            self.check(ask("ann@x.com").confirm(true)).await,
            verdict,
        )
        .await;

        step("list", client.list_filters().send().await, |answer| {
            answer
                .filters
                .iter()
                .map(|description| description.filter.clone())
                .collect()
        })
        .await;
        step("describe", self.describe(client).await, |answer| {
            let mut words = words![answer.state];
            words.extend(declared(answer));
            let measured = optional(answer.measured_fp_rate);
            words.extend(words![answer.false_positive_rate, measured]);
            words.extend(words![answer.estimated_cardinality, answer.over_capacity]);
            words
        })
        .await;
        let rebuilt = client.rebuild_filter().filter(FILTER).send().await;
        step("rebuild", rebuilt, |answer| {
            words![answer.filter, answer.state]
        })
        .await;
        let capacity = std::num::NonZeroU64::new(1_000_000_000_000).unwrap();
        let plan = client
            .plan_filter()
            .capacity(capacity)
            .false_positive_rate(0.01);
        step("plan", plan.send().await, |answer| {
            words![answer.bit_count, answer.hash_count, answer.memory_bytes]
        })
        .await;
        let metrics = client.get_metrics().send().await.unwrap();
        let status = metrics.status().as_u16();
        let text: Vec<_> = metrics.into_inner_stream().try_collect().await.unwrap();
        let text = String::from_utf8(text.concat()).unwrap();
        say(
            "metrics",
            words![status, first_of("bloomgate_checks_total", &text)],
        );
    }

    async fn gateways(&self) {
        let key = ("x-api-key", self.key.as_str());
        let bearer = format!("Bearer {}", variable("BLOOMGATE_TOKEN"));
        let bearer = ("authorization", bearer.as_str());
        step(
            "token",
            self.authorize("api", &[key, bearer]).await,
            nothing,
        )
        .await;
        let revoked = add(&self.client, "revoked-jti", item("token-of-ann")).await;
        step("revoke", revoked, |answer| words![answer.filter]).await;
        step(
            "token revoked",
            self.authorize("api", &[key, bearer]).await,
            nothing,
        )
        .await;
        step(
            "token missing",
            self.authorize("api", &[key]).await,
            nothing,
        )
        .await;
        step(
            "token undecided",
            self.authorize("nowhere", &[key, bearer]).await,
            nothing,
        )
        .await;
        step(
            "gateway unknown",
            self.authorize("api", &[bearer]).await,
            nothing,
        )
        .await;
    }

    async fn refusals(&self) {
        let client = &self.client;
        let checker = connect(&self.url, &variable("BLOOMGATE_CHECK_KEY"));
        let ann = || ask("ann@x.com");
        let raw_body = |text, media_type| {
            self.raw(Change {
                body: Some((text, media_type)),
                ..Change::default()
            })
        };
        let malformed = raw_body("}", "application/json");
        step(
            "malformed body",
            check(&malformed, FILTER, ann()).await,
            nothing,
        )
        .await;
        let nobody = connect_with(&self.url, &[], Change::default());
        step("no key", check(&nobody, FILTER, ann()).await, nothing).await;
        step(
            "scope",
            add(&checker, FILTER, item("ann@x.com")).await,
            nothing,
        )
        .await;
        step(
            "other filter",
            check(&checker, "registered-email", ann()).await,
            nothing,
        )
        .await;
        step(
            "unknown filter",
            check(client, "nowhere", ann()).await,
            nothing,
        )
        .await;
        let unknown = self.check_many(&[("nowhere", "ann@x.com")]).await;
        step("unknown filter of many", unknown, nothing).await;
        let elsewhere = self.raw(Change {
            path: Some("/v2/filters"),
            ..Change::default()
        });
        step("no such path", self.describe(&elsewhere).await, nothing).await;
        let patch = self.raw(Change {
            method: Some(Method::PATCH),
            ..Change::default()
        });
        step("no such method", self.describe(&patch).await, nothing).await;
        step(
            "declared by config",
            self.delete("revoked-jti").await,
            nothing,
        )
        .await;
        let otherwise = self.put(FILTER, declaration(20_000, 0.01)).await;
        step("declared otherwise", otherwise, nothing).await;
        let long: BatchItem = BatchItem::builder()
            .item("x".repeat(4_000))
            .try_into()
            .unwrap();
        step(
            "too large",
            self.add_batch(vec![long; 3_000]).await,
            nothing,
        )
        .await;
        let of_text = raw_body("ann@x.com", "text/plain");
        step("media type", check(&of_text, FILTER, ann()).await, nothing).await;
        step(
            "rate out of range",
            self.put("absurd", declaration(1_000, 2.0)).await,
            nothing,
        )
        .await;
        let malformed = ann().min_watermark("?".parse::<CheckRequestMinWatermark>().unwrap());
        step("malformed watermark", self.check(malformed).await, nothing).await;
        step("blank item", self.check(ask(" ")).await, nothing).await;
        let batch =
            ["ann@x.com", " "].map(|item| BatchItem::builder().item(item).try_into().unwrap());
        step(
            "blank item of batch",
            self.add_batch(batch.to_vec()).await,
            nothing,
        )
        .await;
        step(
            "line refused",
            self.load(&["joe@x.com", "\0"]).await,
            nothing,
        )
        .await;
        let absurd = self
            .put("absurd", declaration(1_000_000_000_000, 0.01))
            .await;
        step("over memory", absurd, nothing).await;
        let absurd = self.put("absurd", declaration(LARGEST, 0.01)).await;
        let (status, _, problem) = refusal(absurd.unwrap_err()).await;
        say(
            "largest number",
            words![status.as_u16(), first_of("found ", &problem.detail)],
        );
        let slow = connect(&self.url, &variable("BLOOMGATE_SLOW_KEY"));
        let mut listed = slow.list_filters().send().await;
        for _ in 0..100 {
            if listed.is_ok() {
                listed = slow.list_filters().send().await;
            }
        }
        step("too many requests", listed, nothing).await;
        step("delete", self.delete(FILTER).await, nothing).await;
        step("describe deleted", self.describe(client).await, nothing).await;
    }
}

async fn store_down(key: &str) {
    let client = connect(&variable("BLOOMGATE_URL_WITHOUT_STORE"), key);
    let Err(Error::ErrorResponse(probe)) = client.get_readiness().send().await else {
        panic!("a service without its store is ready");
    };
    say(
        "store down, ready",
        words![probe.status().as_u16(), probe.status],
    );
    let checked = check(&client, "revoked-jti", ask("token-of-ann")).await;
    step("store down, check", checked, verdict).await;
    let added = add(&client, "revoked-jti", item("token-of-ann")).await;
    step("store down, add", added, nothing).await;
    let made = client
        .put_filter()
        .filter(FILTER)
        .body(declaration(10_000, 0.01));
    step("store down, make", made.send().await, nothing).await;
}

async fn largest_count(key: &str) {
    let client = connect(&variable("BLOOMGATE_URL_OF_TOMORROW"), key);
    let described = client.describe_filter().filter("revoked-jti").send().await;
    step("largest count", described, |answer| {
        words![answer.generation]
    })
    .await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (url, key) = (variable("BLOOMGATE_URL"), variable("BLOOMGATE_KEY"));
    let client = connect(&url, &key);
    let scenario = Scenario { url, key, client };
    scenario.operations().await;
    scenario.gateways().await;
    scenario.refusals().await;
    store_down(&scenario.key).await;
    largest_count(&scenario.key).await;
}
