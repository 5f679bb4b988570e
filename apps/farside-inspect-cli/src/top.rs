//! `farside top`: where the time of a running job's workers goes.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use clap::Args;
use farside_viewer::session::workers_object;
use farside_viewer::{Awaited, InspectError, Inspector, Shares, Site, WorkerCounters, WorkerState, cycles};
use serde_json::Value;

use crate::error::ShowError;
use crate::inspect::TokenArguments;

/// Show where the time of a running job's workers goes: in the program, in calls and in waits
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The job: its name, its number, NAME/NUMBER, or tcp://HOST:PORT; may be left out if there is
    /// one
    #[arg(default_value = "", hide_default_value = true)]
    job: String,
    #[command(flatten)]
    token: TokenArguments,
    /// Print one interval and end
    #[arg(long)]
    once: bool,
    /// Print one JSON object a line for each interval
    #[arg(long)]
    json: bool,
    /// Intervals a second
    #[arg(long, value_name = "HZ", default_value_t = 1.0, value_parser = rate)]
    rate: f64,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.25..=20.0).contains(&rate) => Ok(rate),
        _ => Err("expected a number from 0.25 to 20".into()),
    }
}

/// Moves the cursor to the upper left corner and clears the screen. Long lines are cut.
const CLEAR: &str = "\x1b[H\x1b[J\x1b[?7l";
/// Wraps lines again.
const WRAP: &str = "\x1b[?7h";

pub(crate) fn run(arguments: &Arguments) -> Result<(), ShowError> {
    let inspector = Inspector::connect(arguments.token.target(&arguments.job))?;
    let mut out = io::stdout().lock();
    let redraws = !arguments.once && !arguments.json && out.is_terminal();
    let mut before = inspector.workers()?;
    loop {
        thread::sleep(Duration::from_secs_f64(1.0 / arguments.rate));
        let now = match inspector.workers() {
            Ok(now) => now,
            Err(InspectError::NoJob { .. }) if !arguments.once => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let interval = Interval { job: inspector.job().to_string(), before: &before, now: &now };
        let text = if arguments.json { format!("{}\n", interval.object()) } else { interval.text() };
        let (clear, wrap) = if redraws { (CLEAR, WRAP) } else { ("", "") };
        write!(out, "{clear}{text}{wrap}").and_then(|()| out.flush()).map_err(ShowError::Output)?;
        if arguments.once {
            return Ok(());
        }
        before = now;
    }
}

/// Two looks at a job.
struct Interval<'a> {
    job: String,
    before: &'a [WorkerState],
    now: &'a [WorkerState],
}

impl Interval<'_> {
    /// The workers, with what happened between the looks, if both found them.
    fn workers(&self) -> impl Iterator<Item = (&WorkerState, Option<(Shares, WorkerCounters)>)> {
        self.now.iter().map(|now| {
            let before = self.before.iter().find(|before| before.worker == now.worker);
            let shares = before.and_then(|before| {
                let counted = now.counters.zip(before.counters).map(|(now, before)| now.since(&before));
                Some((now.since(before)?, counted.unwrap_or_default()))
            });
            (now, shares)
        })
    }

    fn object(&self) -> Value {
        let mut object = workers_object(self.before, self.now);
        object["job"] = self.job.clone().into();
        object
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}  {} workers\n{:>6} {:>8} {:>6} {:>6} {:>9} {:>8} {:>9} {:>7} {:>7} {:>7} {:>7}  now\n",
            self.job,
            self.now.len(),
            "worker",
            "program",
            "calls",
            "waits",
            "sent/s",
            "MB/s",
            "run/s",
            "stalls",
            "queued",
            "pending",
            "rings"
        );
        for (now, between) in self.workers() {
            text += &format!("{:>6} ", format!("{}{}", now.worker, if now.is_of_pool { "p" } else { "" }));
            text += &match between {
                None => format!("{:>67}", ""),
                Some((shares, counted)) => {
                    let percent = |time| format!("{:.1}%", 100.0 * share(time, &shares));
                    let rate = |count: u64| count as f64 / counted.at.as_secs_f64().max(1e-9);
                    format!(
                        "{:>8} {:>6} {:>6} {:>9.0} {:>8.2} {:>9.0} {:>7} {:>7}",
                        percent(shares.program),
                        percent(shares.calls),
                        percent(shares.all_waits()),
                        rate(counted.calls),
                        rate(counted.bytes) / 1e6,
                        rate(counted.executed),
                        counted.stalls,
                        counted.staged
                    )
                }
            };
            let (pending, rings) = now.counters.map_or((0, 0), |of| (of.replies_pending, of.ring_bytes));
            text += &format!(" {pending:>7} {:>7}  {}\n", size(rings), doing(now));
        }
        let mut waits: Vec<(f64, u32, Site)> = Vec::new();
        for (now, between) in self.workers() {
            let Some((shares, _)) = between else { continue };
            waits.extend(shares.waits.iter().map(|(site, time)| (share(*time, &shares), now.worker, site.clone())));
        }
        waits.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (share, worker, site) in waits.iter().filter(|(share, ..)| *share >= 0.01).take(WAITS_SHOWN) {
            text += &format!("{:>6.1}%  worker {worker}: {site}\n", share * 100.0);
        }
        for cycle in cycles(self.before, self.now) {
            let names: Vec<String> = cycle.iter().chain(cycle.first()).map(u32::to_string).collect();
            text += &format!("workers wait for each other: {}\n", names.join(" -> "));
        }
        text
    }
}

/// The number of waits that are printed below the workers.
const WAITS_SHOWN: usize = 10;

fn share(time: Duration, shares: &Shares) -> f64 {
    time.as_secs_f64() / shares.time.as_secs_f64().max(1e-9)
}

/// A size of memory, in at most 5 characters.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes}"),
        10_000..10_240_000 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

fn doing(now: &WorkerState) -> String {
    let age = |since: Duration| format!("{:.1} s", now.at.saturating_sub(since).as_secs_f64());
    match (&now.call, &now.wait) {
        (Some(call), _) => {
            let what = call.site.as_ref().map_or("runs a call".into(), |site| format!("runs a {site}"));
            call.since.map_or(what.clone(), |since| format!("{what}, {}", age(since)))
        }
        (None, Some(wait)) if wait.whom == Awaited::Unknown => format!("{}, {}", wait.site, age(wait.since)),
        (None, Some(wait)) => format!("{}, for {}, {}", wait.site, wait.whom, age(wait.since)),
        (None, None) => "computes".into(),
    }
}
