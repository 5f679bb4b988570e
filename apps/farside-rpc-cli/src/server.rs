//! The server that a command asks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use farside_rpc::{Client, Credentials};

use crate::error::{RpcError, failed};

/// The server that is meant, and how to reach it.
#[derive(Debug, Args)]
pub struct ServerArguments {
    /// Where the server listens: shm:NAME, shm:/PATH, tcp://HOST:PORT or file:PATH
    address: String,
    /// The name of the token to prove; its secret is in --secret-file
    #[arg(long, requires = "secret_file")]
    token: Option<String>,
    /// The file with the secret of the token; white space around it does not count
    #[arg(long, requires = "token")]
    secret_file: Option<PathBuf>,
    /// The time to connect, and for each answer, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

/// Reads the secret of a token.
///
/// # Errors
/// [`RpcError::SecretFile`].
pub fn secret(path: &Path) -> Result<String, RpcError> {
    let read = std::fs::read_to_string(path);
    let secret = read.map_err(|cause| RpcError::SecretFile { path: path.into(), cause })?;
    Ok(secret.trim().into())
}

impl ServerArguments {
    /// Returns the time for each answer.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Returns whether the answer is to be JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// [`RpcError::Rpc`], [`RpcError::SecretFile`].
    pub fn connect(&self) -> Result<Client, RpcError> {
        let credentials = match (&self.token, &self.secret_file) {
            (Some(token), Some(path)) => Credentials::token(token, secret(path)?),
            _ => Credentials::own_user(),
        };
        let connect = Client::to(&self.address, credentials).map_err(failed)?;
        connect.deadline(self.time()).attempt().map_err(failed)
    }
}
