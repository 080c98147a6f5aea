//! The command line: what can be asked of the program, and the commands that need nothing but
//! the configuration and the core.
//!
//! Invariant: a command here gives the text to print and prints nothing itself. This module must
//! not know the service, its adapters, or how the process ends.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use secrecy::ExposeSecret;

use crate::config::{
    Config, ConfigErrors, Flags, KEY_ID_FORM, NAME_FORM, Scope, Scopes, bytes_rounded, is_key_id,
    new_key,
};
use crate::filter::sizing::{Sizing, SizingError};
use crate::service::declaration::FilterName;

/// A microservice that answers one question fast: may this be in the set?
#[derive(Debug, Parser)]
#[command(name = "bloomgate", version, about)]
pub struct Cli {
    /// What configures the program, before or after the command.
    #[command(flatten)]
    pub flags: Flags,
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// The command that was asked for; to serve when none was.
    #[must_use]
    pub fn command_or_serve(&self) -> &Command {
        self.command.as_ref().unwrap_or(&Command::Serve)
    }
}

/// What the program can be asked for.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Serve the API (the default)
    Serve,
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Bring the store's schema up to date and end
    Migrate,
    /// Print the OpenAPI document
    Openapi,
    /// Tell what a filter of some capacity and rate takes
    Plan(PlanArgs),
    /// Make API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Look at snapshots; the service may run meanwhile
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Print the SQL that makes what is written to a table of yours known to a filter at once
    FollowSql(FollowSqlArgs),
    /// Ask the service that runs here whether it lives; for containers
    Healthcheck,
}

/// What can be asked about the configuration.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigCommand {
    /// Report everything that is wrong with it, or print it as it takes effect
    Check,
}

/// What can be asked about API keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Make a key: print it once, with the block to paste into the configuration
    New(NewKeyArgs),
}

/// What can be asked about snapshots.
#[derive(Debug, Clone, Subcommand)]
pub enum SnapshotCommand {
    /// Print what a snapshot says of itself, and whether the length of its file fits; needs no key
    Inspect(SnapshotArgs),
    /// Check a whole snapshot against the hash key that is configured or lies in data_dir
    Verify(SnapshotArgs),
}

/// Which snapshot.
#[derive(Debug, Clone, Args)]
pub struct SnapshotArgs {
    /// The file, such as data/snapshots/UUID.bloom
    pub file: PathBuf,
}

/// What a filter is sized for.
#[derive(Debug, Clone, Copy, Args)]
pub struct PlanArgs {
    /// How many items the filter is to hold
    #[arg(long, value_name = "ITEMS")]
    pub capacity: u64,
    /// Share of false answers at capacity, between 0 and 1
    #[arg(long, value_name = "RATE")]
    pub false_positive_rate: f64,
}

/// Which table is to be followed, and what of its rows is the item.
#[derive(Debug, Clone, Args)]
pub struct FollowSqlArgs {
    /// The filter
    #[arg(value_name = "FILTER", value_parser = parse_filter_name)]
    pub filter: FilterName,
    /// The table that is written to; a name of upper case or blanks as it is, or in double quotes
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: String,
    /// The item: a column, or an expression over the row NEW, such as "NEW.payload->>'jti'"
    #[arg(long, value_name = "COLUMN_OR_EXPRESSION")]
    pub item: String,
    /// When the item may be forgotten, a timestamptz; left out: never
    #[arg(long, value_name = "COLUMN_OR_EXPRESSION")]
    pub expires: Option<String>,
    /// Which rows count, such as "NEW.revoked"; left out: all
    #[arg(long, value_name = "CONDITION")]
    pub when: Option<String>,
    /// The source of the filter; left out: its only one
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// The role that bloomgate logs in as there; left out: that of the source's database URL
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
}

/// What a new key is to be.
#[derive(Debug, Clone, Args)]
pub struct NewKeyArgs {
    /// What logs call the key
    #[arg(long, value_name = "NAME", value_parser = parse_key_id)]
    pub id: String,
    /// What it is good for: check, add, read, admin
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true)]
    pub scope: Vec<Scope>,
    /// The filters that it is good for; left out: all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_filter_name)]
    pub filter: Vec<FilterName>,
}

fn parse_key_id(text: &str) -> Result<String, String> {
    if is_key_id(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected {KEY_ID_FORM}"))
    }
}

fn parse_filter_name(text: &str) -> Result<FilterName, String> {
    FilterName::parse(text).ok_or_else(|| format!("expected {NAME_FORM}"))
}

/// What `config check` prints: that the configuration is valid, and how it takes effect, with
/// secrets masked. The arguments are those of [`Config::load`].
///
/// # Errors
/// Everything that is wrong with it.
pub fn config_check(
    flags: &Flags,
    look_up: impl Fn(&str) -> Option<String>,
    read_file: impl Fn(&Path) -> io::Result<String>,
    available_memory_bytes: u64,
) -> Result<String, ConfigErrors> {
    let config = Config::load(flags, look_up, read_file, available_memory_bytes)?;
    Ok(format!("configuration is valid\n\n{}", config.effective()))
}

/// What `plan` prints.
///
/// # Errors
/// When capacity or rate are out of range.
pub fn plan(args: PlanArgs) -> Result<String, SizingError> {
    let sizing = Sizing::new(args.capacity, args.false_positive_rate)?;
    let memory_bytes = sizing.memory_bytes();
    let rate_at = |times: u64| sizing.fp_rate_at(sizing.capacity().saturating_mul(times));
    Ok(format!(
        "bit_count       {}\n\
         hash_count      {}\n\
         memory_bytes    {memory_bytes} ({})\n\
         fp_rate_at_1x   {:.6}\n\
         fp_rate_at_2x   {:.6}\n\
         fp_rate_at_10x  {:.6}\n",
        sizing.bit_count(),
        sizing.hash_count(),
        bytes_rounded(memory_bytes),
        rate_at(1),
        rate_at(2),
        rate_at(10),
    ))
}

/// What `key new` prints: the key, this once, and the block to paste.
///
/// # Errors
/// When the system gives no randomness.
pub fn key_new(args: &NewKeyArgs) -> Result<String, getrandom::Error> {
    let scopes: Scopes = args.scope.iter().copied().collect();
    let filters = (!args.filter.is_empty()).then_some(args.filter.as_slice());
    let key = new_key(&args.id, scopes, filters)?;
    Ok(format!(
        "The key, shown this once:\n\n{}\n\nFor the configuration file:\n\n{}",
        key.secret.expose_secret(),
        key.block
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn without_a_command_it_serves() {
        let cli = parse("bloomgate --listen 127.0.0.1:1").expect("a command line");
        assert!(matches!(cli.command_or_serve(), Command::Serve));
        assert_eq!(cli.flags.listen.as_deref(), Some("127.0.0.1:1"));
    }

    #[test]
    fn flags_stand_before_or_after_the_command() {
        for line in [
            "bloomgate --store sqlite --accept-new-store config check",
            "bloomgate config check --store sqlite --accept-new-store",
            "bloomgate --accept-new-store config --store sqlite check",
        ] {
            let cli = parse(line).expect(line);
            assert!(matches!(
                cli.command_or_serve(),
                Command::Config(ConfigCommand::Check)
            ));
            assert_eq!(cli.flags.store.as_deref(), Some("sqlite"), "{line}");
            assert!(cli.flags.accept_new_store, "{line}");
        }
    }

    #[test]
    fn every_command_is_known() {
        for line in [
            "bloomgate serve",
            "bloomgate migrate",
            "bloomgate openapi",
            "bloomgate healthcheck",
            "bloomgate snapshot inspect data/snapshots/a.bloom",
            "bloomgate snapshot verify data/snapshots/a.bloom --data-dir data",
            "bloomgate plan --capacity 1000000 --false-positive-rate 0.01",
            "bloomgate key new --id gateway --scope check,add --filter revoked-jti",
            "bloomgate follow-sql revoked-jti --table auth.tokens --item jti --expires expires_at",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "bloomgate plan --capacity 1000000",
            "bloomgate snapshot verify",
            "bloomgate key new --id gateway",
            "bloomgate follow-sql revoked-jti --table auth.tokens",
            "bloomgate follow-sql A --table auth.tokens --item jti",
            "bloomgate key new --id gateway --scope chek",
            "bloomgate key new --id a/b --scope check",
            "bloomgate key new --id gateway --scope check --filter A",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_plan_tells_what_a_filter_takes() {
        let args = PlanArgs {
            capacity: 1_000_000,
            false_positive_rate: 0.01,
        };
        let text = plan(args).expect("in range");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "bit_count       9585059");
        assert_eq!(lines[1], "hash_count      7");
        assert!(lines[2].ends_with(" (1.14 MiB)"), "{}", lines[2]);
        assert!(
            lines[3].starts_with("fp_rate_at_1x   0.0100"),
            "{}",
            lines[3]
        );
        assert!(
            lines[4].starts_with("fp_rate_at_2x   0.157"),
            "{}",
            lines[4]
        );
        assert!(
            lines[5].starts_with("fp_rate_at_10x  0.995"),
            "{}",
            lines[5]
        );
        let impossible = PlanArgs {
            false_positive_rate: 2.0,
            ..args
        };
        assert!(plan(impossible).is_err());
    }

    #[test]
    fn a_new_key_is_printed_with_its_block() {
        let args = NewKeyArgs {
            id: "gateway".to_owned(),
            scope: vec![Scope::Check],
            filter: Vec::new(),
        };
        let text = key_new(&args).expect("randomness");
        assert!(text.lines().any(|line| line.starts_with("bg_")));
        assert!(text.contains("[[keys]]\nid = \"gateway\"\nsha256 = \""));
        assert!(text.ends_with("scopes = [\"check\"]\n"));
    }

    #[test]
    fn a_check_says_that_the_configuration_is_valid_or_all_that_is_not() {
        let check = |flags: &Flags| {
            let no_file = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
            config_check(flags, |_| None, no_file, 1 << 30)
        };
        let text = check(&Flags::default()).expect("the defaults are valid");
        assert!(text.starts_with("configuration is valid\n\nlisten = \"127.0.0.1:8080\"\n"));
        let wrong = Flags {
            listen: Some("x".to_owned()),
            store: Some("y".to_owned()),
            ..Flags::default()
        };
        let errors = check(&wrong).expect_err("two faults");
        assert_eq!(errors.problems().len(), 2, "{errors}");
    }
}
