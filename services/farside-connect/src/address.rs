//! [`Address`]: where a server listens.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server listens, and clients find it.
///
/// | text | meaning |
/// |---|---|
/// | `shm:NAME` | a name that only processes of this machine see (and of this container, where the network is its own). It leaves nothing in the file system and is free once the server has ended |
/// | `shm:/PATH` | a socket in the file system, which a container can share with others |
/// | `tcp://HOST:PORT` | TCP. `[::1]:7000` names an IPv6 address. A server that listens on port 0 gets any free port |
/// | `file:PATH` | a file with the address of a server, which the server writes (`Builder::announce`) |
///
/// ```
/// # extern crate farside_connect as farside_rpc;
/// use farside_rpc::Address;
///
/// let address: Address = "tcp://[::1]:7000".parse()?;
/// assert_eq!(address.to_string(), "tcp://[::1]:7000");
/// # Ok::<(), farside_rpc::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A name of this machine.
    Shm(String),
    /// A socket in the file system.
    ShmPath(PathBuf),
    /// A host and a port.
    Tcp {
        /// The host's name or address. Without the brackets of IPv6.
        host: String,
        /// The port.
        port: u16,
    },
    /// A file that holds an address.
    File(PathBuf),
}

/// A text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address {text:?}: {why}; write shm:NAME, shm:/PATH, tcp://HOST:PORT or file:PATH")]
pub struct AddressError {
    /// The text.
    pub text: String,
    /// The fault.
    pub why: &'static str,
}

/// The longest name of a socket, in bytes. The system's limit is 107.
const NAME_BYTES_MAX: usize = 90;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|why| AddressError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Address, &'static str> {
    if let Some(name) = text.strip_prefix("shm:") {
        return match name {
            "" => Err("the name is empty"),
            _ if name.len() > NAME_BYTES_MAX => Err("the name is longer than 90 bytes"),
            _ if name.contains('\0') => Err("the name contains a zero byte"),
            _ if name.starts_with('/') => Ok(Address::ShmPath(name.into())),
            _ => Ok(Address::Shm(name.to_owned())),
        };
    }
    if let Some(path) = text.strip_prefix("file:") {
        return if path.is_empty() { Err("the path is empty") } else { Ok(Address::File(path.into())) };
    }
    let rest = text.strip_prefix("tcp://").ok_or("its scheme is unknown")?;
    let (host, port) = rest.rsplit_once(':').ok_or("it has no port")?;
    let port = port.parse().map_err(|_| "its port is no number below 65536")?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        None if host.contains(':') => Err("an IPv6 address needs brackets"),
        _ if inner.unwrap_or(host).is_empty() => Err("the host is empty"),
        _ => Ok(Address::Tcp { host: inner.unwrap_or(host).to_owned(), port }),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(name) => write!(f, "shm:{name}"),
            Self::ShmPath(path) => write!(f, "shm:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl Address {
    /// The address that a client connects to: itself, or what its file holds.
    ///
    /// # Errors
    /// The system's error if the file cannot be read; `InvalidData` if it holds no address.
    pub fn follow(&self) -> std::io::Result<Self> {
        let Self::File(path) = self else { return Ok(self.clone()) };
        let invalid = |error: AddressError| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let found: Self = std::fs::read_to_string(path)?.trim().parse().map_err(invalid)?;
        match found {
            Self::File(_) => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "it leads to another file")),
            found => Ok(found),
        }
    }

    /// Returns whether it leads to shared memory.
    pub(crate) fn is_shm(&self) -> bool {
        matches!(self, Self::Shm(_) | Self::ShmPath(_))
    }

    /// Writes the address to a file, which readers find whole or not at all.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}", std::process::id()));
        std::fs::write(&part, format!("{self}\n"))?;
        std::fs::rename(&part, path).inspect_err(|_| {
            let _ = std::fs::remove_file(&part);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_their_text_says() {
        for text in ["shm:kv", "shm:/run/kv", "tcp://host:7000", "tcp://[::]:0", "tcp://10.0.0.1:1", "file:/tmp/a"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_wrong_text_is_refused_with_its_reason() {
        let cases = [
            ("kv", "scheme"),
            ("shm:", "empty"),
            ("file:", "empty"),
            ("tcp://host", "no port"),
            ("tcp://host:65536", "no number"),
            ("tcp://::1:7000", "brackets"),
            ("tcp://:7000", "empty"),
            ("shm:a\0b", "zero byte"),
        ];
        for (text, why) in cases {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.why.contains(why), "{error}");
        }
        assert!(format!("shm:{}", "x".repeat(91)).parse::<Address>().is_err());
    }
}
