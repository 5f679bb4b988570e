//! Doors on the network: which setting opens them, and the tokens that they ask for.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use farside_rpc::{Address, Credentials, Tokens, Wire};
use farside_sys::net::tcp::own_addresses;
use farside_sys::process::random_bytes;

/// The variable that keeps doors shut, or opens them on the network.
pub(crate) const INSPECT: &str = "FARSIDE_INSPECT";
/// The variable that names the file with tokens.
pub const TOKEN_FILE: &str = "FARSIDE_INSPECT_TOKEN_FILE";
/// The right to look, and the right to change something, which includes the other.
pub(crate) const READ: &str = "read";
pub(crate) const WRITE: &str = "write";
/// The least bytes of a secret, and the most of a file.
const SECRET_BYTES_MIN: usize = 16;
const FILE_BYTES_MAX: u64 = 4096;
/// The most addresses of a machine that are handed out.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// A right and the secret that gives it.
#[derive(Clone, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Token {
    pub(crate) right: String,
    secret: String,
}

impl fmt::Debug for Token {
    /// Does not tell the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("right", &self.right).finish_non_exhaustive()
    }
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// No file is named.
    #[error("no file with a token: name one with --token-file or {TOKEN_FILE}; `farside inspect token FILE` makes one")]
    None,
    /// The file cannot be read.
    #[error("cannot read the tokens in {}: {cause}; `farside inspect token FILE` makes such a file", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Other users may read the file.
    #[error("other users may read the tokens in {0}: chmod 600 {0}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// The file has something else.
    #[error(
        "{} has no tokens: write `read SECRET` or `write SECRET`, with secrets of {SECRET_BYTES_MIN} bytes or more, one a line",
        path.display()
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the tokens of a file that only its user can read.
pub fn read_tokens(path: &Path) -> Result<Vec<Token>, TokenError> {
    let failed = |cause| TokenError::Read { path: path.into(), cause };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.permissions().mode() & 0o077 != 0 {
        return Err(TokenError::Open { path: path.into() });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    tokens_in(&text).ok_or_else(|| TokenError::Form { path: path.into() })
}

fn tokens_in(text: &str) -> Option<Vec<Token>> {
    let token = |line: &str| {
        let (right, secret) = line.split_once(' ')?;
        let secret = secret.trim();
        let is_token = [READ, WRITE].contains(&right) && secret.len() >= SECRET_BYTES_MIN;
        is_token.then(|| Token { right: right.into(), secret: secret.into() })
    };
    let tokens: Option<Vec<Token>> = text.lines().filter(|line| !line.trim().is_empty()).map(token).collect();
    tokens.filter(|tokens| !tokens.is_empty())
}

/// Makes a file with two new tokens that only its user can read: one to change things, and one only
/// to look. A door knows all tokens of its file. A client proves the first of its own.
///
/// # Errors
/// The system's: among others if the file exists.
pub fn create_token_file(path: &Path) -> io::Result<()> {
    let secret =
        || Ok::<String, io::Error>(random_bytes::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let text = format!("{WRITE} {}\n{READ} {}\n", secret()?, secret()?);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// The first secret of a file with tokens.
///
/// # Errors
/// [`TokenError`].
pub fn first_secret(path: &Path) -> Result<String, TokenError> {
    Ok(read_tokens(path)?.swap_remove(0).secret)
}

/// The tokens as a server knows them.
pub(crate) fn known(tokens: &[Token]) -> Tokens {
    tokens.iter().fold(Tokens::new(), |all, Token { right, secret }| {
        all.with(right, secret, if right == WRITE { &[READ, WRITE][..] } else { &[READ] }.iter().copied())
    })
}

/// The secret that proves a token.
pub fn credentials(Token { right, secret }: &Token) -> Credentials {
    Credentials::token(right, secret)
}

/// The addresses of this machine that others may reach it by, the likeliest first.
pub(crate) fn reachable_addresses() -> Vec<String> {
    let is_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    };
    let mut all = own_addresses().unwrap_or_default();
    all.retain(|address| !is_local(address));
    all.sort_by_key(IpAddr::is_ipv6);
    all.iter().take(ADDRESSES_MAX).map(IpAddr::to_string).collect()
}

/// The host and the port at which a text has a door listen: `tcp`, or `tcp://HOST:PORT`.
pub(crate) fn listening(text: &str) -> Option<(String, u16)> {
    if text == "tcp" {
        return Some(("*".into(), 0));
    }
    match text.parse() {
        Ok(Address::Tcp { host, port }) => Some((host, port)),
        _ => None,
    }
}

/// The text of a host and a port.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("tcp://[{host}]:{port}") } else { format!("tcp://{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_from_their_file() {
        let folder = std::env::temp_dir().join(format!("farside-inspect-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tokens");
        assert!(matches!(read_tokens(&path), Err(TokenError::Read { .. })));
        create_token_file(&path).unwrap();
        create_token_file(&path).unwrap_err();
        let tokens = read_tokens(&path).unwrap();
        assert!(tokens.iter().map(|token| token.right.as_str()).eq(["write", "read"]));
        assert!(tokens.iter().all(|token| token.secret.len() == 32));
        assert_ne!(tokens[0].secret, tokens[1].secret);
        assert!(!format!("{tokens:?}").contains(&tokens[0].secret));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_tokens(&path), Err(TokenError::Open { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
        for wrong in ["", "\n", "write short", "all 0123456789abcdef", "0123456789abcdef", "read 0123456789abcdef\nx"] {
            assert_eq!(tokens_in(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_setting_says_where_to_listen() {
        assert_eq!(listening("tcp"), Some(("*".into(), 0)));
        assert_eq!(listening("tcp://[::1]:7"), Some(("::1".into(), 7)));
        assert_eq!(address("::1", 7), "tcp://[::1]:7");
        for wrong in ["", "on", "tcp:", "tcp://host", "shm:name"] {
            assert_eq!(listening(wrong), None, "{wrong:?}");
        }
    }
}
