//! `farside inspect trace`: records what a job does for some time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farside_viewer::{Awaited, CallSite, MessageSum, PutSite, Site, Trace, WaitSite};
use serde_json::{Value, json};

use super::JobArguments;
use crate::error::ShowError;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The time, in seconds
    #[arg(value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    job: JobArguments,
    /// Write the events to a file that Perfetto (ui.perfetto.dev) opens
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the summary as one JSON object on one line
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number from 0.001 to 3600".into()),
    }
}

/// The number of places of each kind that are printed.
const SHOWN: usize = 20;

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Result<(), ShowError> {
    let Arguments { seconds, job, out: path, json } = arguments;
    // Before the trace, so that a wrong path does not cost the time.
    let file = path
        .as_ref()
        .map(|path| File::create(path).map_err(|cause| ShowError::WriteFile { path: path.clone(), cause }));
    let file = file.transpose()?;
    let trace = job.connect()?.trace(Duration::from_secs_f64(*seconds))?;
    if let (Some(file), Some(path)) = (file, path) {
        let mut file = BufWriter::new(file);
        let written = trace.write_chrome(&mut file).and_then(|()| file.flush());
        written.map_err(|cause| ShowError::WriteFile { path: path.clone(), cause })?;
    }
    if *json { writeln!(out, "{}", object(&trace)) } else { print(&trace, out) }.map_err(ShowError::Output)
}

fn site_object(site: &Site) -> Value {
    json!({ "doing": site.doing, "file": site.file, "line": site.line })
}

fn object(trace: &Trace) -> Value {
    let call = |CallSite { site, sent, ran, time, delay, .. }: CallSite| {
        json!({
            "site": site.as_ref().map(site_object), "sent": sent, "ran": ran, "seconds": time.as_secs_f64(),
            "delay": delay.map(|delay| delay.as_secs_f64()),
        })
    };
    let wait = |WaitSite { site, count, time, longest, whom, .. }: WaitSite| {
        let whom: Vec<Value> =
            whom.iter().map(|(whom, time)| json!({ "for": whom.to_string(), "seconds": time.as_secs_f64() })).collect();
        json!({
            "site": site_object(&site), "count": count, "seconds": time.as_secs_f64(),
            "longest": longest.as_secs_f64(), "whom": whom,
        })
    };
    let put = |PutSite { site, count, bytes, .. }: PutSite| json!({ "site": site_object(&site), "count": count, "bytes": bytes });
    let message = |MessageSum { from, to, count, bytes, .. }: MessageSum| json!({ "from": from, "to": to, "count": count, "bytes": bytes });
    let workers: Vec<Value> = trace
        .workers
        .iter()
        .map(|of| json!({ "process": of.process, "worker": of.worker, "events": of.events.len(), "lost": of.lost }))
        .collect();
    json!({
        "seconds": (trace.end - trace.begin).as_secs_f64(), "workers": workers,
        "calls": trace.calls().into_iter().map(call).collect::<Vec<_>>(),
        "puts": trace.puts().into_iter().map(put).collect::<Vec<_>>(),
        "messages": trace.messages().into_iter().map(message).collect::<Vec<_>>(),
        "waits": trace.waits().into_iter().map(wait).collect::<Vec<_>>(),
    })
}

fn print(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    for of in &trace.workers {
        let lost = if of.lost > 0 { format!(", {} lost", of.lost) } else { String::new() };
        writeln!(out, "worker {}: {} events{lost}", of.worker, of.events.len())?;
    }
    writeln!(out, "\n{:>10} {:>10} {:>10} {:>10}  calls", "sent", "run", "ms", "delay us")?;
    for CallSite { site, sent, ran, time, delay, .. } in trace.calls().into_iter().take(SHOWN) {
        let delay = delay.map_or("-".into(), |delay| format!("{:.1}", delay.as_secs_f64() * 1e6));
        let site = site.map_or("of places that are not known".into(), |site| site.to_string());
        writeln!(out, "{sent:>10} {ran:>10} {:>10.3} {delay:>10}  {site}", time.as_secs_f64() * 1e3)?;
    }
    let puts = trace.puts();
    if !puts.is_empty() {
        writeln!(out, "\n{:>10} {:>10} {:>10}  puts", "count", "bytes", "")?;
    }
    for PutSite { site, count, bytes, .. } in puts.into_iter().take(SHOWN) {
        writeln!(out, "{count:>10} {bytes:>10} {:>10}  {site}", "")?;
    }
    let messages = trace.messages();
    if !messages.is_empty() {
        writeln!(out, "\n{:>10} {:>10} {:>10}  messages of pipes", "count", "bytes", "")?;
    }
    for MessageSum { from, to, count, bytes, .. } in messages.into_iter().take(SHOWN) {
        writeln!(out, "{count:>10} {bytes:>10} {:>10}  from worker {from} to worker {to}", "")?;
    }
    writeln!(out, "\n{:>10} {:>10} {:>10}  waits", "count", "ms", "longest ms")?;
    for WaitSite { site, count, time, longest, whom, .. } in trace.waits().into_iter().take(SHOWN) {
        let known = whom.first().filter(|(whom, _)| *whom != Awaited::Unknown);
        let whom = known.map(|(whom, _)| format!(", mostly for {whom}")).unwrap_or_default();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        writeln!(out, "{count:>10} {:>10.3} {:>10.3}  {site}{whom}", ms(time), ms(longest))?;
    }
    Ok(())
}
