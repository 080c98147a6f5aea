//! Where a PostgreSQL database lies: a URL, taken apart without letting its password out.
//!
//! It must not know what is done over the connection.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::atomic::AtomicBool;

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::service::ports::StoreError;

/// Shown in `pg_stat_activity`, unless the URL names another.
const APPLICATION_NAME: &str = "bloomgate";

const FORM: &str = "postgres://user:password@host:port/database?sslmode=…";

/// Parameters that sqlx knows.
const KNOWN: [&str; 16] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];

/// Parameters of libpq that change nothing here, for every step has its own time limit.
const WITHOUT_EFFECT: [&str; 7] = [
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "fallback_application_name",
];

/// Parameters that name a file.
const FILES: [&str; 7] = [
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
];

/// A database and how to reach it. It has no `Debug`: the options would print the password.
pub(crate) struct Target {
    /// For sqlx.
    pub(super) options: PgConnectOptions,
    /// For messages: what it is, and host, port and database.
    pub(crate) what: String,
    /// The files that the URL names.
    pub(super) files: Vec<PathBuf>,
    /// Whether a connection pooler was found on the way to it.
    pub(super) pooled: AtomicBool,
}

impl Target {
    /// Takes a URL apart; `label` says in messages whose it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the URL is malformed or asks for what is not supported. The
    /// message shows no part of it but the names of parameters.
    pub(crate) fn parse(label: &str, url: &SecretString) -> Result<Self, StoreError> {
        parse(label, url.expose_secret()).map_err(|detail| StoreError::Refused {
            what: label.to_owned(),
            detail,
        })
    }
}

/// The role that a URL logs in as; none where it names none, or is malformed.
#[must_use]
pub fn role_of(url: &SecretString) -> Option<String> {
    let target = Target::parse("the source", url).ok()?;
    let url = url::Url::parse(url.expose_secret()).ok()?;
    let has_user = !url.username().is_empty() || url.query_pairs().any(|(name, _)| name == "user");
    // Otherwise it would be who runs this process.
    has_user.then(|| target.options.get_username().to_owned())
}

fn parse(label: &str, url: &str) -> Result<Target, String> {
    let behind_scheme = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or_else(|| format!("expected a URL of the form {FORM}, found another scheme"))?;
    let authority_bytes = behind_scheme
        .find(['/', '?', '#'])
        .unwrap_or(behind_scheme.len());
    let (authority, path_and_query) = behind_scheme.split_at(authority_bytes);
    // A password with an unescaped / ? or # ends the authority early: its rest would be shown as
    // the name of a database or of a parameter.
    if path_and_query.contains(['@', '#']) {
        return Err(
            "its URL has an @ or # behind the host: in a user or password write \
             @ : / ? # percent-encoded"
                .to_owned(),
        );
    }
    if authority
        .rsplit('@')
        .next()
        .is_some_and(|hosts| hosts.contains(','))
    {
        return Err("its URL names several hosts: give one, or the address of a proxy".to_owned());
    }
    let (path, query) = path_and_query
        .split_once('?')
        .unwrap_or((path_and_query, ""));
    let parameters = parameters(query)?;
    let kept: Vec<_> = parameters
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // What sqlx says of a malformed URL names no part of it; it shows a wrong sslmode, which
    // `parameters` has refused.
    let options =
        PgConnectOptions::from_str(&format!("postgres://{authority}{path}?{}", kept.join("&")))
            .map_err(|error| {
                format!(
                    "expected a URL of the form {FORM}: {}; write @ : / ? # in a user or password \
             percent-encoded",
                    cause(&error)
                )
            })?;
    let options = settled(options, &parameters);
    Ok(Target {
        what: format!("{label} at {}", place(&options)),
        files: files(&parameters)?,
        pooled: AtomicBool::new(false),
        options,
    })
}

/// What the URL's parser said, without sqlx's prefix.
fn cause(error: &sqlx::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => "malformed".to_owned(),
    }
}

/// The parameters that have an effect.
fn parameters(query: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if WITHOUT_EFFECT.contains(&name) {
            continue;
        }
        let is_option = name == "options" || name.starts_with("options[");
        if !KNOWN.contains(&name) && !is_option {
            return Err(format!(
                "its URL has the parameter {}, which is not supported: take it out",
                shown(name)
            ));
        }
        if matches!(name, "sslmode" | "ssl-mode") && PgSslMode::from_str(value).is_err() {
            return Err(format!(
                "its URL has an unknown {name}: expected disable, allow, prefer, require, \
                 verify-ca or verify-full"
            ));
        }
        kept.push((name, value));
    }
    Ok(kept)
}

/// The name of a parameter, unless it is shaped otherwise: it may be the rest of a password.
fn shown(name: &str) -> &str {
    let is_plain = name.len() <= 40
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-'));
    if is_plain { name } else { "(not shown)" }
}

/// The options as we want them on every connection.
fn settled(options: PgConnectOptions, parameters: &[(&str, &str)]) -> PgConnectOptions {
    // The URL parser leaves the brackets of an IPv6 address, and no resolver takes them.
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    let names_root = parameters
        .iter()
        .any(|(name, _)| matches!(*name, "sslrootcert" | "ssl-root-cert" | "ssl-ca"));
    // As libpq has it: who names a CA wants the certificate checked against it.
    let mode = options.get_ssl_mode();
    let mode = if names_root && matches!(mode, PgSslMode::Require) {
        PgSslMode::VerifyCa
    } else {
        mode
    };
    let application_name = options
        .get_application_name()
        .unwrap_or(APPLICATION_NAME)
        .to_owned();
    options
        .host(&host)
        .ssl_mode(mode)
        .application_name(&application_name)
        // A start-up parameter that poolers refuse; nothing here reads a float as text.
        .extra_float_digits(None)
        // A statement's text can hold a filter's configuration, a slow one's log line too.
        .disable_statement_logging()
}

fn place(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = match options.get_database() {
        Some(database) => format!("/{database}"),
        None => String::new(),
    };
    format!("{host}:{}{database}", options.get_port())
}

fn files(parameters: &[(&str, &str)]) -> Result<Vec<PathBuf>, String> {
    parameters
        .iter()
        .filter(|(name, _)| FILES.contains(name))
        .map(|(name, value)| decoded(value).ok_or_else(|| format!("its {name} is malformed")))
        .map(|path| path.map(PathBuf::from))
        .collect()
}

/// A query value as the URL parser reads it: `+` is a blank, `%xx` a byte.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<Target, String> {
        Target::parse("the store", &url.into()).map_err(|error| error.to_string())
    }

    fn refusal(url: &str) -> String {
        match parsed(url) {
            Ok(target) => panic!("taken as {}", target.what),
            Err(message) => message,
        }
    }

    #[test]
    fn a_target_is_named_by_host_port_and_database_alone() {
        let target = parsed("postgres://ann:s%40cret@db.example:6432/app?sslmode=require").unwrap();
        assert_eq!(target.what, "the store at db.example:6432/app");
        let target = parsed("postgresql://ann:secret@[::1]:5433/app").unwrap();
        assert_eq!(target.what, "the store at ::1:5433/app");
        assert_eq!(target.options.get_host(), "::1");
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_showing_its_password() {
        for url in [
            "",
            "hunter2",
            "mysql://ann:hunter2@db/app",
            "postgres://ann:hunter2@db:port/app",
            "postgres://ann:hun/ter2@db/app",
            "postgres://ann:1/hunter2@db/app",
            "postgres://ann:1?hunter2@db/app",
            "postgres://ann:1#hunter2@db/app",
            "postgres://ann:hunter2@db,other/app",
            "postgres://ann:hunter2@db/app?sslmode=hunter2",
            "postgres://ann:hunter2@db/app?hunter2=1",
            "postgres://ann:hunter2@db/app?channel_binding=require",
        ] {
            let message = refusal(url);
            assert!(!message.contains("hunter2"), "{message}");
            assert!(!message.contains("ter2"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn the_role_is_the_urls_user_and_nobody_else() {
        let role = |url: &str| role_of(&url.into());
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(role("postgres://a%40b:secret@db/app"), named("a@b"));
        assert_eq!(role("postgres://db/app?user=ann"), named("ann"));
        assert_eq!(role("postgres://db/app"), None);
    }

    #[test]
    fn an_unknown_parameter_is_named() {
        let message = refusal("postgres://db/app?channel_binding=require");
        assert!(message.contains("channel_binding"), "{message}");
    }

    #[test]
    fn parameters_without_effect_are_passed_over() {
        let target = parsed("postgres://db/app?connect_timeout=5&sslmode=disable&keepalives=1");
        assert!(matches!(
            target.unwrap().options.get_ssl_mode(),
            PgSslMode::Disable
        ));
    }

    #[test]
    fn a_named_ca_is_checked_even_where_only_tls_is_required() {
        let target = parsed("postgres://db/app?sslmode=require&sslrootcert=%2Fetc%2Fca%20x.pem");
        let target = target.unwrap();
        assert!(matches!(target.options.get_ssl_mode(), PgSslMode::VerifyCa));
        assert_eq!(target.files, [PathBuf::from("/etc/ca x.pem")]);
        let target = parsed("postgres://db/app?sslmode=require").unwrap();
        assert!(matches!(target.options.get_ssl_mode(), PgSslMode::Require));
    }
}
