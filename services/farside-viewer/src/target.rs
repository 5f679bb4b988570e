//! [`Target`]: which job is meant.

use std::fmt;
use std::path::PathBuf;

use farside_inspect::__private::network::{TOKEN_FILE, Token, read_tokens};
use farside_inspect::TokenError;

/// Which job is meant, and with which token to look into it from another machine.
///
/// | text | meaning |
/// |---|---|
/// | a name, a number, or `NAME/NUMBER` | a job of this user on this machine |
/// | nothing | the only one that there is |
/// | `tcp://HOST:PORT` | the job whose process 0 has its door there |
///
/// A token is needed for the last. Its file is named by [`token_file`](Self::token_file), or else
/// by `FARSIDE_INSPECT_TOKEN_FILE` in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    text: String,
    token_file: Option<PathBuf>,
}

impl Target {
    /// Names a job.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), token_file: None }
    }

    /// Takes the token from a file. `None` is the file that the environment names.
    #[must_use]
    pub fn token_file(self, path: Option<PathBuf>) -> Self {
        Self { token_file: path, ..self }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Where the door of process 0 is, if it is on the network.
    pub(crate) fn network(&self) -> Option<&str> {
        Some(&*self.text).filter(|text| text.starts_with("tcp://"))
    }

    /// The token to prove.
    pub(crate) fn token(&self) -> Result<Token, TokenError> {
        let from_environment = || std::env::var_os(TOKEN_FILE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let path = self.token_file.clone().or_else(from_environment).ok_or(TokenError::None)?;
        Ok(read_tokens(&path)?.swap_remove(0))
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for Target {
    fn from(text: &T) -> Self {
        Self::new(text.as_ref())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&Target> for Target {
    fn from(target: &Target) -> Self {
        target.clone()
    }
}
