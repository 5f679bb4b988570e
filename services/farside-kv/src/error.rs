//! The errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use farside_rpc::bulk::ShmError;
use farside_rpc::{CallError, TransferError, Wire};

/// Why the store did not do what was asked. Travels to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Wire)]
#[wire(crate = "farside_rpc")]
pub enum KvError {
    /// The store has no such key.
    #[error("the store has no key {key:?}")]
    NotFound {
        /// The key.
        key: String,
    },
    /// The key is empty.
    #[error("the key is empty: give it at least one character")]
    KeyEmpty,
    /// The key is too long.
    #[error("the key has {bytes} bytes: {max} are allowed")]
    KeyTooLong {
        /// Its length.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The value that is read was replaced or removed while it was read.
    #[error("the value of {key:?} was replaced or removed while it was read: read it again")]
    Changed {
        /// The key.
        key: String,
    },
    /// The range to read is not inside the value.
    #[error("{bytes} bytes from {offset} on are not inside the value, which has {value_bytes} bytes")]
    OutOfRange {
        /// The start of the range.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// The size of the value.
        value_bytes: u64,
    },
    /// The stored bytes are not those that were put.
    #[error("the value of {key:?} is damaged: {what}; put it again, or restore the store's folder from a copy")]
    Corrupt {
        /// The key.
        key: String,
        /// The fault.
        what: String,
    },
    /// There is no space for the value.
    #[error("the store has no space: {cause}; remove keys, or give its file system more space")]
    NoSpace {
        /// The system's reason.
        cause: String,
    },
    /// No value was begun under this number, or it waited for too long.
    #[error("no value is being put under the number {number}: its client was silent for too long; put it again")]
    NoUpload {
        /// The number.
        number: u64,
    },
    /// As many values are being put in parts as the store allows.
    #[error("{max} values are being put in parts already: try again later")]
    Busy {
        /// The limit.
        max: u64,
    },
    /// The client puts as many values in parts as one client may.
    #[error("this client puts {max} values in parts already: end some first, or use another connection")]
    TooManyUploads {
        /// The limit.
        max: u64,
    },
    /// The client may not do this.
    #[error("the token lacks the right {right:?}: connect with another, or give it the right at the server")]
    Forbidden {
        /// The right.
        right: String,
    },
    /// The bytes could not be moved between the client and the store.
    #[error("moving the value failed: {cause}")]
    Transfer {
        /// The reason.
        cause: String,
    },
    /// The store's folder could not be read or written.
    #[error("the store failed in {doing}: {cause}; see to its folder and disk")]
    Io {
        /// The activity of the store.
        doing: String,
        /// The system's reason.
        cause: String,
    },
}

impl KvError {
    /// The error of a system call.
    pub(crate) fn io(doing: &str, cause: &io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::OutOfMemory => Self::NoSpace { cause: cause.to_string() },
            _ => Self::Io { doing: doing.into(), cause: cause.to_string() },
        }
    }
}

impl From<TransferError> for KvError {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::NoMemory { .. } => Self::NoSpace { cause: error.to_string() },
            error => Self::Transfer { cause: error.to_string() },
        }
    }
}

impl From<redb::Error> for KvError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(cause) => Self::io("its index", &cause),
            error => Self::Io { doing: "its index".into(), cause: error.to_string() },
        }
    }
}

/// Why a folder could not be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the store open.
    #[error("another process serves the store in {}: stop it first, or give another folder", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// A later version of this library wrote the store.
    #[error("the store in {} has format {format}, and this program knows format {known}: use a newer one", dir.display())]
    Format {
        /// The folder.
        dir: PathBuf,
        /// The format of the store.
        format: u64,
        /// The format of this library.
        known: u64,
    },
    /// The folder or a file in it could not be used.
    #[error("cannot open the store in {}: {cause}", dir.display())]
    Failed {
        /// The folder.
        dir: PathBuf,
        /// The reason.
        cause: KvError,
    },
}

impl OpenError {
    pub(crate) fn failed(dir: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Failed { dir: dir.into(), cause: KvError::io("opening its folder", &cause) }
    }
}

/// Why an operation of a [`Client`](crate::Client) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The call failed, or the store refused it.
    #[error(transparent)]
    Call(#[from] CallError<KvError>),
    /// The bytes that arrived have another checksum than the value that was put.
    #[error("the bytes that arrived for {key:?} have another checksum than the value: read it again")]
    Damaged {
        /// The key.
        key: String,
    },
    /// A file of the client could not be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Another process of the client writes the same file.
    #[error("another program writes {}: wait for it, or give another name", path.display())]
    FileInUse {
        /// The file.
        path: PathBuf,
    },
    /// There is no memory to move a long value through.
    #[error("no memory to move the value through: {0}")]
    Memory(#[from] ShmError),
    /// The reader or writer that the caller passed failed.
    #[error("the client's reader or writer failed: {0}")]
    Stream(io::Error),
}

impl ClientError {
    /// Returns whether the store does not have the key.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call(CallError::Service(KvError::NotFound { .. })))
    }

    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::File { path: path.into(), cause }
    }

    pub(crate) fn is_changed(&self) -> bool {
        matches!(self, Self::Call(CallError::Service(KvError::Changed { .. })))
    }
}
