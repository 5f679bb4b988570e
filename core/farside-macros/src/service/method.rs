//! A method of a service's trait, as a procedure.

use proc_macro2::{Ident, Span};
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, LitStr, Pat, PatType, Path, PathArguments, ReceiverKind, Result,
    ReturnType, Safety, Signature, TraitItemFn, Type, parse_quote,
};

use crate::{options, wire};

/// The most arguments of a procedure. They travel as a tuple, and longer ones are not `Wire`.
const ARGUMENTS_MAX: usize = 12;

/// Names of the client's own methods, which the trait must not use.
const OF_CLIENTS: [&str; 6] = ["connect", "new", "at", "deadline", "client", "scope"];

const PARAMETERS: &str = "a procedure has no parameters of its own: both programs must know its types";

/// A procedure.
pub(super) struct Method {
    /// Attributes that the client's method repeats: documentation and lints.
    pub(super) attributes: Vec<Attribute>,
    pub(super) ident: Ident,
    /// The name under which other programs know it.
    pub(super) name: LitStr,
    pub(super) is_inline: bool,
    pub(super) is_idempotent: bool,
    pub(super) is_one_way: bool,
    /// True if the handler returns a `Result`.
    pub(super) has_result: bool,
    pub(super) is_async: bool,
    pub(super) arguments: Vec<(Ident, Type)>,
    pub(super) result: Type,
    pub(super) error: Type,
}

impl Method {
    /// Reads a method, and removes its options. An `async` method becomes one that returns a future
    /// which may go to another thread. `krate` is the path of `farside_rpc`.
    pub(super) fn take(function: &mut TraitItemFn, krate: &Path) -> Result<Self> {
        let options = Options::take(&mut function.attrs)?;
        let signature = &function.sig;
        if let Some(token) = signature.asyncness.filter(|_| options.is_inline) {
            let message = "an inline procedure does not wait: remove `inline` or `async`";
            return Err(Error::new(token.span(), message));
        }
        check_modifiers(signature)?;
        let ident = signature.ident.clone();
        let text = ident.unraw().to_string();
        if OF_CLIENTS.contains(&text.as_str()) {
            let message = format!(
                "the client has a method `{text}` of its own: call this one otherwise, with `#[rpc(name = \"{text}\")]`"
            );
            return Err(Error::new(ident.span(), message));
        }
        if let Some(cfg) = function.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
            let message = "all builds have the same procedures: put this one into a service of its own, under `#[cfg]`";
            return Err(Error::new_spanned(cfg, message));
        }
        let arguments = arguments(signature)?;
        let is_bulk = |ty: &Type| last_name(ty).is_some_and(|name| name == "Bulk");
        if let Some((_, ty)) = arguments.iter().find(|(_, ty)| options.is_inline && is_bulk(ty)) {
            let message = "an inline procedure takes no bulk memory: its handler would wait; remove `inline`";
            return Err(Error::new_spanned(ty, message));
        }
        let has_result = !options.is_one_way || matches!(signature.output, ReturnType::Type(..));
        let (result, error) = match has_result {
            true => result(signature)?,
            false => (parse_quote!(()), parse_quote!(#krate::Never)),
        };
        let is_empty = matches!(&result, Type::Tuple(tuple) if tuple.elems.is_empty());
        if options.is_one_way && !(is_empty && last_name(&error).is_some_and(|name| name == "Never")) {
            let message = "no caller waits for a one-way procedure: it returns nothing, or a `Result<(), Never>`";
            return Err(Error::new_spanned(&signature.output, message));
        }
        if options.is_one_way && options.is_idempotent {
            let message = "a one-way call is never made again: remove `idempotent`";
            return Err(Error::new(ident.span(), message));
        }
        if options.is_inline && last_name(&result).is_some_and(|name| name == "Stream") {
            let message = "an inline procedure returns no stream: its items are made on the pool; remove `inline`";
            return Err(Error::new_spanned(result, message));
        }
        let repeated = ["doc", "deprecated", "allow"];
        let is_async = function.sig.asyncness.take().is_some();
        if is_async {
            let output = match &function.sig.output {
                ReturnType::Type(_, output) => (**output).clone(),
                ReturnType::Default => parse_quote!(()),
            };
            let future = quote!(impl ::core::future::Future<Output = #output> + ::core::marker::Send);
            function.sig.output = parse_quote!(-> #future);
            function.default.iter_mut().for_each(|body| *body = parse_quote!({ async move #body }));
        }
        let is_repeated = |attribute: &&Attribute| repeated.iter().any(|name| attribute.path().is_ident(name));
        Ok(Self {
            attributes: function.attrs.iter().filter(is_repeated).cloned().collect(),
            name: options.name.unwrap_or_else(|| LitStr::new(&text, ident.span())),
            ident,
            is_inline: options.is_inline,
            is_idempotent: options.is_idempotent,
            is_one_way: options.is_one_way,
            has_result,
            is_async,
            arguments,
            result,
            error,
        })
    }
}

/// The options of `#[rpc(...)]`.
#[derive(Default)]
struct Options {
    is_inline: bool,
    is_idempotent: bool,
    is_one_way: bool,
    name: Option<LitStr>,
}

impl Options {
    /// Removes `#[rpc(inline, idempotent, oneway, name = "...")]` from the attributes, and parses
    /// it.
    fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut options = Self::default();
        let mut given = Vec::new();
        let own: Vec<_> = attributes.extract_if(.., |attribute| attribute.path().is_ident("rpc")).collect();
        for attribute in own {
            attribute.parse_nested_meta(|meta| {
                options::once(&mut given, &meta)?;
                if meta.path.is_ident("inline") {
                    options.is_inline = true;
                } else if meta.path.is_ident("idempotent") {
                    options.is_idempotent = true;
                } else if meta.path.is_ident("oneway") {
                    options.is_one_way = true;
                } else if meta.path.is_ident("name") {
                    options.name = Some(options::parse_name(&meta)?);
                } else {
                    return Err(
                        meta.error("unknown option: expected `inline`, `idempotent`, `oneway` or `name = \"...\"`")
                    );
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

fn check_modifiers(signature: &Signature) -> Result<()> {
    let Signature { constness, safety, abi, generics, variadic, .. } = signature;
    let modifier = constness
        .map(|token| token.span())
        .or(match safety {
            Safety::Default => None,
            Safety::Safe(token) => Some(token.span()),
            Safety::Unsafe(token) => Some(token.span()),
        })
        .or(abi.as_ref().map(Spanned::span))
        .or(variadic.as_ref().map(Spanned::span));
    if let Some(span) = modifier {
        return Err(Error::new(span, "a procedure is a plain method"));
    }
    if !generics.params.is_empty() {
        return Err(Error::new_spanned(generics, PARAMETERS));
    }
    if let Some(clause) = &generics.where_clause {
        return Err(Error::new_spanned(clause, "a procedure has no where-clause"));
    }
    Ok(())
}

/// The arguments that travel: all but `&self` and the `&Call`.
fn arguments(signature: &Signature) -> Result<Vec<(Ident, Type)>> {
    let mut inputs = signature.inputs.iter();
    let parentheses = signature.paren_token.span.join();
    match inputs.next() {
        Some(FnArg::Receiver(receiver)) if matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) => {}
        other => {
            let span = other.map_or(parentheses, Spanned::span);
            return Err(Error::new(span, "a procedure takes `&self`: calls run at the same time"));
        }
    }
    match inputs.next() {
        Some(FnArg::Typed(PatType { ty, .. })) if is_call(ty) => {}
        other => {
            let span = other.map_or(parentheses, Spanned::span);
            return Err(Error::new(span, "the first argument of a procedure is its call: `cx: &Call`"));
        }
    }
    let arguments = inputs.map(argument).collect::<Result<Vec<_>>>()?;
    match arguments.get(ARGUMENTS_MAX) {
        None => Ok(arguments),
        Some((name, _)) => {
            let message = format!("a procedure has at most {ARGUMENTS_MAX} arguments: pass a struct");
            Err(Error::new(name.span(), message))
        }
    }
}

fn argument(input: &FnArg) -> Result<(Ident, Type)> {
    let FnArg::Typed(PatType { pat, ty, .. }) = input else {
        return Err(Error::new_spanned(input, "`self` comes first"));
    };
    let name = match &**pat {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => name.ident.clone(),
        _ => return Err(Error::new_spanned(pat, "an argument of a procedure is a name: the client's method has it")),
    };
    if let Type::ImplTrait(_) = &**ty {
        return Err(Error::new_spanned(ty, PARAMETERS));
    }
    match wire::address_error(ty) {
        Some(error) => Err(error),
        None => Ok((name, (**ty).clone())),
    }
}

/// The types of the result and of the error.
fn result(signature: &Signature) -> Result<(Type, Type)> {
    let fail = |span: Span| Error::new(span, "a procedure returns `Result<T, E>`, with both types written out");
    let ReturnType::Type(_, ty) = &signature.output else { return Err(fail(signature.paren_token.span.close())) };
    let Type::Path(path) = &**ty else { return Err(fail(ty.span())) };
    let Some(segment) = path.path.segments.last() else { return Err(fail(ty.span())) };
    match &segment.arguments {
        PathArguments::AngleBracketed(written) if segment.ident == "Result" => {
            let types: Vec<_> = written.args.iter().collect();
            match &types[..] {
                [GenericArgument::Type(result), GenericArgument::Type(error)] => {
                    match wire::address_error(result).or_else(|| wire::address_error(error)) {
                        Some(error) => Err(error),
                        None => Ok((result.clone(), error.clone())),
                    }
                }
                _ => Err(fail(ty.span())),
            }
        }
        _ => Err(fail(ty.span())),
    }
}

fn is_call(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference)
        if reference.mutability.is_none() && last_name(&reference.elem).is_some_and(|name| name == "Call"))
}

/// The last part of a path.
fn last_name(ty: &Type) -> Option<Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.clone()),
        _ => None,
    }
}
