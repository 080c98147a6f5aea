//! A server that uses `bloomgate.rs`, as the tests run it. It VERIFIES NO TOKEN: see below.
//!
//! ```text
//! BLOOMGATE_URL, BLOOMGATE_KEY   where bloomgate is, and a key of the scope `check`
//! REVOKED_FILE                   the revoked ids, one a line: stands for your database
//! PORT                           where to listen on 127.0.0.1
//! TRY_MS, TOTAL_MS               other time limits than the middleware's own
//! ```

#![forbid(unsafe_code)]

mod bloomgate;

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use self::bloomgate::{DenyRevokedLayer, Settings, Tokens, VerifiedToken};

/// What the verification has accepted.
#[derive(Clone)]
struct Claims {
    jti: Option<String>,
}

/// Stands for your database.
struct RevokedFile {
    path: PathBuf,
    lookups: Arc<AtomicUsize>,
}

impl Tokens for RevokedFile {
    type Error = std::io::Error;

    fn token<B>(&self, request: &http::Request<B>) -> Option<VerifiedToken> {
        let claims = request.extensions().get::<Claims>()?;
        let id = claims.jti.clone();
        Some(VerifiedToken { id })
    }

    async fn is_revoked(&self, id: &str) -> Result<bool, Self::Error> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let revoked = tokio::fs::read_to_string(&self.path).await?;
        Ok(revoked.lines().any(|line| line == id))
    }
}

/// DANGER: reads the claims of ANY token, forged ones too. Your verification of the signature, the issuer, the
/// audience and the times (jsonwebtoken, axum-jwt-auth) stands in this place, and puts what it has accepted
/// into the request. This is here for the tests alone.
async fn take_claims_without_verifying(mut request: Request, next: Next) -> Response {
    if let Some(claims) = claims_of(&request) {
        request.extensions_mut().insert(claims);
    }
    next.run(request).await
}

fn claims_of(request: &Request) -> Option<Claims> {
    let header = request.headers().get("authorization")?.to_str().ok()?;
    let mut parts = header.strip_prefix("Bearer ")?.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Map<String, Value> = serde_json::from_slice(&payload).ok()?;
    let jti = claims.get("jti").and_then(Value::as_str);
    let jti = jti.map(str::to_owned);
    Some(Claims { jti })
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} must be set"))
}

fn milliseconds(name: &str) -> Result<Option<Duration>> {
    let Ok(text) = env::var(name) else {
        return Ok(None);
    };
    let number = text
        .parse()
        .with_context(|| format!("{name} must be a number of milliseconds"))?;
    Ok(Some(Duration::from_millis(number)))
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut settings = Settings::new(
        variable("BLOOMGATE_URL")?.parse()?,
        variable("BLOOMGATE_KEY")?.parse()?,
    );
    settings.per_try = milliseconds("TRY_MS")?.unwrap_or(settings.per_try);
    settings.total = milliseconds("TOTAL_MS")?.unwrap_or(settings.total);
    let lookups = Arc::new(AtomicUsize::new(0));
    let tokens = RevokedFile {
        path: variable("REVOKED_FILE")?.into(),
        lookups: Arc::clone(&lookups),
    };
    let deny_revoked = DenyRevokedLayer::new(settings, tokens).map_err(|error| anyhow!(error))?;
    let app = Router::new()
        .route("/orders", get(async || Json(json!({ "orders": [] }))))
        // What is added last stands in front.
        .layer(deny_revoked)
        .layer(from_fn(take_claims_without_verifying))
        .route(
            "/lookups",
            get(async move || Json(lookups.load(Ordering::Relaxed))),
        );
    let port: u16 = variable("PORT")?.parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, app).await?;
    Ok(())
}
