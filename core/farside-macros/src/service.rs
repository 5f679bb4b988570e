//! `#[farside_rpc::service]`.
//!
//! The user's types stand only in items without a type parameter. So no parameter of the generated
//! code can hide a type of the user.

mod method;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, ItemTrait, LitStr, Path, Result, Token, TraitItem, TypeParamBound, parse_quote};

use crate::options;
use method::Method;

/// The arguments of the attribute.
struct Arguments {
    krate: Path,
    name: LitStr,
}

impl Arguments {
    fn parse(tokens: TokenStream) -> Result<Self> {
        let (mut krate, mut name) = (parse_quote!(::farside_rpc), None);
        let mut given = Vec::new();
        let parser = syn::meta::parser(|meta| {
            options::once(&mut given, &meta)?;
            if meta.path.is_ident("name") {
                name = Some(options::parse_name(&meta)?);
            } else if meta.path.is_ident("crate") {
                krate = options::parse_crate(&meta, "farside_rpc")?;
            } else {
                return Err(meta.error("unknown argument: expected `name = \"...\"` or `crate = \"path\"`"));
            }
            Ok(())
        });
        parser.parse2(tokens)?;
        let missing = || Error::new(proc_macro2::Span::call_site(), "a service has a name: add `name = \"...\"`");
        Ok(Self { krate, name: name.ok_or_else(missing)? })
    }
}

/// Expands `item`, annotated with `#[service(arguments)]`, into the trait, a server and a client.
/// The trait stays when the rest fails: otherwise each use of it would be an error too.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut item: ItemTrait = syn::parse2(item)?;
    let arguments = Arguments::parse(arguments);
    let krate = arguments.as_ref().map_or_else(|_| parse_quote!(::farside_rpc), |arguments| arguments.krate.clone());
    let methods = parse_methods(&mut item, &krate);
    let written = arguments.and_then(|arguments| Ok((arguments, methods?)));
    let written = match written {
        Ok((Arguments { krate, name }, methods)) => {
            let server = server(&krate, &name, &item, &methods);
            let client = client(&krate, &name, &item, &methods);
            quote!(#server #client)
        }
        Err(error) => error.into_compile_error(),
    };
    item.colon_token.get_or_insert_with(Default::default);
    let bounds: Punctuated<TypeParamBound, Token![+]> =
        parse_quote!(::core::marker::Send + ::core::marker::Sync + 'static);
    item.supertraits.extend(bounds);
    Ok(quote!(#item #written))
}

/// Takes the procedures from a trait, and removes their options. Reports all errors at once.
fn parse_methods(item: &mut ItemTrait, krate: &Path) -> Result<Vec<Method>> {
    let mut errors: Option<Error> = None;
    let mut fail = |error: Error| match &mut errors {
        Some(errors) => errors.combine(error),
        None => errors = Some(error),
    };
    if let Some(token) = item.unsafety {
        fail(Error::new(token.span(), "a service is a safe trait"));
    }
    if !item.generics.params.is_empty() {
        fail(Error::new_spanned(&item.generics, "a service has no parameters: other programs know it by its name"));
    }
    let mut methods: Vec<Method> = Vec::new();
    for part in &mut item.items {
        let TraitItem::Fn(function) = part else {
            fail(Error::new_spanned(part, "a service consists of methods: a client calls them, and nothing else"));
            continue;
        };
        let method = match Method::take(function, krate) {
            Ok(method) => method,
            Err(error) => {
                fail(error);
                continue;
            }
        };
        if methods.iter().any(|other| other.ident == method.ident) {
            fail(Error::new(method.ident.span(), format!("the service has two methods `{}`", method.ident)));
        } else if methods.iter().any(|other| other.name.value() == method.name.value()) {
            let message = format!("the service has two procedures of the name {:?}", method.name.value());
            fail(Error::new(method.name.span(), message));
        }
        methods.push(method);
    }
    errors.map_or(Ok(methods), Err)
}

/// The server: a handler, as a `Service`.
fn server(krate: &Path, name: &LitStr, item: &ItemTrait, methods: &[Method]) -> TokenStream {
    let ItemTrait { vis, ident, .. } = item;
    let server = format_ident!("{ident}Server");
    let procedures = methods.iter().map(|method| {
        let Method { ident: called, name, is_inline, is_async, has_result, arguments, .. } = method;
        let handling = if *is_inline { quote!(Inline) } else { quote!(Pooled) };
        let values: Vec<_> = (0..arguments.len()).map(|index| format_ident!("argument_{index}")).collect();
        let result = |call| match has_result {
            true => call,
            false => quote!(::core::result::Result::<_, #krate::Never>::Ok(#call)),
        };
        let added = match is_async {
            false => {
                let run = result(quote!(<T as #ident>::#called(&*handler, call #(, #values)*)));
                quote! {
                    procedure(
                        #name,
                        #krate::Handling::#handling,
                        move |call: &#krate::Call, (#(#values,)*)| #run,
                    )
                }
            }
            true => {
                let run = result(quote!(<T as #ident>::#called(&*handler, &call #(, #values)*).await));
                quote! {
                    async_procedure(#name, move |call: #krate::Call, (#(#values,)*)| {
                        let handler = ::std::sync::Arc::clone(&handler);
                        async move { #run }
                    })
                }
            }
        };
        quote! {
            let handler = ::std::sync::Arc::clone(&handlers);
            let service = service.#added;
        }
    });
    let about = format!("Serves a [`{ident}`]: pass it to `Builder::provider`.");
    quote! {
        #[doc = #about]
        #[derive(::core::fmt::Debug)]
        #[allow(dead_code)]
        #vis struct #server<T>(T);

        #[allow(dead_code)]
        impl<T: #ident> #server<T> {
            /// Serves `handlers`.
            #[must_use]
            #vis fn new(handlers: T) -> Self {
                Self(handlers)
            }
        }

        #[automatically_derived]
        #[allow(deprecated)]
        impl<T: #ident> ::core::convert::From<#server<T>> for #krate::Service {
            fn from(server: #server<T>) -> Self {
                let handlers = ::std::sync::Arc::new(server.0);
                let service = #krate::Service::new(#name);
                #(#procedures)*
                service
            }
        }
    }
}

/// The client: a stub, with a method for each procedure.
fn client(krate: &Path, name: &LitStr, item: &ItemTrait, methods: &[Method]) -> TokenStream {
    let ItemTrait { vis, ident, .. } = item;
    let client = format_ident!("{ident}Client");
    let procedures = methods.iter().map(|method| {
        let Method { name, is_idempotent, arguments, result, error, .. } = method;
        let types = arguments.iter().map(|(_, ty)| ty);
        quote!(let signature = signature.procedure::<(#(#types,)*), #result, #error>(#name, #is_idempotent);)
    });
    let checks = checks(krate, methods);
    let calls = methods.iter().enumerate().map(|(index, method)| {
        let Method { attributes, ident, is_one_way, arguments, result, error, .. } = method;
        let (names, types): (Vec<&Ident>, Vec<_>) = arguments.iter().map(|(name, ty)| (name, ty)).unzip();
        let (returned, begin) = match is_one_way {
            true => (quote!(()), quote!(send)),
            false => (quote!(#krate::Pending<#result, #error>), quote!(start)),
        };
        quote! {
            #(#attributes)*
            #vis fn #ident(
                &self
                #(, #names: #types)*
            ) -> ::core::result::Result<#returned, #krate::CallError<#error>> {
                self.stub.#begin(#index, &(#(#names,)*))
            }
        }
    });
    let about = format!("Calls a [`{ident}`] of another program. Clones share one connection.");
    let text = name.value();
    let expects = format!("Calls the service `{text}` of a provider.");
    quote! {
        #[doc = #about]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #[allow(dead_code)]
        #vis struct #client {
            stub: #krate::Stub,
        }

        #[allow(dead_code)]
        impl #client {
            /// Connects to a server, for calls of provider 0. An absent server is an error at once.
            ///
            /// # Errors
            /// The reason why the server cannot be reached, or why it refuses the connection.
            #vis fn connect(
                address: impl ::core::convert::AsRef<::core::primitive::str>,
                credentials: #krate::Credentials,
            ) -> ::core::result::Result<Self, #krate::ConnectError> {
                ::core::result::Result::Ok(Self::new(#krate::Client::connect(address, credentials)?))
            }

            /// Calls provider 0 of a server.
            #[must_use]
            #vis fn new(client: #krate::Client) -> Self {
                Self::at(client, 0)
            }

            #[doc = #expects]
            #[must_use]
            #vis fn at(client: #krate::Client, provider: ::core::primitive::u16) -> Self {
                #checks
                let signature = #krate::Signature::new(#name);
                #(#procedures)*
                Self { stub: #krate::Stub::new(client, ::std::sync::Arc::new(signature), provider) }
            }

            /// The same connection, with another time for each call.
            #[must_use]
            #vis fn deadline(&self, time: ::core::time::Duration) -> Self {
                Self { stub: self.stub.with_client(self.stub.client().deadline(time)) }
            }

            /// The connection.
            #[must_use]
            #vis fn client(&self) -> &#krate::Client {
                self.stub.client()
            }

            /// Calls with memory that the caller lends until this returns. See `bulk::Scoped`.
            #vis fn scope<'env, R>(
                &'env self,
                run: impl for<'scope> ::core::ops::FnOnce(#krate::bulk::Scoped<'scope, 'env, Self>) -> R,
            ) -> R {
                #krate::bulk::Scoped::enter(self, run)
            }

            #(#calls)*
        }
    }
}

/// Reports each type that cannot travel where the user wrote it.
fn checks(krate: &Path, methods: &[Method]) -> TokenStream {
    let types = methods
        .iter()
        .flat_map(|Method { arguments, result, error, .. }| arguments.iter().map(|(_, ty)| ty).chain([result, error]));
    let checks = types.map(|ty| quote_spanned!(ty.span()=> #krate::__private::travels::<#ty>();));
    quote!(#(#checks)*)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn becomes_a_trait_a_server_and_a_client() {
        let item = quote! {
            pub(crate) trait Kv: Clone {
                /// Docs.
                #[rpc(inline, name = "statistics")]
                #[must_use]
                fn stat(&self, _: &Call, key: String) -> Result<u64, String>;
            }
        };
        let file: syn::File = syn::parse2(expand(quote!(name = "kv", crate = "a::b"), item).unwrap()).unwrap();
        let syn::Item::Trait(kept) = &file.items[0] else { panic!("the trait comes first") };
        assert_eq!(kept.supertraits.len(), 4);
        let TraitItem::Fn(stat) = &kept.items[0] else { panic!("it has a method") };
        assert!(stat.attrs.iter().all(|attribute| !attribute.path().is_ident("rpc")));
        assert_eq!(stat.attrs.len(), 2);
        let text = quote!(#file).to_string();
        for part in ["KvServer", "KvClient", "\"statistics\"", "a :: b :: Handling :: Inline", "pub (crate) fn stat"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let cases = [
            (quote!(), "a service has a name: add `name = \"...\"`"),
            (quote!(name = ""), "expected a name that is not empty"),
            (quote!(name = 3), "expected string literal"),
            (quote!(name = "a", name = "b"), "`name` is given twice"),
            (quote!(name = "a", port = 7), "unknown argument: expected `name = \"...\"` or `crate = \"path\"`"),
        ];
        for (arguments, expected) in cases {
            let error = Arguments::parse(arguments).err().expect("the arguments are wrong");
            assert_eq!(error.to_string(), expected);
        }
    }
}
