//! Options that the macros share: the path of the `farside` crate.

use syn::meta::ParseNestedMeta;
use syn::{LitStr, Path, Result, parse_quote};

/// The path of the `farside` crate, unless the user gives another one.
pub(crate) fn default_crate() -> Path {
    parse_quote!(::farside)
}

/// Parses the value of `crate = "path"`, after the caller has read the name.
pub(crate) fn parse_crate(meta: &ParseNestedMeta<'_>) -> Result<Path> {
    let path: LitStr = meta.value()?.parse()?;
    path.parse_with(Path::parse_mod_style)
        .map_err(|_| syn::Error::new(path.span(), "expected the path of the farside crate, like \"::farside\""))
}
