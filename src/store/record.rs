//! A declaration as columns of a table, and back.
//!
//! It must not know which database the columns stand in.

use sqlx::migrate::MigrateError;
use uuid::Uuid;

use crate::filter::profile::{EmailOptions, Profile};
use crate::service::declaration::{Declaration, DeclaredBy, DeclaredSource, FilterName};
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
    /// SHA-256 of each source's query, as hexadecimal digits, in the order of the names.
    pub(super) source_digests: Vec<String>,
    /// `config` or `api`.
    pub(super) declared_by: String,
    /// Rows that are no longer there.
    pub(super) forgotten: i64,
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
        Self {
            id,
            name: name.as_str().to_owned(),
            profile: profile.name().to_owned(),
            profile_version: i32::try_from(profile.version()).unwrap_or(i32::MAX),
            options: options_of(profile),
            capacity: i64::try_from(declaration.sizing.capacity()).unwrap_or(i64::MAX),
            false_positive_rate: declaration.sizing.false_positive_rate(),
            sources: source_names(declaration),
            source_digests: source_digests(declaration),
            forgotten: 0,
            declared_by: match declared_by {
                DeclaredBy::Config => "config",
                DeclaredBy::Api => "api",
            }
            .to_owned(),
        }
    }

    /// What the canonical digests of its rows depend on, beside the item.
    pub(super) fn canonical_form(&self) -> String {
        canonical_form(&self.profile, self.profile_version, self.options)
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
        // A row from before the digests has none, and is of another query than any.
        let mut digests = self.source_digests.into_iter();
        declaration.sources = self
            .sources
            .into_iter()
            .map(|name| {
                let mut query_digest = [0; 32];
                let digest = digests.next().unwrap_or_default();
                match hex::decode_to_slice(digest, &mut query_digest) {
                    Ok(()) | Err(_) => DeclaredSource { name, query_digest },
                }
            })
            .collect();
        let declared_by = match self.declared_by.as_str() {
            "config" => DeclaredBy::Config,
            "api" => DeclaredBy::Api,
            _ => return Err(odd("declared_by")),
        };
        Ok(StoredFilter {
            id: FilterId(self.id),
            name,
            declaration,
            profile_version: u32::try_from(self.profile_version)
                .map_err(|_| odd("profile_version"))?,
            declared_by,
            forgotten: u64::try_from(self.forgotten).map_err(|_| odd("forgotten"))?,
        })
    }
}

/// What must be recorded of a filter for its rows to settle what they lack: each was digested as the
/// declaration has it, and no other process knows of other sources.
pub(super) struct Settling {
    /// The one form that its rows were digested under.
    pub(super) canonical_form: String,
    /// The names of its sources.
    pub(super) sources: Vec<String>,
    /// SHA-256 of each source's query.
    pub(super) source_digests: Vec<String>,
}

impl Settling {
    /// For a filter that is declared so.
    pub(super) fn of(declaration: &Declaration) -> Self {
        let profile = &declaration.profile;
        let version = i32::try_from(profile.version()).unwrap_or(i32::MAX);
        Self {
            canonical_form: canonical_form(profile.name(), version, options_of(profile)),
            sources: source_names(declaration),
            source_digests: source_digests(declaration),
        }
    }
}

fn source_names(declaration: &Declaration) -> Vec<String> {
    let sources = declaration.sources.iter();
    sources.map(|source| source.name.clone()).collect()
}

fn source_digests(declaration: &Declaration) -> Vec<String> {
    let sources = declaration.sources.iter();
    sources
        .map(|source| hex::encode(source.query_digest))
        .collect()
}

fn options_of(profile: &Profile) -> EmailOptions {
    match profile {
        Profile::Email(options) => *options,
        Profile::Jti | Profile::Text => EmailOptions::default(),
    }
}

fn canonical_form(profile: &str, version: i32, options: EmailOptions) -> String {
    let options = [
        (options.gmail_dots, "+gmail_dots"),
        (options.googlemail, "+googlemail"),
        (options.plus_tags, "+plus_tags"),
    ];
    let options: String = options
        .into_iter()
        .filter_map(|(is_on, name)| is_on.then_some(name))
        .collect();
    format!("{profile}/{version}{options}")
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
