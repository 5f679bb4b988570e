//! `#[farside::test]`.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, LitInt, Path, Result, ReturnType, Safety, Signature, Type};

use crate::options;

/// The arguments of the attribute.
struct Arguments {
    krate: Path,
    processes: u32,
    threads: u32,
    timeout_s: u32,
}

/// Expands `function`, annotated with `#[test(arguments)]`, into a test.
pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let Arguments { krate, processes, threads, timeout_s } = Arguments::parse(arguments)?;
    let [processes, threads, timeout_s] = [processes, threads, timeout_s].map(Literal::u32_unsuffixed);
    let function: ItemFn = syn::parse2(function)?;
    validate(&function)?;

    let ItemFn { attrs, vis, sig, block, .. } = function;
    let name = &sig.ident;
    let body = if returns_nothing(&sig.output) {
        quote!(|me| {
            #name(me);
            ::core::result::Result::<(), #krate::Error>::Ok(())
        })
    } else {
        quote!(#name)
    };
    // The inner function keeps the user's name: any other name could shadow a function that it
    // calls.
    Ok(quote! {
        #[::core::prelude::v1::test]
        #(#attrs)*
        #vis fn #name() {
            #sig #block
            #krate::__private::run_test(
                ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                #krate::__private::TestShape { processes: #processes, threads: #threads, timeout_s: #timeout_s },
                #body,
            )
        }
    })
}

impl Arguments {
    fn parse(tokens: TokenStream) -> Result<Self> {
        let mut arguments = Self { krate: options::default_crate(), processes: 2, threads: 1, timeout_s: 30 };
        let mut given = Vec::new();
        let parser = syn::meta::parser(|meta| {
            options::once(&mut given, &meta)?;
            arguments.set(meta.path.require_ident()?, &meta)
        });
        parser.parse2(tokens)?;
        Ok(arguments)
    }

    fn set(&mut self, name: &Ident, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "processes" => self.processes = parse_count(meta)?,
            "threads" => self.threads = parse_count(meta)?,
            "timeout_s" => self.timeout_s = parse_count(meta)?,
            "crate" => self.krate = options::parse_crate(meta, "farside")?,
            _ => {
                return Err(meta.error("unknown argument: expected `processes`, `threads`, `timeout_s` or `crate`"));
            }
        }
        Ok(())
    }
}

/// Parses the value of a count, after the caller has read the name.
fn parse_count(meta: &ParseNestedMeta<'_>) -> Result<u32> {
    let value = meta.value()?;
    let span = value.span();
    let count = value.parse::<LitInt>().and_then(|literal| literal.base10_parse());
    match count {
        Ok(0) | Err(_) => Err(Error::new(span, "expected a number from 1 up, written out")),
        Ok(count) => Ok(count),
    }
}

/// Rejects functions that cannot be the body of a worker. Also rejects `#[test]`, which would run
/// the function without a job.
fn validate(function: &ItemFn) -> Result<()> {
    let Signature { constness, asyncness, safety, abi, generics, inputs, variadic, .. } = &function.sig;
    let modifier = constness
        .map(|token| token.span())
        .or(asyncness.map(|token| token.span()))
        .or(match safety {
            Safety::Default => None,
            Safety::Safe(token) => Some(token.span()),
            Safety::Unsafe(token) => Some(token.span()),
        })
        .or(abi.as_ref().map(Spanned::span))
        .or(variadic.as_ref().map(Spanned::span));
    if let Some(span) = modifier {
        return Err(Error::new(span, "a job's test is a plain function"));
    }
    if !generics.params.is_empty() {
        return Err(Error::new_spanned(generics, "a job's test has no parameters of its own"));
    }
    if inputs.len() != 1 || matches!(inputs[0], FnArg::Receiver(_)) {
        let message = "a job's test takes the worker that runs it, and nothing else: `me: &farside::Worker`";
        return Err(Error::new(function.sig.paren_token.span.join(), message));
    }
    match function.attrs.iter().find(|attribute| attribute.path().is_ident("test")) {
        Some(attribute) => Err(Error::new_spanned(attribute, "remove `#[test]`: `#[farside::test]` stands for it")),
        None => Ok(()),
    }
}

fn returns_nothing(output: &ReturnType) -> bool {
    match output {
        ReturnType::Default => true,
        ReturnType::Type(_, ty) => matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expansion(arguments: TokenStream, function: TokenStream) -> ItemFn {
        syn::parse2(expand(arguments, function).unwrap()).unwrap()
    }

    fn message(arguments: TokenStream, function: TokenStream) -> String {
        expand(arguments, function).unwrap_err().to_string()
    }

    #[test]
    fn becomes_a_test_without_arguments() {
        let test = expansion(
            quote!(processes = 4, threads = 2, timeout_s = 9),
            quote!(
                #[ignore]
                pub fn arrives(me: &farside::Worker) -> farside::Result<()> {
                    me.barrier()
                }
            ),
        );
        assert_eq!(test.sig.ident, "arrives");
        assert!(test.sig.inputs.is_empty());
        assert!(returns_nothing(&test.sig.output));
        assert!(test.attrs[0].path().segments.last().unwrap().ident == "test");
        assert!(test.attrs[1].path().is_ident("ignore"));
        let block = &test.block;
        let block = quote!(#block).to_string();
        assert!(block.contains(":: farside :: __private :: run_test"), "{block}");
        assert!(block.contains("{ processes : 4 , threads : 2 , timeout_s : 9 }"), "{block}");
    }

    #[test]
    fn arguments_may_be_left_out() {
        let test = expansion(
            quote!(crate = "crate"),
            quote!(
                fn f(_: &Worker) {}
            ),
        );
        let block = test.block;
        let block = quote!(#block).to_string();
        assert!(block.contains("crate :: __private :: run_test"), "{block}");
        assert!(block.contains("{ processes : 2 , threads : 1 , timeout_s : 30 }"), "{block}");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let cases = [
            (quote!(processes = 0), "expected a number from 1 up, written out"),
            (quote!(threads = two), "expected a number from 1 up, written out"),
            (quote!(threads = -1), "expected a number from 1 up, written out"),
            (quote!(timeout_s = 5_000_000_000), "expected a number from 1 up, written out"),
            (quote!(threads = 1, threads = 1), "`threads` is given twice"),
            (quote!(nodes = 1), "unknown argument: expected `processes`, `threads`, `timeout_s` or `crate`"),
            (quote!(crate = "1"), "expected the path of the farside crate, like \"::farside\""),
        ];
        for (arguments, expected) in cases {
            assert_eq!(
                message(
                    arguments,
                    quote!(
                        fn f(me: &Worker) {}
                    )
                ),
                expected
            );
        }
    }

    #[test]
    fn wrong_functions_are_refused() {
        let cases = [
            (
                quote!(
                    async fn f(me: &Worker) {}
                ),
                "a job's test is a plain function",
            ),
            (
                quote!(
                    unsafe extern "C" fn f(me: &Worker) {}
                ),
                "a job's test is a plain function",
            ),
            (
                quote!(
                    fn f<T>(me: &Worker) {}
                ),
                "a job's test has no parameters of its own",
            ),
            (
                quote!(
                    fn f() {}
                ),
                "a job's test takes the worker",
            ),
            (
                quote!(
                    fn f(&self) {}
                ),
                "a job's test takes the worker",
            ),
            (
                quote!(
                    fn f(me: &Worker, n: u32) {}
                ),
                "a job's test takes the worker",
            ),
            (
                quote!(
                    #[test]
                    fn f(me: &Worker) {}
                ),
                "remove `#[test]`",
            ),
        ];
        for (function, expected) in cases {
            let message = message(TokenStream::new(), function);
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
