//! The transport that carries bytes to each peer.
//!
//! A job on one machine uses shared memory, and only the [choice](FabricChoice) of this module. A
//! job that spans machines uses both transports: [`Routes`] combines two, and reaches each peer by
//! one of them. Memory is registered with both, under one key.

mod routes;

pub use routes::{RouteKind, Routes};

use std::fmt;
use std::str::FromStr;

use farside_wire::Wire;

/// The fabric of a job, as spelled in `--fabric` and `FARSIDE_FABRIC`.
///
/// ```
/// use farside_fabric::route::FabricChoice;
///
/// assert_eq!("ofi:tcp".parse(), Ok(FabricChoice::Ofi(Some("tcp".into()))));
/// assert_eq!("auto:efa".parse(), Ok(FabricChoice::Auto(Some("efa".into()))));
/// assert_eq!(FabricChoice::default().to_string(), "auto");
/// assert!("carrier pigeon".parse::<FabricChoice>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum FabricChoice {
    /// Shared memory to processes of the same machine, libfabric to other machines; with this
    /// provider, or with the best available one.
    Auto(Option<String>),
    /// Shared memory only: all processes must run on one machine.
    Shm,
    /// libfabric only, also within a machine; with this provider, or with the best available one.
    Ofi(Option<String>),
}

impl FabricChoice {
    /// The provider that libfabric must use.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::Auto(provider) | Self::Ofi(provider) => provider.as_deref(),
            Self::Shm => None,
        }
    }
}

impl Default for FabricChoice {
    fn default() -> Self {
        Self::Auto(None)
    }
}

/// The text does not name a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown fabric {0:?}: expected auto, shm, ofi, auto:PROVIDER or ofi:PROVIDER (ofi:tcp, ofi:verbs, ofi:shm)")]
pub struct UnknownFabric(String);

impl FromStr for FabricChoice {
    type Err = UnknownFabric;

    fn from_str(text: &str) -> Result<Self, UnknownFabric> {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b';'))
        };
        let (kind, provider) = match text.split_once(':') {
            Some((kind, provider)) => (kind, Some(provider.to_owned())),
            None => (text, None),
        };
        let is_right = provider.as_deref().is_none_or(is_name);
        match kind {
            "auto" if is_right => Ok(Self::Auto(provider)),
            "shm" if provider.is_none() => Ok(Self::Shm),
            "ofi" if is_right => Ok(Self::Ofi(provider)),
            _ => Err(UnknownFabric(text.to_owned())),
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto(None) => f.write_str("auto"),
            Self::Auto(Some(provider)) => write!(f, "auto:{provider}"),
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
        for text in ["auto", "auto:tcp", "shm", "ofi", "ofi:tcp", "ofi:verbs;ofi_rxm"] {
            assert_eq!(text.parse::<FabricChoice>().unwrap().to_string(), text);
        }
        for text in ["", "auto:", "ofi:", "OFI", "tcp", "ofi:tcp:1", "shm:1"] {
            assert!(text.parse::<FabricChoice>().unwrap_err().to_string().contains("ofi:PROVIDER"), "{text}");
        }
    }
}
