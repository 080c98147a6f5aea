//! Where the failures of a PostgreSQL connection come from, and what may be said of them.
//!
//! A failure is one of three: the server cannot be reached (trying again may help), it refuses us
//! as we are configured (trying again will not), or it was reached and a statement failed. A
//! server's own message can carry the values of a row: it is shown only for the classes of
//! SQLSTATE that speak of connections, rights and resources, and of names where it points to the
//! name in the statement, for a row can name what is not there too (as by a cast to regclass). Its
//! DETAIL, HINT and CONTEXT are never shown.
//!
//! Source of the codes: PostgreSQL documentation, appendix "PostgreSQL Error Codes".

use std::io::ErrorKind;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgErrorPosition};

use crate::service::ports::StoreError;

/// Longest message of a server that is shown, in characters.
const SHOWN_CHARACTERS: usize = 300;

/// A failure, sorted by what may help, with one line that says what was found and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It cannot be reached, or the connection broke.
    Unreachable(String),
    /// It refuses this configuration.
    Refused(String),
    /// A statement failed.
    Failed(String),
}

impl Fault {
    /// The error of the port, for the store or source `what`.
    pub(crate) fn of(self, what: &str) -> StoreError {
        let what = what.to_owned();
        match self {
            Self::Unreachable(detail) => StoreError::Unreachable { what, detail },
            Self::Refused(detail) => StoreError::Refused { what, detail },
            Self::Failed(detail) => StoreError::Failed { what, detail },
        }
    }
}

/// Sorts a failure of sqlx.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "sqlx may add kinds of errors at any time; none is quoted unless it is known"
)]
pub(crate) fn classify(error: &sqlx::Error) -> Fault {
    match error {
        sqlx::Error::Database(error) => {
            let sqlstate = error.code().unwrap_or_default();
            classify_sqlstate(&sqlstate, error.message(), points_into_statement(&**error))
        }
        // rustls reports a certificate that does not verify, or an alert, as invalid data.
        sqlx::Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
            Fault::Refused(tls_detail(&error.to_string()))
        }
        sqlx::Error::Io(error) => Fault::Unreachable(one_line(&error.to_string())),
        sqlx::Error::Tls(error) => Fault::Refused(tls_detail(&error.to_string())),
        sqlx::Error::Configuration(error) => Fault::Refused(one_line(&error.to_string())),
        sqlx::Error::Protocol(_) => {
            Fault::Failed("it gave an answer that the PostgreSQL protocol does not know".to_owned())
        }
        sqlx::Error::RowNotFound => {
            Fault::Failed("expected a row in the answer, found none".to_owned())
        }
        // These would quote values.
        _ => Fault::Failed("its answer could not be read".to_owned()),
    }
}

/// Whether the server found the fault in the text of the statement, and not in a row.
fn points_into_statement(error: &dyn DatabaseError) -> bool {
    let position = error
        .try_downcast_ref::<PgDatabaseError>()
        .and_then(PgDatabaseError::position);
    matches!(position, Some(PgErrorPosition::Original(_)))
}

/// Sorts a failure that the server reported.
fn classify_sqlstate(sqlstate: &str, message: &str, points_into_statement: bool) -> Fault {
    let class = sqlstate.get(..2).unwrap_or_default();
    let is_without_values = match class {
        "08" | "25" | "28" | "3D" | "3F" | "53" | "55" | "57" | "58" => true,
        "42" => points_into_statement || sqlstate == "42501",
        _ => false,
    };
    let shown = if is_without_values {
        format!("{} (SQLSTATE {sqlstate})", one_line(message))
    } else {
        format!("SQLSTATE {sqlstate}")
    };
    match (class, sqlstate) {
        ("08", _) | (_, "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04") => {
            Fault::Unreachable(shown)
        }
        ("28", _) => Fault::Refused(format!("{shown}; check user, password and pg_hba.conf")),
        ("3D", _) => Fault::Refused(format!("{shown}; create the database or correct its name")),
        (_, "42501") => Fault::Refused(format!(
            "{shown}; grant the role what it lacks (on a table with row-level security: \
             BYPASSRLS, or a policy-free owner)"
        )),
        (_, "25006") => Fault::Refused(format!("{shown}; give the address of the primary")),
        ("42" | "3F", _) | (_, "57P04") => Fault::Refused(shown),
        _ => Fault::Failed(shown),
    }
}

fn tls_detail(detail: &str) -> String {
    format!(
        "TLS failed: {}; check sslmode, sslrootcert and the name in the server's certificate",
        one_line(detail)
    )
}

/// A message as one bounded line.
fn one_line(message: &str) -> String {
    message
        .chars()
        .take(SHOWN_CHARACTERS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Bounds what is asked of a server, and sorts its failure. sqlx offers no TCP keep-alive: a
/// half-open connection ends by this limit alone.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, asked).await {
        Ok(answer) => answer.map_err(|error| classify(&error).of(what)),
        Err(_elapsed) => Err(Fault::Unreachable(format!("no answer within {limit:?}")).of(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_unreachable(sqlstate: &str) -> bool {
        matches!(
            classify_sqlstate(sqlstate, "m", true),
            Fault::Unreachable(_)
        )
    }

    fn is_refused(sqlstate: &str) -> bool {
        matches!(classify_sqlstate(sqlstate, "m", true), Fault::Refused(_))
    }

    #[test]
    fn a_server_that_starts_up_or_is_full_is_tried_again() {
        for sqlstate in ["57P03", "57P01", "53300", "08006", "08P01"] {
            assert!(is_unreachable(sqlstate), "{sqlstate}");
        }
    }

    #[test]
    fn a_wrong_password_database_or_right_is_not_tried_again() {
        for sqlstate in [
            "28P01", "28000", "3D000", "42501", "42P01", "25006", "3F000",
        ] {
            assert!(is_refused(sqlstate), "{sqlstate}");
        }
    }

    #[test]
    fn the_servers_message_is_shown_only_where_it_carries_no_values() {
        for sqlstate in ["22P02", "23505", "23514", "P0001", "40001", "XX000", ""] {
            let fault = classify_sqlstate(sqlstate, "ann@example.com", true);
            assert_eq!(fault, Fault::Failed(format!("SQLSTATE {sqlstate}")));
        }
        let of_a_row = classify_sqlstate("42P01", "\"ann@example.com\" does not exist", false);
        assert_eq!(of_a_row, Fault::Refused("SQLSTATE 42P01".to_owned()));
        for (sqlstate, points_into_statement) in [("3D000", false), ("42P01", true)] {
            let message = "\"app\" does not exist";
            let fault = classify_sqlstate(sqlstate, message, points_into_statement);
            assert!(
                matches!(&fault, Fault::Refused(detail) if detail.contains("\"app\" does not")),
                "{fault:?}"
            );
        }
    }

    #[test]
    fn a_message_is_one_bounded_line() {
        let line = one_line(&format!("a\nb\u{1b}{}", "x".repeat(1000)));
        assert_eq!(line.chars().count(), SHOWN_CHARACTERS);
        assert!(!line.contains(char::is_control));
    }

    #[test]
    fn a_refused_connection_is_unreachable_and_a_bad_certificate_is_not() {
        let io = |kind: ErrorKind| sqlx::Error::Io(kind.into());
        for kind in [
            ErrorKind::ConnectionRefused,
            ErrorKind::TimedOut,
            ErrorKind::UnexpectedEof,
            ErrorKind::ConnectionReset,
        ] {
            let fault = classify(&io(kind));
            assert!(matches!(fault, Fault::Unreachable(_)), "{fault:?}");
        }
        let fault = classify(&io(ErrorKind::InvalidData));
        assert!(matches!(fault, Fault::Refused(_)), "{fault:?}");
        let fault = classify(&sqlx::Error::Tls("server does not support TLS".into()));
        assert!(matches!(fault, Fault::Refused(_)), "{fault:?}");
    }

    #[test]
    fn what_could_not_be_decoded_is_not_quoted() {
        let error = sqlx::Error::ColumnDecode {
            index: "item".to_owned(),
            source: "ann@example.com".into(),
        };
        assert_eq!(
            classify(&error),
            Fault::Failed("its answer could not be read".to_owned())
        );
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_unreachable() {
        let limit = Duration::from_millis(5);
        let error = within::<()>(limit, "the store", std::future::pending()).await;
        assert!(
            matches!(error, Err(StoreError::Unreachable { .. })),
            "{error:?}"
        );
    }
}
