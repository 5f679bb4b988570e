//! The derive and attribute macros of Farside. Use them through the crates `farside` and
//! `farside-rpc`, which document them.

#![forbid(unsafe_code)]

mod element;
mod options;
mod service;
mod test_attribute;
mod wire;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements the trait `farside::Wire` for a struct or an enum whose fields are all `Wire`.
///
/// If all fields are plain, the type is plain too and is sent as its own bytes. Otherwise the
/// fields are sent in order; an enum sends the number of the variant (`u32`) first.
///
/// Between processes that run different binaries, the fields are sent one by one and are checked.
/// Two types are the same there if their fields and variants have the same names and types in the
/// same order. `#[wire(word = "crate::Type")]` adds a word to the description of a type, so that
/// only a type with the same word is the same.
///
/// As with deserialising, any program that can send bytes can make any value of the type, whatever
/// the visibility of its fields. Check in methods what must hold, as for values from elsewhere.
///
/// A type parameter gets the bound `T: Wire`. If a field's type is an associated type, add the
/// bound in the type's own where-clause. `#[wire(unbounded)]` adds no bound, for handles that name
/// a type and hold no value of it.
///
/// A type may implement `Drop`: sending moves the value, so its destructor runs once, at the
/// receiver.
///
/// `#[wire(crate = "path")]` on the type gives the path of the `farside` crate, if it is not
/// `::farside`.
///
/// # Errors
/// Compilation fails for a union (nothing says which field is valid), a `#[repr(packed)]` type (its
/// fields cannot be borrowed), and a type with a lifetime parameter. It also fails, with an error
/// at the field, for a reference, a pointer, or any other type that is not `Wire`.
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

/// Makes a struct of numbers an element of areas: `farside_inspect::Element`.
///
/// The struct is `#[repr(C)]` and derives bytemuck's `Pod` and `Zeroable`, so it has no padding.
/// Its fields are elements themselves, or arrays of elements. Those of an inner struct `position`
/// are named `position.x`, and those of an array of structs `corners.0.x`.
///
/// # Errors
/// Compilation fails for enums, unions, tuple structs, structs with parameters, and structs that
/// are no `Pod`.
///
/// # Examples
/// ```ignore
/// use bytemuck::{Pod, Zeroable};
/// use farside_inspect::Element;
///
/// #[derive(Clone, Copy, Pod, Zeroable, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f32,
///     kind: u32,
/// }
/// ```
#[proc_macro_derive(Element)]
pub fn derive_element(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    element::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Turns a function into a test that runs as a job of several processes.
///
/// The function is the body of every worker: `fn(&farside::Worker) -> farside::Result<()>`, the
/// same with any other error that converts into a `Box<dyn Error + Send + Sync>`, or the same
/// without a result. The test fails if a worker panics or returns an error, or if the job exceeds
/// its timeout. What the processes print is output of the test. Other attributes, such as
/// `#[ignore]` and `#[should_panic]`, work as on any test.
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `processes = N` | processes of the job | 2 |
/// | `threads = N` | workers per process | 1 |
/// | `timeout_s = N` | seconds until the job is ended; `FARSIDE_TIMEOUT_S` is a lower limit | 30 |
/// | `crate = "path"` | path of the `farside` crate | `::farside` |
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

/// Writes a client and a server for a trait, whose methods other programs can call.
///
/// | for a trait `Kv` | it writes |
/// |---|---|
/// | `KvServer` | `new(handlers)` takes a value whose type implements `Kv`. `Builder::provider` takes the server |
/// | `KvClient` | `connect(address, credentials)`, `new(client)` for provider 0, `at(client, provider)`, `deadline(time)`, `client()`, and a method for each procedure |
///
/// The trait itself stays, without the `#[rpc]` attributes. It gets the bounds `Send`, `Sync` and
/// `'static`, because calls run on several threads at the same time.
///
/// # Methods
/// Each method is a procedure: `fn(&self, cx: &Call, arguments) -> Result<T, E>`. The arguments,
/// `T` and `E` are `Wire`. The client's method takes the same arguments without `cx`, has the same
/// documentation, and returns a `Pending<T, E>` at once: `client.method(arguments)?.wait()?`, or
/// `client.method(arguments)?.await?` in a task. A `T` may be a `Stream`.
///
/// A method may be `async`. Its handler occupies no thread while it waits. In the trait it becomes
/// a method that returns `impl Future<Output = Result<T, E>> + Send`; an implementation still
/// writes `async fn`.
///
/// Arguments travel as one tuple, also a single one: by hand, `stat(&self, cx: &Call, key: String)`
/// is a procedure with the arguments `(String,)`.
///
/// # Options
///
/// | argument of the service | meaning | default |
/// |---|---|---|
/// | `name = "..."` | name under which other programs find the service | none |
/// | `crate = "path"` | path of the `farside-rpc` crate | `::farside_rpc` |
///
/// | `#[rpc(...)]` of a method | meaning | default |
/// |---|---|---|
/// | `inline` | the handler runs on the thread that receives: for handlers of microseconds that do not wait | it runs on the server's pool |
/// | `idempotent` | the procedure may run twice: a client calls it again if the connection was lost | it does not |
/// | `oneway` | the client's method returns `Result<(), CallError<Never>>` when the call was sent; the handler returns nothing or `Result<(), Never>` | it returns a `Pending` |
/// | `name = "..."` | name under which other programs find the procedure | the name of the method |
///
/// # Errors
/// Compilation fails, with an error at the place, for: an option that is unknown or given twice; a
/// trait with parameters, or with other items than methods; a method that is `async` and `inline`;
/// one with parameters of its own, without `&self`, or whose next argument is not a `&Call`; an
/// argument that is a pattern; a return type that is not written `Result<T, E>`; two methods of one
/// name; a type that is not `Wire`; an inline method with bulk memory or a stream; a one-way method
/// with a result.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    service::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
