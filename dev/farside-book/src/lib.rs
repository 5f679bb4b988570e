//! Compiles the Rust code of the documents: each block is a test of this crate.
//!
//! ```text
//! cargo test -p farside-book --doc
//! ```
//!
//! A new page with Rust code has a line here, which `cargo xtask lint` asks for. A block stands for
//! itself: it has all `use` lines, and takes what it does not make as arguments of a function. A
//! block that must not run is `rust,no_run`.

#![forbid(unsafe_code)]

/// A module without contents for each page, documented by the page.
macro_rules! pages {
    ($($name:ident: $path:literal;)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($path)]
            mod $name {}
        )*
    };
}

pages! {
    readme: "../../../README.md";
    readme_of_containers: "../../../core/farside-containers/README.md";
    readme_of_inspect: "../../../services/farside-inspect/README.md";
    readme_of_kit: "../../../core/farside-kit/README.md";
    readme_of_kv: "../../../services/farside-kv/README.md";
    readme_of_rpc: "../../../services/farside-rpc/README.md";
    adding_a_transport: "../../../docs/adding-a-transport.md";
    containers: "../../../docs/containers.md";
    first_crate: "../../../docs/first-crate.md";
    inspect: "../../../docs/inspect.md";
    kv: "../../../docs/kv.md";
    names_from_elsewhere: "../../../docs/names-from-elsewhere.md";
    rpc: "../../../docs/rpc.md";
    testing_your_program: "../../../docs/testing-your-program.md";
}
