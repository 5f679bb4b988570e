//! Remote procedure calls between separate programs, with bulk data.
//!
//! A server and its clients need no common start, job, binary or version of a program. They agree
//! on an [`Address`], and on the names and types of procedures.
//!
//! | to | use |
//! |---|---|
//! | serve | [`Server`], or [`server::Turns`] in an event loop of your own |
//! | call | [`Client`] |
//! | name procedures and their handlers | a trait with [`service`], or [`Service`] by hand |
//! | move large data | [`bulk`] |
//! | return results one by one | [`Stream`] |
//! | test, without sockets and with many clients | [`sim`] |
//! | know who calls | [`Peer`], [`Tokens`], [`Credentials`] |
//!
//! The library reimplements the ideas of Mercury: small arguments travel in messages; large data is
//! described, and the handler moves it.
//!
//! # Trust
//! What comes from the other side is checked before it is used. On one machine the system vouches
//! for the user at the other end; everywhere else a [token](Tokens) does. *Nothing is encrypted.*
//! Between machines that others can listen to, use a tunnel.
//!
//! # Rooms
//!
//! From the bottom up. Connections, and memory that is transferred over them, are in
//! `farside-connect`, which has the unsafe code.
//!
//! | room | contents |
//! |---|---|
//! | `answer`, [`CallError`] | what travels with arguments and results; how calls fail |
//! | [`bulk`], [`Stream`] | what arguments and results may hold |
//! | [`Call`], [`Service`] | what handlers see |
//! | [`server`], [`Client`] | the two ends |
//! | [`sim`] | both in one thread |

#![forbid(unsafe_code)]

pub use farside_connect::{
    Address, AddressError, ConnectError, Credentials, LinkEnd, Peer, Rdma, Refusal, Tokens, TransferError,
};
/// The codec. `#[wire(crate = "farside_rpc")]` is for programs that do not depend on
/// `farside`.
pub use farside_wire as wire;
pub use farside_wire::Wire;

mod answer;
pub mod bulk;
mod call;
mod client;
mod error;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod pretenders;
#[cfg(test)]
mod scribbles;
pub mod server;
mod service;
pub mod sim;
mod stream;
#[cfg(test)]
mod testing;

pub use bulk::Bulk;
pub use call::Call;
pub use client::{Client, Connect, Encoded, EncodedItems, Pending, Procedure, Signature, Stub};
pub use error::{CallError, Never, Ran, Stage};
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use farside_rpc::bulk::{Bulk, Read, Write, scope};
/// use farside_rpc::{Call, Credentials, Server, TransferError};
///
/// #[farside_rpc::service(name = "text")]
/// pub trait Text {
///     /// Number of bytes that the text has.
///     #[rpc(inline, idempotent)]
///     fn length(&self, cx: &Call, text: String) -> Result<u64, String>;
///     /// Writes a text into memory of the caller, in upper case.
///     fn shout(&self, cx: &Call, text: Bulk<Read>, into: Bulk<Write>) -> Result<(), String>;
/// }
///
/// struct Ascii;
///
/// impl Text for Ascii {
///     fn length(&self, _: &Call, text: String) -> Result<u64, String> {
///         Ok(text.len() as u64)
///     }
///
///     fn shout(&self, _: &Call, text: Bulk<Read>, into: Bulk<Write>) -> Result<(), String> {
///         if text.bytes() > 1 << 20 {
///             return Err("the text is too long".into());
///         }
///         let failed = |error: TransferError| error.to_string();
///         let upper = text.pull_all().map_err(failed)?.to_ascii_uppercase();
///         into.push(0, &upper).map_err(failed)
///     }
/// }
///
/// let name = format!("shm:text-{}", std::process::id());
/// let server = Server::builder().listen(&name)?.provider(0, TextServer::new(Ascii)).start()?;
///
/// let text = TextClient::connect(&name, Credentials::own_user())?;
/// let text = text.deadline(Duration::from_secs(60));
/// assert_eq!(text.length("Ada".into())?.wait()?, 3);
/// let mut room = [0; 3];
/// scope(|scope| text.shout(scope.lend(b"Ada"), scope.lend_mut(&mut room))?.wait())?;
/// assert_eq!(room, *b"ADA");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use farside_macros::service;
pub use server::Server;
pub use service::{Handling, Service};
pub use stream::Stream;

/// The messages of this crate, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<wire::check::MessageKind> {
    use wire::check::MessageKind;

    let built_in = vec![
        MessageKind::of::<Vec<server::Description>>(),
        MessageKind::of::<Vec<server::ProcedureStats>>(),
        MessageKind::of::<server::Dump>(),
    ];
    [farside_connect::message_kinds(), answer::message_kinds(), built_in].concat()
}

/// For what macros write, not for programs.
#[doc(hidden)]
pub mod __private {
    /// Compiles if `T` can be an argument or a result.
    pub fn travels<T: farside_wire::Wire>() {}
}
