//! The derive and attribute macros of Farside. Use them through the `farside` crate, which explains them.

#![forbid(unsafe_code)]

mod options;
mod test_attribute;
mod wire;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements the trait `farside::Wire` for a struct or an enum whose fields all are `Wire`.
///
/// The type is plain, and travels as its own bytes, if all its fields are plain. Otherwise the fields travel in order,
/// behind the number of the variant (`u32`) in an enum.
///
/// Between processes of unlike binaries the fields travel one by one, and are checked; types are the same there whose fields and variants
/// have the same names and types in the same order.
///
/// A type parameter gets the bound `T: Wire`. If a field's type is an associated type, add the bound in the type's own
/// where-clause.
///
/// A type may implement `Drop`: sending moves the value, so its destructor runs once, at the receiver.
///
/// `#[wire(crate = "path")]` on the type says where the `farside` crate is, if not at `::farside`.
///
/// # Errors
/// It does not compile for a union (nobody knows which field is there), a `#[repr(packed)]` type (its fields cannot be
/// borrowed), a type with a lifetime parameter, and, reported at the field, for a reference, a pointer, or any other
/// type that is not `Wire`.
///
/// # Examples
/// ```ignore
/// use farside::Wire;
///
/// #[derive(Wire)]
/// enum Update {
///     Visit { node: u64, wins: u32 },
///     Rename(u64, String),
///     Clear,
/// }
/// ```
#[proc_macro_derive(Wire, attributes(wire))]
pub fn derive_wire(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    wire::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Turns a function into a test that runs as a job of several processes.
///
/// The function is the body of every worker: `fn(&farside::Worker) -> farside::Result<()>`, or without a result. The
/// test fails if a worker panics or returns an error, and if the job takes too long. Other attributes, like `#[ignore]`
/// and `#[should_panic]`, work as on any test.
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `processes = N` | processes of the job | 2 |
/// | `threads = N` | workers per process | 1 |
/// | `timeout_s = N` | seconds until the job is ended | 30 |
/// | `crate = "path"` | where the `farside` crate is | `::farside` |
///
/// # Examples
/// ```ignore
/// #[farside::test(processes = 4, threads = 2)]
/// fn every_worker_arrives(me: &farside::Worker) -> farside::Result<()> {
///     me.barrier()
/// }
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    test_attribute::expand(arguments.into(), function.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
