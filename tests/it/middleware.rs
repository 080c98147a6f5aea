//! The middleware of `clients`, as they are really run: whatever bloomgate, its database and the network do,
//! who comes with a revoked token does not pass, and who comes with another one does.

mod application;
mod front;
mod garbage;

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustix::process::Signal;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use self::application::Application;
use self::front::{Act, Front, Seen};
use self::garbage::CLEAN;
use crate::authz::token;
use crate::support::{Bloomgate, Conduct, Database, Launch, Proxy, eventually, free_port};

/// Long enough for whatever must come on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Longer than the samples' own limits, so that a busy machine is not taken for a slow bloomgate.
const TRY: Duration = Duration::from_millis(800);
const TOTAL: Duration = Duration::from_millis(1600);

/// What an answer may take beyond the limit, the application's own work included.
const SLACK: Duration = Duration::from_millis(1500);

const KEY: &str = "bg_key-of-the-middleware";
const ADMIN_KEY: &str = "bg_admin-key-of-the-tests";

/// Part of every id, which no log and no URL may hold.
const MARK: &str = "zq7mark";
const LIVE: &str = "zq7mark-live";
const STOLEN: &str = "zq7mark-stolen";

const INVALID: &str = "Bearer error=\"invalid_token\"";

/// Who has to say of a token that was not revoked that it may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Filter,
    LookUp,
}

fn config() -> String {
    let digest = |key: &str| hex::encode(Sha256::digest(key));
    format!(
        "max_staleness = \"2s\"\npoll_interval = \"100ms\"\n\
         [filters.revoked-jti]\nprofile = \"jti\"\ncapacity = 1000\nfalse_positive_rate = 1e-9\n\
         [[keys]]\nid = \"middleware\"\nsha256 = \"{}\"\nscopes = [\"check\"]\n\
         filters = [\"revoked-jti\"]\n\
         [[keys]]\nid = \"admin\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\n",
        digest(KEY),
        digest(ADMIN_KEY)
    )
}

fn bearer(jti: &str) -> String {
    format!("Bearer {}", token(&json!({"jti": jti, "sub": "ann"})))
}

/// Everything that takes part, with the network between each two.
struct Scene {
    service: Bloomgate,
    front: Front,
    application: Application,
}

impl Scene {
    async fn is_waved_through(&self) -> bool {
        let lookups = self.application.lookups().await;
        let told = self.application.ask(Some(&bearer(LIVE))).await;
        assert_eq!(told.status, 200, "{told:?}");
        self.application.lookups().await == lookups
    }

    /// Waits until the filter alone lets a token pass that was not revoked.
    async fn until_in_order(&self) {
        eventually("tokens pass without a look-up", DEADLINE, async || {
            self.is_waved_through().await.then_some(())
        })
        .await;
    }

    /// The requests that reach bloomgate's place for a token that the filter must let pass.
    async fn asked_for_one_waved_through(&self, what: &str) -> Vec<Seen> {
        let before = self.front.seen().len();
        assert!(self.is_waved_through().await, "{what}: looked up");
        self.front.seen().split_off(before)
    }

    /// The revoked token does not pass, the other one does, and who has none is told so.
    async fn tells_them_apart(&self, what: &str, by: By) {
        let application = &self.application;
        let (lookups, seen) = (application.lookups().await, self.front.seen().len());
        let (live, stolen) = (bearer(LIVE), bearer(STOLEN));
        let asked = tokio::join!(application.ask(Some(&live)), application.ask(Some(&stolen)));
        let (live, stolen) = asked;
        assert_eq!(stolen.status, 401, "{what}: {stolen:?}");
        assert_eq!(stolen.challenge.as_deref(), Some(INVALID), "{what}");
        assert_eq!(live.status, 200, "{what}: {live:?}");
        for told in [live, stolen] {
            assert!(told.took < TOTAL + SLACK, "{what}: {told:?}");
        }
        let looked_up = application.lookups().await - lookups;
        let expected = if by == By::Filter { 1 } else { 2 };
        assert_eq!(looked_up, expected, "{what}: looked up so often");
        let tries = self.front.seen().len() - seen;
        assert!(tries <= 4, "{what}: {tries} tries for two tokens");
        self.turns_away_who_has_no_token(what).await;
    }

    async fn turns_away_who_has_no_token(&self, what: &str) {
        let (lookups, seen) = (self.application.lookups().await, self.front.seen().len());
        let of = |claims| format!("Bearer {}", token(&claims));
        for (authorization, challenge) in [
            (None, Some("Bearer")),
            (Some("Basic YTpi".to_owned()), Some("Bearer")),
            (Some("Bearer".to_owned()), Some("Bearer")),
            (Some("Bearer odd".to_owned()), Some("Bearer")),
            (Some("Bearer e30.!.e30".to_owned()), Some("Bearer")),
            (Some(of(json!({"sub": "ann"}))), Some(INVALID)),
            (Some(of(json!({"jti": ""}))), Some(INVALID)),
            // Whether that is no token or one without an id is not the middleware's to say.
            (Some(of(json!({"jti": 7}))), None),
            (Some(of(json!({"jti": null}))), None),
            (Some(of(json!({"jti": [LIVE]}))), None),
            (Some(of(json!([LIVE]))), None),
        ] {
            let told = self.application.ask(authorization.as_deref()).await;
            assert_eq!(told.status, 401, "{what}: {told:?}");
            if challenge.is_some() {
                assert_eq!(told.challenge.as_deref(), challenge, "{what}");
            }
        }
        assert_eq!(self.application.lookups().await, lookups, "{what}");
        assert_eq!(self.front.seen().len(), seen, "{what}");
    }
}

/// Takes a middleware through all that may be and may happen.
async fn run(stack: &str) {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let bloomgate = format!("127.0.0.1:{}", free_port());
    let launch = || {
        let url = database.url_at(&proxy.address());
        let launch = Launch::new().config(&config()).listen(Some(&bloomgate));
        launch.database_url(&url)
    };
    let mut service = launch().start().await;
    service.use_key(ADMIN_KEY);
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", STOLEN).await;
    let front = Front::start(&bloomgate).await;
    let application = Application::start(stack, &front.url()).await;
    let mut scene = Scene {
        service,
        front,
        application,
    };
    scene.until_in_order().await;
    scene.tells_them_apart("live", By::Filter).await;
    connections_are_kept(&scene).await;
    one_failure_is_made_up_for(&scene).await;
    nothing_but_a_clean_answer_counts(&scene).await;
    an_id_that_bloomgate_refuses_is_looked_up(&scene).await;
    a_failing_look_up_lets_nobody_pass(&scene).await;

    scene.service.send(Signal::STOP);
    // The signal takes a moment to reach all of its threads.
    eventually("bloomgate hangs", DEADLINE, async || {
        (!scene.is_waved_through().await).then_some(())
    })
    .await;
    scene.tells_them_apart("hung", By::LookUp).await;
    scene.service.send(Signal::CONT);
    scene.until_in_order().await;
    proxy.switch(Conduct::Refuse);
    proxy.cut();
    eventually("the filter is stale", DEADLINE, async || {
        let checked = scene.service.check("revoked-jti", LIVE).await;
        (checked.reason.as_deref() == Some("stale")).then_some(())
    })
    .await;
    let what = "stale, with the database gone";
    scene.tells_them_apart(what, By::LookUp).await;
    scene.service.kill_9();
    scene.tells_them_apart("gone", By::LookUp).await;
    scene.service = launch().start().await;
    scene.service.use_key(ADMIN_KEY);
    let checked = scene.service.check("revoked-jti", LIVE).await;
    assert_eq!(checked.reason.as_deref(), Some("loading"));
    scene.tells_them_apart("loading", By::LookUp).await;
    proxy.switch(Conduct::Pass);
    scene.until_in_order().await;
    scene.tells_them_apart("live again", By::Filter).await;

    let log = scene.application.log();
    for secret in [MARK, KEY, &bearer(LIVE)["Bearer ".len()..]] {
        assert!(!log.contains(secret), "the log tells what it must not");
    }
    for seen in scene.front.seen() {
        let line = "POST /v1/filters/revoked-jti/check HTTP/1.1\r\n";
        assert!(seen.head.starts_with(line), "{seen:?}");
        assert!(!seen.head.contains(MARK), "a header tells the id");
    }
}

async fn connections_are_kept(scene: &Scene) {
    let mut connections = Vec::new();
    for _ in 0..5 {
        let asked = scene.asked_for_one_waved_through("live").await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        connections.push(asked[0].connection);
    }
    connections.dedup();
    assert_eq!(connections.len(), 1, "{connections:?}");
}

async fn one_failure_is_made_up_for(scene: &Scene) {
    let front = &scene.front;
    let unavailable = garbage::answer("503 Service Unavailable\r\ncontent-type: x", "");
    for act in [
        Act::Close,
        Act::CutInBody,
        unavailable,
        Act::Answer(b"no HTTP\r\n\r\n".into()),
        Act::Late(TRY * 2),
        Act::StopInBody,
        Act::Drip(TRY / 10),
    ] {
        // Two connections lie idle then, and after the failure of one the other is as likely dead.
        front.always(Act::Late(Duration::from_millis(100)));
        let live = bearer(LIVE);
        let both = tokio::join!(
            scene.application.ask(Some(&live)),
            scene.application.ask(Some(&live))
        );
        assert_eq!((both.0.status, both.1.status), (200, 200));
        front.always(Act::Pass);
        let what = format!("once {act:?}");
        front.next([act]);
        let asked = scene.asked_for_one_waved_through(&what).await;
        let [first, second] = &asked[..] else {
            panic!("{what}: {asked:?}");
        };
        assert_ne!(first.connection, second.connection, "{what}: {asked:?}");
        assert_eq!(second.nth, 1, "{what}: the connection was not a new one");
    }
    for _ in 0..3 {
        front.cut();
        let what = "kept connections were closed meanwhile";
        scene.asked_for_one_waved_through(what).await;
    }
    front.next([Act::Close, Act::Close]);
    let seen = front.seen().len();
    assert!(!scene.is_waved_through().await, "nobody has answered");
    assert_eq!(front.seen().len(), seen + 2, "two tries, and no third");
}

async fn nothing_but_a_clean_answer_counts(scene: &Scene) {
    let lure = Front::start("127.0.0.1:1").await;
    lure.always(garbage::json(CLEAN));
    let front = &scene.front;
    // What is garbled below counts where it is not.
    for media_type in ["application/json", "Application/JSON; charset=utf-8"] {
        let head = format!("200 OK\r\ncontent-type: {media_type}");
        front.always(garbage::answer(&head, CLEAN));
        scene.asked_for_one_waved_through(media_type).await;
    }
    for (what, act) in garbage::all(&lure.url()) {
        front.always(act);
        scene.tells_them_apart(&what, By::LookUp).await;
    }
    assert_eq!(lure.seen().len(), 0, "a redirect was followed");
    for act in [
        Act::Close,
        Act::CutInBody,
        Act::Late(TRY * 2),
        Act::StopInBody,
        Act::Drip(TRY / 10),
    ] {
        let what = format!("{act:?}");
        front.always(act);
        scene.tells_them_apart(&what, By::LookUp).await;
    }
    front.refuse(true);
    scene.tells_them_apart("refused", By::LookUp).await;
    front.refuse(false);
    front.always(Act::Pass);
    scene.until_in_order().await;
}

/// Its 422 says nothing of the token.
async fn an_id_that_bloomgate_refuses_is_looked_up(scene: &Scene) {
    let of = |payload: &str| {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
        format!("Bearer e30.{payload}.e30")
    };
    for id in [format!("Bearer {MARK}"), MARK.repeat(200), " ".to_owned()] {
        let lookups = scene.application.lookups().await;
        let authorization = of(&json!({ "jti": id }).to_string());
        let told = scene.application.ask(Some(&authorization)).await;
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(scene.application.lookups().await, lookups + 1);
    }
    // Half of a surrogate pair is text to some languages and none to others.
    let halved = of(r#"{"jti":"\ud800"}"#);
    let told = scene.application.ask(Some(&halved)).await;
    assert!([200, 401].contains(&told.status), "{told:?}");
}

async fn a_failing_look_up_lets_nobody_pass(scene: &Scene) {
    scene.application.let_look_ups_work(false);
    let stolen = scene.application.ask(Some(&bearer(STOLEN))).await;
    assert_eq!(stolen.status, 503, "{stolen:?}");
    assert!(scene.is_waved_through().await, "the filter has said it");
    scene.front.always(Act::Close);
    for jti in [LIVE, STOLEN] {
        let told = scene.application.ask(Some(&bearer(jti))).await;
        assert_eq!(told.status, 503, "{told:?}");
    }
    scene.front.always(Act::Pass);
    scene.application.let_look_ups_work(true);
    scene.until_in_order().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node.js: tests/middleware express"]
async fn express_never_lets_a_revoked_token_pass() {
    run("express").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python packages: tests/middleware fastapi"]
async fn fastapi_never_lets_a_revoked_token_pass() {
    run("fastapi").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Go: tests/middleware net-http"]
async fn net_http_never_lets_a_revoked_token_pass() {
    run("net-http").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: tests/middleware servlet"]
async fn servlet_never_lets_a_revoked_token_pass() {
    run("servlet").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a program of its own: tests/middleware tower"]
async fn tower_never_lets_a_revoked_token_pass() {
    run("tower").await;
}
