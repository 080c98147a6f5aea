//! The command `follow-sql`: finds the source and the role in the configuration, and gives the SQL.
//!
//! It connects to nothing: a DBA reviews and runs what it prints.

use crate::cli::FollowSqlArgs;
use crate::config::{Config, FilterConfig, SourceConfig};
use crate::store::{FollowSql, FollowSqlError, FollowedTable, role_of};

/// Why no SQL can be given.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration has no such filter.
    #[error("expected a filter of the configuration, found {0}; declare it there with its source")]
    Filter(String),
    /// The filter has no such source, or none at all.
    #[error("expected a source of the filter {filter}, found {found}; it has {sources}")]
    Source {
        /// The filter.
        filter: String,
        /// What was asked for.
        found: String,
        /// The sources that there are.
        sources: String,
    },
    /// The source's URL names no user.
    #[error("the database URL of the source {0} names no user; give the role with --role")]
    Role(String),
    /// What was given is no table, column or expression.
    #[error(transparent)]
    Sql(#[from] FollowSqlError),
}

/// The SQL for a table of a source that the configuration has.
///
/// # Errors
/// When the configuration has no such source, the role is not known, or a part is malformed.
pub fn follow_sql(config: &Config, args: &FollowSqlArgs) -> Result<String, CommandError> {
    let filter = config
        .filters
        .iter()
        .find(|filter| filter.name == args.filter)
        .ok_or_else(|| CommandError::Filter(args.filter.to_string()))?;
    let source = source(filter, args.source.as_deref())?;
    let role = match &args.role {
        Some(role) => role.clone(),
        None => {
            role_of(&source.database_url).ok_or_else(|| CommandError::Role(source.name.clone()))?
        }
    };
    let followed = FollowedTable {
        table: &args.table,
        item: &args.item,
        expires: args.expires.as_deref(),
        when: args.when.as_deref(),
        role: &role,
    };
    Ok(FollowSql::new(filter.name.as_str(), &source.name, followed)?.sql())
}

fn source<'a>(
    filter: &'a FilterConfig,
    wanted: Option<&str>,
) -> Result<&'a SourceConfig, CommandError> {
    let found = match (wanted, filter.sources.as_slice()) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), sources) => sources.iter().find(|source| source.name == name),
    };
    found.ok_or_else(|| {
        let names: Vec<_> = filter.sources.iter().map(|source| &*source.name).collect();
        CommandError::Source {
            filter: filter.name.to_string(),
            found: wanted.map_or_else(|| "no --source".to_owned(), |name| format!("{name:?}")),
            sources: match names.as_slice() {
                [] => "none: give it one in the configuration".to_owned(),
                names => names.join(", "),
            },
        }
    })
}
