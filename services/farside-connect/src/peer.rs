//! [`Peer`]: who is at the other end of a connection.

/// The program at the other end of a connection, as far as it is proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The user, on one machine. Vouched for by the system.
    pub user: Option<u32>,
    /// The process, on one machine, if this process sees it.
    pub process: Option<i32>,
    /// The network address, between machines.
    pub network: Option<std::net::SocketAddr>,
    /// The name of the token that it proved.
    pub token: Option<String>,
    /// The rights of that token.
    pub(crate) rights: Vec<String>,
    pub(crate) is_own_user: bool,
}

impl Peer {
    /// A program of this process's user, on this machine.
    #[must_use]
    pub fn own_user() -> Self {
        Self { user: Some(farside_sys::process::user_id()), is_own_user: true, ..Self::default() }
    }

    /// Returns whether the peer has a right. A client of the server's own user that showed no token
    /// has all rights; any other has those of its token.
    #[must_use]
    pub fn has_right(&self, right: &str) -> bool {
        match self.token {
            None => self.is_own_user,
            Some(_) => self.rights.iter().any(|own| own == right),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.network, self.process, self.user) {
            (Some(network), ..) => write!(f, "{network}")?,
            (None, Some(process), _) => write!(f, "process {process}")?,
            (None, None, Some(user)) => write!(f, "user {user}")?,
            (None, None, None) => f.write_str("a client")?,
        }
        match &self.token {
            Some(token) => write!(f, " (token {token:?})"),
            None => Ok(()),
        }
    }
}
