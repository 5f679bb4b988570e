//! `#[derive(Wire)]`.
//!
//! Tokens written here carry the span of the macro call, so that their `unsafe` is not reported
//! against a crate that forbids unsafe code. Each field's type keeps the user's span, so that a
//! type that is not `Wire` is reported at the field.

mod shape;
mod validate;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, DeriveInput, Generics, LitStr, Path, Result, parse_quote};

use crate::options;
use shape::Shape;
pub(crate) use validate::address_error;

/// Generates the implementation of `Wire` for `input`.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    validate::validate(input)?;
    let Options { krate, word, is_unbounded, is_extensible } = parse_options(&input.attrs)?;
    if is_extensible {
        validate::validate_extensible(input)?;
    }
    let shape = Shape::new(&input.data)?.extensible(is_extensible);

    let name = &input.ident;
    let generics =
        if is_unbounded { input.generics.clone() } else { with_bounds(&input.generics, &krate, is_extensible) };
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let is_plain = shape.is_plain(&krate);
    let wire_bytes = shape.wire_bytes(&krate);
    let write = shape.write(&krate);
    let read = shape.read(&krate);
    let description = shape.description(&krate, word.as_ref());
    let encode = shape.encode(&krate);
    let decode = shape.decode(&krate);

    // Safety of the generated code, by the numbered promises in the documentation of `Wire`: (1, 3)
    // the fields keep these promises themselves, and each is moved out of a `ManuallyDrop` once;
    // (2, 4) `write` and `read` process the same fields; (5) a type is plain only if its fields
    // are; (6) otherwise it has a tag, or a field that is not plain.
    Ok(quote! {
        #[automatically_derived]
        unsafe impl #impl_generics #krate::Wire for #name #type_generics #where_clause {
            const PLAIN: ::core::primitive::bool = #is_plain;

            #[inline]
            fn wire_bytes(&self) -> ::core::primitive::usize {
                if <Self as #krate::Wire>::PLAIN {
                    ::core::mem::size_of::<Self>()
                } else {
                    #wire_bytes
                }
            }

            #[inline]
            unsafe fn write(self, out: *mut ::core::primitive::u8) {
                if <Self as #krate::Wire>::PLAIN {
                    unsafe { #krate::wire::write_plain(self, out) }
                } else {
                    let this = ::core::mem::ManuallyDrop::new(self);
                    #write
                }
            }

            #[inline]
            unsafe fn read(
                input: &mut #krate::wire::Reader<'_>,
            ) -> ::core::result::Result<Self, #krate::wire::WireError> {
                if <Self as #krate::Wire>::PLAIN {
                    unsafe { #krate::wire::read_plain(input) }
                } else {
                    #read
                }
            }

            #[inline]
            fn describe(schema: &mut #krate::wire::Schema) {
                schema.derived::<Self>(const { &#description });
            }

            fn encode(&self, out: &mut #krate::wire::Encoder) {
                let _ = &out;
                #encode
            }

            fn decode(
                input: &mut #krate::wire::Decoder<'_>,
            ) -> ::core::result::Result<Self, #krate::wire::WireError> {
                let _ = &input;
                #decode
            }
        }
    })
}

/// The options of `#[wire(...)]`.
struct Options {
    krate: Path,
    word: Option<LitStr>,
    /// True if type parameters get no bound.
    is_unbounded: bool,
    /// True if later versions may have further fields.
    is_extensible: bool,
}

/// Parses `#[wire(crate = "path", word = "word", unbounded, extensible)]`.
fn parse_options(attributes: &[Attribute]) -> Result<Options> {
    let mut options =
        Options { krate: options::default_crate(), word: None, is_unbounded: false, is_extensible: false };
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("wire")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("word") {
                options.word = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("unbounded") {
                options.is_unbounded = true;
            } else if meta.path.is_ident("extensible") {
                options.is_extensible = true;
            } else if meta.path.is_ident("crate") {
                options.krate = options::parse_crate(&meta, "farside")?;
            } else {
                return Err(meta.error(
                    "unknown option: expected `crate = \"path\"`, `word = \"word\"`, `unbounded` or `extensible`",
                ));
            }
            Ok(())
        })?;
    }
    Ok(options)
}

/// Returns `generics` with the bound `Wire` on each type parameter, and `Default` if the type is
/// extensible.
fn with_bounds(generics: &Generics, krate: &Path, is_extensible: bool) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#krate::Wire));
        if is_extensible {
            parameter.bounds.push(parse_quote!(::core::default::Default));
        }
    }
    generics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(input: DeriveInput) -> String {
        derive(&input).unwrap_err().to_string()
    }

    #[test]
    fn expands_to_items_that_parse() {
        let inputs: [DeriveInput; 5] = [
            parse_quote!(
                struct Unit;
            ),
            parse_quote!(
                struct Named<T, const N: usize>
                where
                    T: Clone,
                {
                    one: [T; N],
                    two: u8,
                }
            ),
            parse_quote!(
                #[wire(crate = "crate::other", word = "other::Tuple")]
                struct Tuple(u8, String);
            ),
            parse_quote!(
                enum Empty {}
            ),
            parse_quote!(
                enum Many<T = u8> {
                    Unit,
                    Tuple(T, u8),
                    Named { field: String },
                }
            ),
        ];
        for input in inputs {
            let name = input.ident.to_string();
            let item: syn::ItemImpl = syn::parse2(derive(&input).unwrap()).unwrap();
            let syn::Type::Path(of) = *item.self_ty else { panic!("the implementation is of a named type") };
            assert_eq!(of.path.segments[0].ident, name);
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        assert_eq!(
            message(parse_quote!(
                #[wire(krate = "x")]
                struct S;
            )),
            "unknown option: expected `crate = \"path\"`, `word = \"word\"`, `unbounded` or `extensible`"
        );
        assert_eq!(
            message(parse_quote!(
                #[wire(crate = "x y")]
                struct S;
            )),
            "expected the path of the farside crate, like \"::farside\""
        );
    }

    #[test]
    fn a_type_parameter_is_bounded() {
        let input = parse_quote!(
            struct S<T: Clone, U>(T, U);
        );
        let item: syn::ItemImpl = syn::parse2(derive(&input).unwrap()).unwrap();
        let bounds: Vec<String> = item
            .generics
            .type_params()
            .map(|parameter| {
                parameter.bounds.iter().map(|bound| quote!(#bound).to_string()).collect::<Vec<_>>().join(" + ")
            })
            .collect();
        assert_eq!(bounds, ["Clone + :: farside :: Wire", ":: farside :: Wire"]);
    }

    #[test]
    fn an_unbounded_parameter_keeps_its_bounds() {
        let input = parse_quote!(
            #[wire(unbounded)]
            struct S<T: 'static>(u32, PhantomData<T>);
        );
        let item: syn::ItemImpl = syn::parse2(derive(&input).unwrap()).unwrap();
        let bounds: Vec<_> = item.generics.type_params().map(|parameter| quote!(#parameter).to_string()).collect();
        assert_eq!(bounds, ["T : 'static"]);
    }
}
