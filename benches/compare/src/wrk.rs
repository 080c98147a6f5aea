//! Load by wrk, with the scripts in `benches/load`.

use anyhow::Context as _;
use std::net::SocketAddr;

use crate::process::{LOAD_CORE, on_cores, output};

/// What wrk is to do.
pub(crate) struct Wrk<'a> {
    pub(crate) address: SocketAddr,
    /// The script's name in `benches/load`, without `.lua`.
    pub(crate) script: &'a str,
    /// What the script takes.
    pub(crate) arguments: Vec<&'a str>,
    pub(crate) connections: u32,
    pub(crate) seconds: u32,
}

/// What wrk found. Every answer was one of success.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) requests: f64,
    pub(crate) requests_a_second: f64,
    pub(crate) p99_ms: f64,
}

impl Wrk<'_> {
    pub(crate) fn run(&self) -> anyhow::Result<Load> {
        let mut command = on_cores(LOAD_CORE, "wrk");
        command
            .args(["-t", "1", "-c", &self.connections.to_string()])
            .args(["-d", &format!("{}s", self.seconds)])
            .args(["-s", &format!("benches/load/{}.lua", self.script)])
            .arg(format!("http://{}", self.address))
            .arg("--")
            .args(&self.arguments);
        let text = output(&mut command)?;
        let report = text.lines().find_map(|line| line.strip_prefix("report "));
        let report = report.with_context(|| format!("no report of wrk: {text}"))?;
        let field = |name: &str| -> anyhow::Result<f64> {
            let mut fields = report.split(' ').filter_map(|field| field.split_once('='));
            let (_, number) = fields
                .find(|(other, _)| *other == name)
                .context("a field is missing")?;
            Ok(number.parse()?)
        };
        anyhow::ensure!(
            field("failures")? == 0.0 && field("requests")? > 0.0,
            "{report}"
        );
        Ok(Load {
            requests: field("requests")?,
            requests_a_second: field("requests")? / field("microseconds")? * 1e6,
            p99_ms: field("p99")? / 1e3,
        })
    }
}
