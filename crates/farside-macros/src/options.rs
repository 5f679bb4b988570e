//! What the macros have in common: the path of the `farside` crate.

use syn::meta::ParseNestedMeta;
use syn::{LitStr, Path, Result, parse_quote};

/// Where the `farside` crate is, unless the user says otherwise.
pub(crate) fn default_crate() -> Path {
    parse_quote!(::farside)
}

/// Reads the value of `crate = "path"`, whose name has been read.
pub(crate) fn parse_crate(meta: &ParseNestedMeta<'_>) -> Result<Path> {
    let path: LitStr = meta.value()?.parse()?;
    path.parse_with(Path::parse_mod_style)
        .map_err(|_| syn::Error::new(path.span(), "expected the path of the farside crate, like \"::farside\""))
}
