//! Options that the macros share.

use proc_macro2::Ident;
use syn::meta::ParseNestedMeta;
use syn::{LitStr, Path, Result, parse_quote};

/// The path of the `farside` crate, unless the user gives another one.
pub(crate) fn default_crate() -> Path {
    parse_quote!(::farside)
}

/// Parses the value of `crate = "path"`, after the caller has read the word. `usual` is the crate's
/// name in most programs.
pub(crate) fn parse_crate(meta: &ParseNestedMeta<'_>, usual: &str) -> Result<Path> {
    let path: LitStr = meta.value()?.parse()?;
    path.parse_with(Path::parse_mod_style).map_err(|_| {
        syn::Error::new(path.span(), format!("expected the path of the {usual} crate, like \"::{usual}\""))
    })
}

/// Parses the value of `name = "..."`, after the caller has read the word.
pub(crate) fn parse_name(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    let name: LitStr = meta.value()?.parse()?;
    if name.value().is_empty() {
        return Err(syn::Error::new(name.span(), "expected a name that is not empty"));
    }
    Ok(name)
}

/// Refuses an option that was `given` before.
pub(crate) fn once(given: &mut Vec<Ident>, meta: &ParseNestedMeta<'_>) -> Result<()> {
    let name = meta.path.require_ident()?;
    if given.contains(name) {
        return Err(meta.error(format!("`{name}` is given twice")));
    }
    given.push(name.clone());
    Ok(())
}
