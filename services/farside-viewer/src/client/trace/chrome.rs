//! A trace as JSON in the form of Chrome's trace events, which Perfetto opens.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use super::{Occurrence, Trace, TraceEvent, WorkerTrace};
use crate::client::workers::{Awaited, Site};

impl Trace {
    /// Writes the trace as JSON, which <https://ui.perfetto.dev> and `chrome://tracing` open. Each
    /// process of the job is a process there, and each worker a thread. An arrow leads from each
    /// call to its run.
    ///
    /// # Errors
    /// The error of a write to `out`.
    pub fn write_chrome(&self, mut out: impl Write) -> io::Result<()> {
        let origins = self.origins();
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut line = Line { out: &mut out, is_first: true };
        for WorkerTrace { process, worker, lost, .. } in &self.workers {
            let name = |what, id, name: &str| {
                format!(
                    "\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{id},\"args\":{{\"name\":\"{name}\"}}"
                )
            };
            line.write(&name("process_name", 0, &format!("process {process}")))?;
            let lost = if *lost > 0 { format!(" ({lost} events lost)") } else { String::new() };
            line.write(&name("thread_name", *worker, &format!("worker {worker}{lost}")))?;
        }
        for of in &self.workers {
            let thread = format!("\"pid\":{},\"tid\":{}", of.process, of.worker);
            for TraceEvent { at, time, what } in &of.events {
                let begin = self.microseconds(*at);
                let mut slice = |name: &str, kind: &str, arguments: &str| {
                    let name = escaped(name);
                    let length = time.as_nanos() as f64 / 1e3;
                    line.write(&format!(
                        "\"ph\":\"X\",\"cat\":\"{kind}\",\"name\":\"{name}\",{thread},\"ts\":{begin},\"dur\":{length},\
                         \"args\":{{{arguments}}}"
                    ))
                };
                let flow = |from: u32, to: u32, number: u32, phase: &str| {
                    format!(
                        "{phase},\"cat\":\"call\",\"name\":\"call\",\"id\":\"{from}-{to}-{number}\",{thread},\"ts\":{begin}"
                    )
                };
                match what {
                    Occurrence::Sent { to, site, number } => {
                        slice(&named("call", site), "call", &format!("\"to\":{to},{}", place(site)))?;
                        if let Some(number) = number {
                            line.write(&flow(of.worker, *to, *number, "\"ph\":\"s\""))?;
                        }
                    }
                    Occurrence::Ran { from, site, number } => {
                        let paired = match (from, number) {
                            (Awaited::Worker(from), Some(number)) => Some((*from, *number)),
                            _ => None,
                        };
                        let key = paired.map(|(from, number)| (from, of.worker, number));
                        let origin = key.and_then(|key| origins.get(&key));
                        let site = origin.map(|(_, site)| *site).or(site.as_ref());
                        let name = site.map_or_else(|| "run".to_owned(), |site| named("run", site));
                        let place = site.map(|site| format!(",{}", place(site))).unwrap_or_default();
                        slice(&name, "run", &format!("\"from\":\"{from}\"{place}"))?;
                        if let (Some((from, number)), Some(_)) = (paired, origin) {
                            line.write(&flow(from, of.worker, number, "\"ph\":\"f\",\"bp\":\"e\""))?;
                        }
                    }
                    Occurrence::Waited { site, whom } => {
                        slice(&site.doing, "wait", &format!("\"for\":\"{whom}\",{}", place(site)))?;
                    }
                    Occurrence::Collective { site } => slice(&site.doing, "collective", &place(site))?,
                    Occurrence::Put { to, bytes, site } => {
                        slice(&named("put", site), "put", &format!("\"to\":{to},\"bytes\":{bytes},{}", place(site)))?;
                    }
                    Occurrence::Message { to, bytes } => {
                        slice("message", "message", &format!("\"to\":{to},\"bytes\":{bytes}"))?;
                    }
                }
            }
        }
        writeln!(out, "\n]}}")
    }

    fn microseconds(&self, at: Duration) -> f64 {
        let since = |at: Duration, from: Duration| at.saturating_sub(from).as_nanos() as f64 / 1e3;
        if at < self.begin { -since(self.begin, at) } else { since(at, self.begin) }
    }
}

/// Writes objects, one a line.
struct Line<'a, W> {
    out: &'a mut W,
    is_first: bool,
}

impl<W: Write> Line<'_, W> {
    fn write(&mut self, content: &str) -> io::Result<()> {
        let before = if std::mem::take(&mut self.is_first) { "" } else { "," };
        write!(self.out, "{before}\n{{{content}}}")
    }
}

/// The name of a call: the end of its file's path and the line.
fn named(what: &str, site: &Site) -> String {
    let file = site.file.rsplit('/').next().unwrap_or(&site.file);
    format!("{what} {file}:{}", site.line)
}

fn place(site: &Site) -> String {
    format!("\"at\":\"{}:{}\"", escaped(&site.file), site.line)
}

/// A text inside the quotes of JSON.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            control if control < ' ' => drop(write!(escaped, "\\u{:04x}", control as u32)),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::small;
    use super::escaped;

    #[test]
    fn a_trace_is_written_as_events_with_flows() {
        let mut written = Vec::new();
        small().write_chrome(&mut written).unwrap();
        let text = String::from_utf8(written).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        assert_eq!(*lines.last().unwrap(), "]}");
        let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        assert_eq!((count("\"ph\":\"s\""), count("\"ph\":\"f\"")), (2, 2));
        assert_eq!((count("\"ph\":\"X\""), count("\"ph\":\"M\"")), (10, 4));
        assert_eq!(count("\"cat\":\"put\",\"name\":\"put a \\\"b\\\".rs:5\""), 2);
        assert_eq!(
            count("\"name\":\"message\",\"pid\":0,\"tid\":0,\"ts\":29,\"dur\":0,\"args\":{\"to\":1,\"bytes\":9}"),
            1
        );
        assert_eq!(count("\"id\":\"0-1-2\""), 2);
        assert_eq!(count("\"name\":\"run a \\\"b\\\".rs:7\",\"pid\":1,\"tid\":1,\"ts\":24,\"dur\":10,"), 1);
        assert_eq!(count("\"name\":\"waiting\""), 1);
        assert!(lines[1].contains("process 0") && lines[2].contains("worker 0 (3 events lost)"));
        assert_eq!(escaped("a\n\\"), "a\\u000a\\\\");
    }
}
