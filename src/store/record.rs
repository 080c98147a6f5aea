//! A declaration as columns of a table, and back.
//!
//! It must not know which database the columns stand in.

use sqlx::migrate::MigrateError;
use uuid::Uuid;

use crate::filter::profile::{EmailOptions, Profile};
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{FilterId, StoredFilter};

/// A row of the table of filters.
pub(super) struct FilterRecord {
    /// The identity of the filter.
    pub(super) id: Uuid,
    /// Its name.
    pub(super) name: String,
    /// The name of its profile.
    pub(super) profile: String,
    /// The version of that profile in the program that declared it.
    pub(super) profile_version: i32,
    /// The options of an email profile; all false for the others.
    pub(super) options: EmailOptions,
    /// Items that it is sized for.
    pub(super) capacity: i64,
    /// The rate that it is sized for.
    pub(super) false_positive_rate: f64,
    /// The names of its sources.
    pub(super) sources: Vec<String>,
    /// `config` or `api`.
    pub(super) declared_by: String,
}

impl FilterRecord {
    /// What to write for a declaration.
    pub(super) fn new(
        id: Uuid,
        name: &FilterName,
        declaration: &Declaration,
        declared_by: DeclaredBy,
    ) -> Self {
        let profile = &declaration.profile;
        let options = match profile {
            Profile::Email(options) => *options,
            Profile::Jti | Profile::Text => EmailOptions::default(),
        };
        Self {
            id,
            name: name.as_str().to_owned(),
            profile: profile.name().to_owned(),
            profile_version: i32::try_from(profile.version()).unwrap_or(i32::MAX),
            options,
            capacity: i64::try_from(declaration.sizing.capacity()).unwrap_or(i64::MAX),
            false_positive_rate: declaration.sizing.false_positive_rate(),
            sources: declaration.sources.clone(),
            declared_by: match declared_by {
                DeclaredBy::Config => "config",
                DeclaredBy::Api => "api",
            }
            .to_owned(),
        }
    }

    /// The filter that a row stands for.
    ///
    /// # Errors
    /// When a column holds what this program never writes, with one line that names the column.
    pub(super) fn into_filter(self) -> Result<StoredFilter, String> {
        let odd = |column: &str| format!("a row of the table filter has an unknown {column}");
        let name = FilterName::parse(&self.name).ok_or_else(|| odd("name"))?;
        let profile = match self.profile.as_str() {
            "jti" => Profile::Jti,
            "email" => Profile::Email(self.options),
            "text" => Profile::Text,
            _ => return Err(odd("profile")),
        };
        let capacity = u64::try_from(self.capacity).map_err(|_| odd("capacity"))?;
        let mut declaration = Declaration::new(profile, capacity, self.false_positive_rate)
            .map_err(|error| {
                format!("a row of the table filter is out of range for this program: {error}")
            })?;
        declaration.sources = self.sources;
        let declared_by = match self.declared_by.as_str() {
            "config" => DeclaredBy::Config,
            "api" => DeclaredBy::Api,
            _ => return Err(odd("declared_by")),
        };
        Ok(StoredFilter {
            id: FilterId(self.id),
            name,
            declaration,
            declared_by,
        })
    }
}

/// What to say of a schema that does not fit this program.
pub(super) fn migration_refusal(error: &MigrateError) -> String {
    if let MigrateError::VersionMissing(version) = error {
        format!(
            "its schema has migration {version}, which this program does not know: a newer \
             version has been here; start that version or a later one"
        )
    } else if let MigrateError::VersionMismatch(version) = error {
        format!(
            "migration {version} was applied to it with another text than this program has; \
             start the version that made it"
        )
    } else {
        error.to_string()
    }
}
