//! Shows what a running program has, to other programs and without stopping.
//!
//! A program shows its data with [`Expose`]. Another program, of the same user on the same machine,
//! finds the job and reads it: the command `farside inspect`, or one that uses `farside-viewer`.
//! From another machine it proves a token. The job itself stays closed: a reader takes no part in
//! its collectives, calls or verdicts.
//!
//! | to | use |
//! |---|---|
//! | show an array that changes from step to step | [`Expose::view`], [`View::publish`] |
//! | show memory as it is now | [`Expose::expose`], [`Exposed::lock`] |
//! | show and take in single numbers | [`Expose::gauge`], [`Expose::parameter`] |
//! | have readers start something, or ask | [`Expose::action`], [`Expose::probe`] |
//! | show structs | [`Element`](derive@Element) |
//! | show what a program has that is no job | [`Standalone`] |
//! | have a launcher answer for processes that show nothing | [`LauncherDoor`] |
//! | make tokens for readers on other machines | [`create_token_file`] |
//!
//! # Rooms
//!
//! From the bottom up. Each uses those above it in the table only.
//!
//! | room | contents |
//! |---|---|
//! | `sync`, `points`, `element`, `spans` | a mutex; places for tests; types of elements; places in arrays |
//! | `names`, `network` | where doors are, on the machine and on the network |
//! | `protocol` | what travels between a door and its clients |
//! | `doors` | connections to the doors of a job |
//! | `target` | the side of the program: what it shows, and the door of its process |
//!
//! Inside `target`, from the bottom up:
//!
//! | room | contents |
//! |---|---|
//! | `error`, `atomics`, `word`, `lease`, `slots` | errors; the lock of memory; readers that hold something; copies of a view |
//! | `stays` | how all workers stay at one step |
//! | `shared`, `locked` | what the program and the door share of a view, and of memory |
//! | `areas`, `description` | what the workers of a process show, and its descriptions |
//! | `questions`, `activity`, `conductor` | functions of workers; what workers do; changes in all processes |
//! | `handlers` | what the door does for its clients |
//! | `setting`, `network`, `door` | what the environment says; the door on the network; the door of a process |
//! | `host` | a worker, or a program without a job |
//! | `view`, `named`, `memory` | the values by which a program shows something |
//! | `standalone`, `launcher`, `simulated` | programs without a job; launchers; tests |

#![forbid(unsafe_code)]

mod doors;
mod element;
mod names;
mod network;
mod points;
mod protocol;
mod spans;
mod sync;
mod target;

/// The messages between doors and their clients, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<farside_rpc::wire::check::MessageKind> {
    protocol::message_kinds()
}

/// For what macros write and for `farside-viewer`, not for programs.
#[doc(hidden)]
pub mod __private {
    pub use crate::element::derived::{Sealed, add_field, bytes_of, struct_of};
    pub use crate::sync::lock;
    pub use crate::target::SimulatedWorker;

    pub mod doors {
        pub use crate::doors::{Doors, DoorsError, Guest, Origin, client_of, unreached};
    }
    pub mod element {
        pub use crate::element::{field, is_possible, with_fields};
    }
    pub mod names {
        pub use crate::names::{FoundDoors, jobs};
    }
    pub mod network {
        pub use crate::network::{TOKEN_FILE, Token, credentials, read_tokens};
    }
    pub mod points {
        pub use crate::points::Points;
    }
    pub mod protocol {
        pub use crate::protocol::*;
    }
    pub mod spans {
        pub use crate::spans::{Span, elements, runs};
    }
}

pub use element::{Element, ElementType, Field};
/// Makes a struct an [element](trait@Element).
pub use farside_macros::Element;
pub use names::JobId;
pub use network::{TokenError, create_token_file, first_secret};
pub use protocol::{About, Kind, Refused, Role};
pub use target::{
    Expose, ExposeError, Exposed, LauncherDoor, LockedHere, Memory, Number, OwnMemory, PublishError, Shown, Standalone,
    View, ViewBuilder,
};
