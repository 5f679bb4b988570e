//! Which way bytes take to a peer.
//!
//! A job on one machine uses shared memory, and nothing of this room but the [choice](FabricChoice). One that spans machines has both:
//! [`Routes`] is a transport made of two, of which each peer is reached by one. Memory is registered with both, under one key.

mod routes;

pub use routes::{Route, Routes, Way};

use std::fmt;
use std::str::FromStr;

/// The route that a job is to use, as `--fabric` and `FARSIDE_FABRIC` spell it.
///
/// ```
/// use farside_fabric::route::FabricChoice;
///
/// assert_eq!("ofi:tcp".parse(), Ok(FabricChoice::Ofi(Some("tcp".into()))));
/// assert_eq!(FabricChoice::default().to_string(), "auto");
/// assert!("carrier pigeon".parse::<FabricChoice>().is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FabricChoice {
    /// Shared memory to processes of the same machine, libfabric to others.
    #[default]
    Auto,
    /// Shared memory only: all processes must be on one machine.
    Shm,
    /// libfabric only, also inside a machine; with this provider, or the best there is.
    Ofi(Option<String>),
}

/// No route has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no fabric is called {0:?}: there are auto, shm, ofi, and ofi:PROVIDER (ofi:tcp, ofi:verbs, ofi:shm)")]
pub struct UnknownFabric(String);

impl FromStr for FabricChoice {
    type Err = UnknownFabric;

    fn from_str(text: &str) -> Result<Self, UnknownFabric> {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b';'))
        };
        match (text, text.strip_prefix("ofi:")) {
            ("auto", _) => Ok(Self::Auto),
            ("shm", _) => Ok(Self::Shm),
            ("ofi", _) => Ok(Self::Ofi(None)),
            (_, Some(provider)) if is_name(provider) => Ok(Self::Ofi(Some(provider.to_owned()))),
            _ => Err(UnknownFabric(text.to_owned())),
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Shm => f.write_str("shm"),
            Self::Ofi(None) => f.write_str("ofi"),
            Self::Ofi(Some(provider)) => write!(f, "ofi:{provider}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_read_as_it_is_written() {
        for text in ["auto", "shm", "ofi", "ofi:tcp", "ofi:verbs;ofi_rxm"] {
            assert_eq!(text.parse::<FabricChoice>().unwrap().to_string(), text);
        }
        for text in ["", "ofi:", "OFI", "tcp", "ofi:tcp:1", "shm:1"] {
            assert!(text.parse::<FabricChoice>().unwrap_err().to_string().contains("ofi:PROVIDER"), "{text}");
        }
    }
}
