//! `farside rpc`: looks at a server from outside.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use farside_rpc::{Client, Credentials};
use serde_json::json;

use crate::error::CliError;

/// Look at a server of remote procedures: is it there, what does it serve, what has it done?
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Call the server several times and print how long it takes to answer
    Ping {
        #[command(flatten)]
        server: ServerArguments,
        /// Number of calls
        #[arg(short = 'n', long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Print the services of the server, with the types of their procedures
    Describe {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Print how often each procedure has run, failed and been refused
    Stats {
        #[command(flatten)]
        server: ServerArguments,
    },
}

#[derive(Debug, Args)]
struct ServerArguments {
    /// Where the server listens: shm:NAME, shm:/PATH, tcp://HOST:PORT or file:PATH
    address: String,
    /// The name of the token to prove; its secret is in --secret-file
    #[arg(long, requires = "secret_file")]
    token: Option<String>,
    /// The file with the secret of the token; white space around it does not count
    #[arg(long, requires = "token")]
    secret_file: Option<PathBuf>,
    /// The time for each answer, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

impl ServerArguments {
    fn connect(&self) -> Result<Client, CliError> {
        let credentials = match (&self.token, &self.secret_file) {
            (Some(token), Some(path)) => {
                let read = std::fs::read_to_string(path);
                let secret = read.map_err(|cause| CliError::SecretFile { path: path.clone(), cause })?;
                Credentials::token(token, secret.trim())
            }
            _ => Credentials::own_user(),
        };
        let client = Client::connect(&self.address, credentials).map_err(|error| CliError::Rpc(error.to_string()))?;
        Ok(client.deadline(Duration::from_secs(self.timeout)))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let text = match &arguments.question {
        Question::Ping { server, count } => ping(server, *count)?,
        Question::Describe { server } => describe(server)?,
        Question::Stats { server } => stats(server)?,
    };
    io::stdout().write_all(text.as_bytes()).map_err(CliError::Output)
}

fn failed(error: impl ToString) -> CliError {
    CliError::Rpc(error.to_string())
}

fn ping(server: &ServerArguments, count: u32) -> Result<String, CliError> {
    let client = server.connect()?;
    let mut times = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        client.ping(number.into()).map_err(failed)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    if server.json {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let incarnation = client.incarnation().map(|number| format!("{number:016x}"));
        return Ok(format!(
            "{}\n",
            json!({
                "address": server.address,
                "incarnation": incarnation,
                "calls": count,
                "min_ns": ns(least),
                "median_ns": ns(median),
            })
        ));
    }
    Ok(format!("{} answered {count} calls: least {least:.1?}, median {median:.1?}\n", server.address))
}

fn describe(server: &ServerArguments) -> Result<String, CliError> {
    let services = server.connect()?.describe().map_err(failed)?;
    let mut text = String::new();
    if server.json {
        let services: Vec<_> = services
            .iter()
            .map(|service| {
                let procedures: Vec<_> =
                    service.procedures.iter().map(|(name, types)| json!({ "name": name, "types": types })).collect();
                json!({ "service": service.service, "provider": service.provider, "procedures": procedures })
            })
            .collect();
        return Ok(format!("{}\n", json!({ "address": server.address, "services": services })));
    }
    for service in services {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} (provider {})", service.service, service.provider);
        for (name, types) in service.procedures {
            let _ = writeln!(text, "  {name}: {types}");
        }
    }
    Ok(text)
}

fn stats(server: &ServerArguments) -> Result<String, CliError> {
    let stats = server.connect()?.stats().map_err(failed)?;
    if server.json {
        let stats: Vec<_> = stats
            .iter()
            .map(|stats| {
                let (done, failed, refused) = (stats.done, stats.failed, stats.refused);
                json!({ "procedure": stats.name, "done": done, "failed": failed, "refused": refused })
            })
            .collect();
        return Ok(format!("{}\n", json!({ "address": server.address, "procedures": stats })));
    }
    let mut text = format!("{:>10} {:>10} {:>10}  procedure\n", "done", "failed", "refused");
    for stats in stats {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:>10} {:>10} {:>10}  {}", stats.done, stats.failed, stats.refused, stats.name);
    }
    Ok(text)
}
