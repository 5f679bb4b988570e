//! `farside kv serve`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use farside_kv::{KvServer, Store};
use farside_rpc::{Server, Tokens};
use farside_rpc_cli::secret;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::KvError;

/// The time for calls that run when the server is to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Serve a store until SIGINT or SIGTERM
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to listen: shm:NAME, shm:/PATH or tcp://HOST:PORT. Port 0 is any free port
    #[arg(required = true, value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// The folder of the store; it is created if there is none
    #[arg(long, required_unless_present = "memory")]
    dir: Option<PathBuf>,
    /// Keep the store in memory, until the server ends
    #[arg(long, conflicts_with = "dir")]
    memory: bool,
    /// A token that clients may prove: its name, the file with its secret, and its rights. Needed
    /// on networks. May be given several times
    #[arg(long = "token", value_name = "NAME=FILE[:read,write]")]
    tokens: Vec<Token>,
    /// Write the first address to a file, for clients of file:PATH
    #[arg(long, value_name = "FILE")]
    announce: Option<PathBuf>,
    /// Number of calls that run at once. Most of them wait for the disk
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// For how many microseconds to look for the next call before sleeping. A call that comes in
    /// time costs no wake-up. Looking takes a CPU
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    spin: u64,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

/// A token with its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: String,
    file: PathBuf,
    rights: Vec<String>,
}

/// A text that is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid token {0:?}: give NAME=FILE, NAME=FILE:read or NAME=FILE:read,write")]
struct InvalidToken(String);

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let invalid = || InvalidToken(text.into());
        let (name, file) = text.split_once('=').ok_or_else(invalid)?;
        let (file, rights) = file.rsplit_once(':').unwrap_or((file, "read,write"));
        let rights: Vec<_> = rights.split(',').map(String::from).collect();
        let is_right = |right: &String| right == "read" || right == "write";
        if name.is_empty() || file.is_empty() || !rights.iter().all(is_right) {
            return Err(invalid());
        }
        Ok(Self { name: name.into(), file: file.into(), rights })
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), KvError> {
    // A signal that comes while the store is opened ends the server as soon as it has started.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(KvError::Signals)?;
    let mut tokens = Tokens::new();
    for Token { name, file, rights } in &arguments.tokens {
        tokens = tokens.with(name, secret(file)?, rights);
    }
    let mut builder = Server::builder().tokens(tokens).pool(arguments.threads.into());
    // A client that is slow on purpose leaves threads for others.
    builder = builder.max_threads((usize::from(arguments.threads) * 3 / 4).max(1));
    builder = builder.spin(Duration::from_micros(arguments.spin));
    for address in &arguments.addresses {
        builder = builder.listen(address)?;
    }
    if let Some(file) = &arguments.announce {
        builder = builder.announce(file);
    }
    let store = match &arguments.dir {
        Some(dir) => Store::open(dir)?,
        None => Store::memory(),
    };
    let server = builder.provider(0, KvServer::new(store)).start()?;
    let addresses: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    let text = if arguments.json {
        format!("{}\n", json!({ "addresses": addresses, "dir": arguments.dir }))
    } else {
        let place = arguments.dir.as_ref().map_or("memory".into(), |dir| dir.display().to_string());
        format!("serving {place} at {}\n", addresses.join(" and "))
    };
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(KvError::Output)?;
    signals.forever().next();
    Ok(server.shutdown(Instant::now() + DRAIN)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_rights() {
        let token = |file: &str, rights: &[&str]| Token {
            name: "a".into(),
            file: file.into(),
            rights: rights.iter().map(ToString::to_string).collect(),
        };
        assert_eq!("a=/f".parse(), Ok(token("/f", &["read", "write"])));
        assert_eq!("a=/f=g:read".parse(), Ok(token("/f=g", &["read"])));
        assert_eq!("a=/f:g:write,read".parse(), Ok(token("/f:g", &["write", "read"])));
        for text in ["", "a", "=f", "a=", "a=:read", "a=f:all", "a=f:", "a=f:read,"] {
            assert_eq!(text.parse::<Token>(), Err(InvalidToken(text.into())));
        }
    }
}
