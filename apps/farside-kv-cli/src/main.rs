//! `farside kv`: serves a key-value store, and uses one.

#![forbid(unsafe_code)]

mod bench;
mod error;
mod progress;
mod serve;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farside_kv::{Client, ClientError, Stat};
use farside_rpc_cli::ServerArguments;
use serde_json::{Value, json};

use self::error::KvError;
use self::progress::Progress;

/// Keep values of any size under keys, for programs of this machine and of others
#[derive(Debug, Parser)]
#[command(name = "farside-kv", bin_name = "farside kv")]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(serve::Arguments),
    /// Store a file or the standard input under a key
    Put {
        #[command(flatten)]
        server: ServerArguments,
        /// The key
        key: String,
        /// The file to store; `-` is the standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Write a value to a file or to the standard output
    ///
    /// A file gets its name when it is complete. If an earlier attempt was interrupted, the same
    /// command goes on where that ended.
    Get {
        #[command(flatten)]
        server: ServerArguments,
        /// The key
        key: String,
        /// The file to write; `-` is the standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Print the keys, with the sizes of their values
    List {
        #[command(flatten)]
        server: ServerArguments,
        /// Only keys that begin with this
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Remove a key
    Remove {
        #[command(flatten)]
        server: ServerArguments,
        /// The key
        key: String,
    },
    /// Print what the store knows of a value
    Stat {
        #[command(flatten)]
        server: ServerArguments,
        /// The key
        key: String,
    },
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    farside_command::run(run)
}

fn run(arguments: Arguments) -> Result<(), KvError> {
    match &arguments.action {
        Action::Serve(arguments) => serve::run(arguments),
        Action::Put { server, key, file } => put(server, key, file),
        Action::Get { server, key, file } => get(server, key, file),
        Action::List { server, prefix } => list(server, prefix),
        Action::Remove { server, key } => {
            let stat = connect(server)?.remove(key)?;
            report(server, key, &stat, &format!("removed {}: {} bytes\n", shown(key), stat.bytes))
        }
        Action::Stat { server, key } => {
            let stat = connect(server)?.stat(key)?;
            let Stat { version, bytes, crc32, .. } = stat;
            let modified = date(stat.modified_us);
            let text = format!("bytes    {bytes}\nmodified {modified}\ncrc32    {crc32:08x}\nversion  {version}\n");
            report(server, key, &stat, &text)
        }
        Action::Bench(arguments) => bench::run(arguments),
    }
}

fn connect(server: &ServerArguments) -> Result<Client, KvError> {
    Ok(Client::new(server.connect()?).deadline(server.time()))
}

fn put(server: &ServerArguments, key: &str, file: &Path) -> Result<(), KvError> {
    let kv = connect(server)?;
    let stat = if is_standard(file) {
        if io::stdin().is_terminal() {
            return Err(KvError::NoInput);
        }
        let progress = Progress::default();
        kv.put_from(key, io::stdin().lock(), |done| progress.show(done, None)).map_err(|error| match error {
            ClientError::Stream(cause) => KvError::Input(cause),
            error => error.into(),
        })?
    } else {
        let progress = Progress::default();
        kv.put_file(key, file, |done, of| progress.show(done, Some(of)))?
    };
    report(server, key, &stat, &format!("stored {}: {} bytes\n", shown(key), stat.bytes))
}

fn get(server: &ServerArguments, key: &str, file: &Path) -> Result<(), KvError> {
    let kv = connect(server)?;
    if is_standard(file) {
        return match kv.get_to(key, io::stdout().lock()) {
            Err(ClientError::Stream(cause)) => Err(KvError::Output(cause)),
            got => Ok(got.map(drop)?),
        };
    }
    let progress = Progress::default();
    let stat = kv.get_to_file(key, file, |done, of| progress.show(done, Some(of)))?;
    report(server, key, &stat, &format!("{}: {} bytes\n", file.display(), stat.bytes))
}

fn list(server: &ServerArguments, prefix: &str) -> Result<(), KvError> {
    let mut out = BufWriter::new(io::stdout().lock());
    for entry in connect(server)?.list(prefix) {
        let entry = entry?;
        let printed = if server.is_json() {
            writeln!(out, "{}", object(&entry.key, &entry.stat))
        } else {
            writeln!(out, "{:>12}  {}", entry.stat.bytes, shown(&entry.key))
        };
        printed.map_err(KvError::Output)?;
    }
    out.flush().map_err(KvError::Output)
}

/// Prints the text, or the object.
fn report(server: &ServerArguments, key: &str, stat: &Stat, text: &str) -> Result<(), KvError> {
    let text = if server.is_json() { format!("{}\n", object(key, stat)) } else { text.into() };
    io::stdout().write_all(text.as_bytes()).map_err(KvError::Output)
}

fn object(key: &str, stat: &Stat) -> Value {
    let Stat { version, bytes, modified_us, crc32 } = stat;
    let crc32 = format!("{crc32:08x}");
    json!({ "key": key, "bytes": bytes, "modified_us": modified_us, "crc32": crc32, "version": version })
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// A key as a terminal can show it, on one line.
fn shown(key: &str) -> String {
    if key.chars().any(char::is_control) { format!("{key:?}") } else { key.into() }
}

/// A time as a date of the Gregorian calendar, in UTC.
fn date(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (mut days, second) = (seconds / 86400, seconds % 86400);
    let mut year = 1970;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second, day) = (second / 3600, second / 60 % 60, second % 60, days + 1);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_735_689_600, "2025-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000 + 999_999), text);
        }
    }

    #[test]
    fn keys_take_one_line() {
        assert_eq!(shown("a b/é"), "a b/é");
        assert_eq!(shown("a\nb"), "\"a\\nb\"");
    }
}
