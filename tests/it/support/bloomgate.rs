//! The real program, running.

use std::process::ExitStatus;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::launch::Process;
use super::{Answer, Checked, Finished, Launch, eventually};

/// What the program prints in front of its address.
const LISTENS_ON: &str = "bloomgate listens on ";

/// How long the program may take until it listens.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// How long a filter may take until it is live.
const LIVE_DEADLINE: Duration = Duration::from_secs(120);

/// How long one request may take.
const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// A running service with its data directory. Killed on drop; its logs are printed where the test
/// has failed.
pub(crate) struct Bloomgate {
    launch: Launch,
    process: Process,
    base_url: String,
    client: Client,
    key: Option<String>,
    /// The logs of the runs before this one.
    earlier_logs: String,
}

impl Bloomgate {
    /// Starts the service with this configuration.
    pub(crate) async fn start(config: &str) -> Self {
        Launch::new().config(config).start().await
    }

    /// Starts the service with a configuration that it must refuse.
    pub(crate) async fn expect_start_failure(config: &str) -> Finished {
        Launch::new().config(config).expect_start_failure().await
    }

    pub(crate) async fn launch(launch: Launch) -> Self {
        let process = launch.spawn();
        let mut service = Self {
            launch,
            process,
            base_url: String::new(),
            client: Client::builder()
                .timeout(REQUEST_DEADLINE)
                .no_proxy()
                .build()
                .unwrap(),
            key: None,
            earlier_logs: String::new(),
        };
        service.learn_address().await;
        service
    }

    /// Sends this API key with every request from now on.
    pub(crate) fn use_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    /// How it was started.
    pub(crate) fn launched_as(&self) -> &Launch {
        &self.launch
    }

    /// `http://127.0.0.1:PORT`, another after each start.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Everything it has logged, over all starts.
    pub(crate) fn logs(&self) -> String {
        format!("{}{}", self.earlier_logs, self.process.stderr())
    }

    /// What it has printed since the last start.
    pub(crate) fn stdout(&self) -> String {
        self.process.stdout()
    }

    /// A request to this service, with its key, for what the methods below do not cover.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.base_url));
        match &self.key {
            Some(key) => request.header("x-api-key", key),
            None => request,
        }
    }

    /// GET.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Self::answer(self.request(Method::GET, path)).await
    }

    /// POST with a JSON body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        Self::answer(self.request(Method::POST, path).json(body)).await
    }

    /// POST with any body of any media type.
    pub(crate) async fn post_text(
        &self,
        path: &str,
        media_type: &str,
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let request = self.request(Method::POST, path).body(body);
        Self::answer(request.header("content-type", media_type)).await
    }

    /// PUT with a JSON body.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        Self::answer(self.request(Method::PUT, path).json(body)).await
    }

    /// DELETE.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Self::answer(self.request(Method::DELETE, path)).await
    }

    /// Checks one item.
    pub(crate) async fn check(&self, filter: &str, item: &str) -> Checked {
        let path = format!("/v1/filters/{filter}/check");
        let answer = self.post(&path, &json!({ "item": item })).await;
        Checked::from_body(&answer.expect_status(200))
    }

    /// Checks items, and gives for each whether its verdict is `maybe`.
    pub(crate) async fn check_batch(&self, filter: &str, items: &[impl AsRef<str>]) -> Vec<bool> {
        let path = format!("/v1/filters/{filter}/check-batch");
        let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
        let answer = self.post(&path, &json!({ "items": items })).await;
        let body = answer.expect_status(200);
        let verdicts = body["verdicts"].as_array().unwrap();
        assert_eq!(verdicts.len(), items.len());
        let is_maybe = |verdict: &Value| match verdict.as_str() {
            Some("maybe") => true,
            Some("definitely-not") => false,
            _ => panic!("{verdict} is no verdict"),
        };
        verdicts.iter().map(is_maybe).collect()
    }

    /// Adds an item, which must be acknowledged, and gives the answer's body.
    pub(crate) async fn add(&self, filter: &str, item: &str) -> Value {
        let answer = self.try_add(filter, item).await.unwrap();
        answer.expect_status(200)
    }

    /// Adds an item to a service that may end before it answers.
    pub(crate) async fn try_add(&self, filter: &str, item: &str) -> Result<Answer, reqwest::Error> {
        let path = format!("/v1/filters/{filter}/add");
        let request = self.request(Method::POST, &path);
        Answer::read(request.json(&json!({ "item": item })).send().await?).await
    }

    /// POST with a JSON body to a service that may end before it answers.
    pub(crate) async fn try_post(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Answer, reqwest::Error> {
        let request = self.request(Method::POST, path).json(body);
        Answer::read(request.send().await?).await
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process.child)
    }

    /// The description of a filter.
    pub(crate) async fn describe(&self, filter: &str) -> Value {
        let answer = self.get(&format!("/v1/filters/{filter}")).await;
        answer.expect_status(200)
    }

    /// Waits until a filter is live, and gives its description.
    pub(crate) async fn wait_live(&self, filter: &str) -> Value {
        let path = format!("/v1/filters/{filter}");
        eventually(&format!("{filter} is live"), LIVE_DEADLINE, async || {
            let answer = self.get(&path).await;
            let is_live = answer.status == 200 && answer.json()["state"] == "live";
            is_live.then(|| answer.json())
        })
        .await
    }

    /// Rebuilds a filter and waits until the new generation answers. Gives its description.
    pub(crate) async fn rebuild(&self, filter: &str) -> Value {
        let path = format!("/v1/filters/{filter}");
        let before = self.describe(filter).await["generation"].clone();
        let begun = self.post(&format!("{path}/rebuild"), &json!({})).await;
        begun.expect_status(202);
        eventually(&format!("{filter} is rebuilt"), LIVE_DEADLINE, async || {
            let description = self.describe(filter).await;
            let is_new = description["generation"].as_i64() > before.as_i64();
            (is_new && description["state"] == "live").then_some(description)
        })
        .await
    }

    /// From now on [`Self::peak_memory_bytes`] counts anew.
    pub(crate) fn forget_peak_memory(&self) {
        // Source: the Linux manual, proc_pid_clear_refs(5).
        let path = format!("/proc/{}/clear_refs", self.process.child.id());
        std::fs::write(path, "5").unwrap();
    }

    /// The most memory that the process has held at any time since its start, or since that was
    /// forgotten.
    pub(crate) fn peak_memory_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = peak.unwrap().trim().trim_end_matches(" kB");
        kibibytes.parse::<u64>().unwrap() * 1024
    }

    /// Kills the process without warning.
    pub(crate) fn kill_9(&mut self) {
        self.process.child.kill().unwrap();
        self.process.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub(crate) async fn terminate(&mut self, deadline: Duration) -> ExitStatus {
        self.send(Signal::TERM);
        self.wait_end(deadline).await
    }

    /// Sends a signal and waits for nothing.
    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until the process has ended.
    pub(crate) async fn wait_end(&mut self, deadline: Duration) -> ExitStatus {
        eventually("the service ends", deadline, async || {
            self.process.child.try_wait().unwrap()
        })
        .await
    }

    /// Starts the service again on the same data directory, killing it first where it still runs.
    pub(crate) async fn restart(&mut self) {
        self.kill_9();
        self.earlier_logs = self.logs();
        self.process = self.launch.spawn();
        self.learn_address().await;
    }

    /// As [`Self::restart`], with another configuration, environment or flags for the same folder.
    pub(crate) async fn restart_as(&mut self, change: impl FnOnce(Launch) -> Launch) {
        self.kill_9();
        self.launch = change(self.launch.clone());
        self.restart().await;
    }

    async fn learn_address(&mut self) {
        let address = eventually("bloomgate listens", START_DEADLINE, async || {
            let stdout = self.process.stdout();
            let ended = self.process.child.try_wait().unwrap();
            // The last line may be half written.
            let address = stdout
                .split_inclusive('\n')
                .find_map(|line| line.strip_suffix('\n')?.strip_prefix(LISTENS_ON));
            assert!(
                ended.is_none(),
                "bloomgate ended with {ended:?} instead of listening\n{stdout}"
            );
            address.map(|address| address.split_whitespace().collect())
        })
        .await;
        self.base_url = address;
    }

    async fn answer(request: RequestBuilder) -> Answer {
        Answer::read(request.send().await.unwrap()).await.unwrap()
    }
}

impl Drop for Bloomgate {
    fn drop(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        if std::thread::panicking() {
            eprintln!("--- logs of bloomgate\n{}", self.logs());
        }
    }
}
