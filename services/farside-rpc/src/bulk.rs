//! [`Bulk`]: memory of a caller that a handler reads or writes piece by piece (Mercury III-D).
//!
//! A caller passes memory as an argument; only its description travels. The handler decides what
//! moves, and when: it *pulls* from memory that it may read, and *pushes* to memory that it may
//! write, by logical offset, whatever segments the memory consists of.
//!
//! A handler may also return memory of the server in its result. Then its caller pulls.
//!
//! ```
//! use farside_rpc::bulk::{Bulk, Memory, Read};
//! use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
//!
//! let name = format!("shm:board-{}", std::process::id());
//! let memory = Memory::new(1 << 20)?;
//! let shown = memory.clone();
//! let board = Service::new("board").procedure("show", Handling::Inline, move |_, ()| {
//!     Ok::<_, Never>(shown.to_read(0..100).expect("the memory is longer"))
//! });
//! let server = Server::builder().listen(&name)?.provider(0, board).start()?;
//!
//! let client = Client::connect(&name, Credentials::own_user())?;
//! let board: Bulk<Read> = client.procedure::<(), _, Never>("board", 0, "show").call(&())?;
//! memory.write(10, b"news")?;
//! let mut found = [0; 4];
//! board.pull(10, &mut found)?;
//! assert_eq!(&found, b"news");
//! board.mapped().expect("it is on this machine").copy_to(10, &mut found)?;
//! assert_eq!(&found, b"news");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Deref;

pub use farside_connect::bulk::{
    Access, Bulk, Mapped, Memory, MemoryError, Read, Scope, ShmError, Source, Withdrawal, Write, scope,
};

/// A client within a [`scope`]: it calls the service, and lends memory to the calls. The clients
/// that the macro [`service`](crate::service) writes have a method `scope` that makes one.
///
/// ```
/// use farside_rpc::bulk::{Bulk, Write};
/// use farside_rpc::{Call, Credentials, Server, TransferError};
///
/// #[farside_rpc::service(name = "words")]
/// trait Words {
///     fn say(&self, cx: &Call, into: Bulk<Write>) -> Result<(), String>;
/// }
///
/// struct Hello;
///
/// impl Words for Hello {
///     fn say(&self, _: &Call, into: Bulk<Write>) -> Result<(), String> {
///         into.push(0, b"hello").map_err(|error| error.to_string())
///     }
/// }
///
/// let name = format!("shm:words-{}", std::process::id());
/// let server = Server::builder().listen(&name)?.provider(0, WordsServer::new(Hello)).start()?;
/// let words = WordsClient::connect(&name, Credentials::own_user())?;
/// let mut room = [0; 5];
/// words.scope(|s| s.say(s.lend_mut(&mut room))?.wait())?;
/// assert_eq!(room, *b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scoped<'scope, 'env: 'scope, C> {
    scope: &'scope Scope<'scope, 'env>,
    client: &'env C,
}

impl<'env, C> Scoped<'_, 'env, C> {
    /// Runs `run` in a [`scope`] with a client.
    #[doc(hidden)]
    pub fn enter<T>(client: &'env C, run: impl for<'scope> FnOnce(Scoped<'scope, 'env, C>) -> T) -> T {
        scope(|scope| run(Scoped { scope, client }))
    }
}

impl<'scope, C> Scoped<'scope, '_, C> {
    /// See [`Scope::lend`].
    pub fn lend(&self, bytes: &'scope [u8]) -> Bulk<Read> {
        self.scope.lend(bytes)
    }

    /// See [`Scope::lend_all`].
    ///
    /// # Panics
    /// If the pieces overlap, and have more bytes than an address space together.
    pub fn lend_all(&self, slices: impl IntoIterator<Item = &'scope [u8]>) -> Bulk<Read> {
        self.scope.lend_all(slices)
    }

    /// See [`Scope::lend_mut`].
    pub fn lend_mut(&self, bytes: &'scope mut [u8]) -> Bulk<Write> {
        self.scope.lend_mut(bytes)
    }

    /// See [`Scope::lend_all_mut`].
    pub fn lend_all_mut(&self, slices: impl IntoIterator<Item = &'scope mut [u8]>) -> Bulk<Write> {
        self.scope.lend_all_mut(slices)
    }
}

impl<C> Deref for Scoped<'_, '_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.client
    }
}
