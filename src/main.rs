//! The program: command line → configuration → telemetry → app → exit code.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where the program talks to whoever started it"
)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use bloomgate::cli::{self, Cli, Command, ConfigCommand, KeyCommand, SnapshotCommand};
use bloomgate::config::{self, Config, ConfigErrors};
use bloomgate::{app, follow_sql, healthcheck, http, huge_pages, telemetry};
use clap::Parser;

/// The exit code for a configuration that is not valid, as for a command line that is not.
const INVALID_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<ConfigErrors>() {
            Some(problems) => {
                eprintln!("bloomgate: the configuration is not valid\n{problems}");
                ExitCode::from(INVALID_CONFIGURATION)
            }
            None => {
                eprintln!("bloomgate: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    match cli.command_or_serve() {
        Command::Serve => {
            huge_pages::ask();
            serve(load_config(cli)?)
        }
        Command::Config(ConfigCommand::Check) => {
            print!(
                "{}",
                cli::config_check(&cli.flags, look_up, config::read_text_file, memory())?
            );
            Ok(())
        }
        Command::Migrate => {
            runtime()?.block_on(app::migrate(&load_config(cli)?))?;
            println!("the schema is up to date");
            Ok(())
        }
        Command::Openapi => {
            println!("{}", http::openapi().to_pretty_json()?);
            Ok(())
        }
        Command::Plan(args) => {
            print!("{}", cli::plan(*args)?);
            Ok(())
        }
        Command::Key(KeyCommand::New(args)) => {
            print!("{}", cli::key_new(args)?);
            Ok(())
        }
        Command::Snapshot(SnapshotCommand::Inspect(args)) => {
            print!("{}", app::snapshots::inspect(&args.file)?);
            Ok(())
        }
        Command::Snapshot(SnapshotCommand::Verify(args)) => {
            print!(
                "{}",
                app::snapshots::verify(&load_config(cli)?, &args.file)?
            );
            Ok(())
        }
        Command::FollowSql(args) => {
            print!("{}", follow_sql::follow_sql(&load_config(cli)?, args)?);
            Ok(())
        }
        Command::Healthcheck => {
            let listen: SocketAddr = load_config(cli)?.listen;
            Ok(runtime()?.block_on(healthcheck::ask(listen))?)
        }
    }
}

fn serve(config: Config) -> anyhow::Result<()> {
    telemetry::install_logs().context("logs cannot be set up")?;
    let prometheus = telemetry::install_metrics().context("metrics cannot be set up")?;
    // Whoever does not read the lines loses no service.
    let announce = |lines: &str| drop(std::io::stdout().write_all(lines.as_bytes()));
    let served = app::serve(config, prometheus, announce);
    Ok(runtime()?.block_on(served)?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")
}

fn load_config(cli: &Cli) -> Result<Config, ConfigErrors> {
    Config::load(&cli.flags, look_up, config::read_text_file, memory())
}

/// A variable that is no UTF-8 is there all the same, and must not read as unset.
fn look_up(variable: &str) -> Option<String> {
    std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
}

fn memory() -> u64 {
    config::available_bytes(config::read_text_file)
}
