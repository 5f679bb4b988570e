//! The structure of a type, and the generated code that processes its fields.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Data, Fields, LitStr, Member, Path, Result, Type};

use super::validate;

/// A struct, as a single variant without a tag, or the variants of an enum.
pub(super) enum Shape<'a> {
    Struct(Variant<'a>),
    /// A struct whose later versions may have further fields.
    Extensible(Variant<'a>),
    Enum(Vec<Variant<'a>>),
}

/// A variant, matched or built as `pattern { member: binding, ... }`. Tuples and units use this
/// form too.
pub(super) struct Variant<'a> {
    /// The name in the description of the type.
    name: String,
    path: TokenStream,
    fields: Vec<Field<'a>>,
}

struct Field<'a> {
    member: Member,
    binding: Ident,
    ty: &'a Type,
}

impl<'a> Shape<'a> {
    pub(super) fn new(data: &'a Data) -> Result<Self> {
        match data {
            Data::Struct(data) => Ok(Self::Struct(Variant::new("struct".into(), quote!(Self), &data.fields))),
            Data::Enum(data) => {
                let variants = data.variants.iter().map(|variant| {
                    let name = &variant.ident;
                    Variant::new(name.to_string(), quote!(Self::#name), &variant.fields)
                });
                Ok(Self::Enum(variants.collect()))
            }
            Data::Union(data) => Err(validate::union_error(data)),
        }
    }

    pub(super) fn extensible(self, is_extensible: bool) -> Self {
        match self {
            Self::Struct(fields) if is_extensible => Self::Extensible(fields),
            other => other,
        }
    }

    fn variants(&self) -> &[Variant<'a>] {
        match self {
            Self::Struct(fields) | Self::Extensible(fields) => std::slice::from_ref(fields),
            Self::Enum(variants) => variants,
        }
    }

    /// The value of `PLAIN`: whether all fields are plain. An enum without variants is not plain,
    /// so that reading one is an error.
    pub(super) fn is_plain(&self, krate: &Path) -> TokenStream {
        if self.variants().is_empty() {
            return quote!(false);
        }
        let types = self.variants().iter().flat_map(|variant| &variant.fields).map(|field| field.ty);
        quote!(true #(&& <#types as #krate::Wire>::PLAIN)*)
    }

    /// An expression: the number of wire bytes of `self`, where the type is not plain.
    pub(super) fn wire_bytes(&self, krate: &Path) -> TokenStream {
        self.match_on(&quote!(self), |_, variant| {
            let tag_bytes = match self {
                Self::Struct(_) | Self::Extensible(_) => quote!(0_usize),
                Self::Enum(_) => quote!(::core::mem::size_of::<::core::primitive::u32>()),
            };
            let fields = variant
                .fields
                .iter()
                .map(|Field { binding, ty, .. }| quote!(.saturating_add(<#ty as #krate::Wire>::wire_bytes(#binding))));
            quote!(#tag_bytes #(#fields)*)
        })
    }

    /// An expression that moves the fields from `this`, a `ManuallyDrop`, to `out`, where the type
    /// is not plain.
    pub(super) fn write(&self, krate: &Path) -> TokenStream {
        self.match_on(&quote!(&*this), |tag, variant| {
            let tag = match self {
                Self::Struct(_) | Self::Extensible(_) => quote!(),
                Self::Enum(_) => quote!(let out = unsafe { #krate::wire::write_next(#tag, out) };),
            };
            let fields = variant.fields.iter().map(|Field { binding, ty, .. }| {
                quote! {
                    let bytes = <#ty as #krate::Wire>::wire_bytes(#binding);
                    let value = unsafe { ::core::ptr::read(#binding) };
                    unsafe { <#ty as #krate::Wire>::write(value, out) };
                    let out = unsafe { out.add(bytes) };
                }
            });
            quote!(#tag #(#fields)* let _ = out;)
        })
    }

    /// An expression: a `Result` with the value read from `input`, where the type is not plain.
    pub(super) fn read(&self, krate: &Path) -> TokenStream {
        let tag = quote!(unsafe { <::core::primitive::u32 as #krate::Wire>::read(input) }?);
        self.value_of(krate, &tag, |variant| variant.build(krate))
    }

    /// An expression: a `Result` with the value that `build` reads, of the variant `tag`.
    fn value_of(&self, krate: &Path, tag: &TokenStream, build: impl Fn(&Variant<'a>) -> TokenStream) -> TokenStream {
        match self {
            Self::Struct(fields) | Self::Extensible(fields) => {
                let value = build(fields);
                quote!(::core::result::Result::Ok(#value))
            }
            Self::Enum(variants) => {
                let tags = (0..).map(Literal::u32_suffixed);
                let values = variants.iter().map(build);
                quote! {
                    match #tag {
                        #(#tags => ::core::result::Result::Ok(#values),)*
                        tag => ::core::result::Result::Err(#krate::wire::WireError::invalid::<Self>(tag)),
                    }
                }
            }
        }
    }

    /// A constant expression: the shape of the type, with a further `word`.
    pub(super) fn description(&self, krate: &Path, word: Option<&LitStr>) -> TokenStream {
        let variants = self.variants().iter().map(|Variant { name, fields, .. }| {
            let members = fields.iter().map(|field| field.member.to_token_stream().to_string());
            let types = fields.iter().map(|field| field.ty);
            quote!(#krate::wire::Variant(#name, &[#((#members, <#types as #krate::Wire>::describe)),*]))
        });
        let kind = match self {
            Self::Struct(_) => quote!(Struct),
            Self::Extensible(_) => quote!(Extensible),
            Self::Enum(_) => quote!(Enum),
        };
        let word = match word {
            None => quote!(::core::option::Option::None),
            Some(word) => quote!(::core::option::Option::Some(#word)),
        };
        quote! {
            #krate::wire::Shape {
                word: #word,
                kind: #krate::wire::ShapeKind::#kind,
                variants: &[#(#variants),*],
            }
        }
    }

    /// An expression that encodes `self` to `out`.
    pub(super) fn encode(&self, krate: &Path) -> TokenStream {
        self.match_on(&quote!(self), |tag, variant| {
            let tag = match self {
                Self::Struct(_) | Self::Extensible(_) => quote!(),
                Self::Enum(_) => quote!(<::core::primitive::u32 as #krate::Wire>::encode(&#tag, out);),
            };
            let fields = variant
                .fields
                .iter()
                .map(|Field { binding, ty, .. }| quote!(<#ty as #krate::Wire>::encode(#binding, out);));
            match self {
                Self::Extensible(_) => quote!(out.extensible(|out| { let _ = &out; #(#fields)* })),
                _ => quote!(#tag #(#fields)*),
            }
        })
    }

    /// An expression: a `Result` with the value decoded from `input`.
    pub(super) fn decode(&self, krate: &Path) -> TokenStream {
        if let Self::Extensible(variant) = self {
            let value = variant.build_of(|ty| quote!(input.field::<#ty>()?));
            return quote!(input.extensible(|input| { let _ = &input; ::core::result::Result::Ok(#value) }));
        }
        self.value_of(krate, &quote!(<::core::primitive::u32 as #krate::Wire>::decode(input)?), |variant| {
            variant.build_decoded(krate)
        })
    }

    /// A `match` on the reference `value`, with the result of `arm` for each variant and its tag.
    fn match_on(&self, value: &TokenStream, arm: impl Fn(Literal, &Variant<'a>) -> TokenStream) -> TokenStream {
        if self.variants().is_empty() {
            return quote!(match *#value {});
        }
        let arms = (0..).map(Literal::u32_suffixed).zip(self.variants()).map(|(tag, variant)| {
            let Variant { path, fields, .. } = variant;
            let members = fields.iter().map(|field| &field.member);
            let bindings = fields.iter().map(|field| &field.binding);
            let body = arm(tag, variant);
            quote!(#path { #(#members: #bindings),* } => { #body })
        });
        quote!(match #value { #(#arms)* })
    }
}

impl<'a> Variant<'a> {
    fn new(name: String, path: TokenStream, fields: &'a Fields) -> Self {
        let fields = fields.members().zip(fields).enumerate().map(|(index, (member, field))| Field {
            member,
            binding: format_ident!("field_{index}", span = Span::mixed_site()),
            ty: &field.ty,
        });
        Self { name, path, fields: fields.collect() }
    }

    /// An expression: the variant, with its fields read from `input`.
    fn build(&self, krate: &Path) -> TokenStream {
        self.build_of(|ty| quote!(unsafe { <#ty as #krate::Wire>::read(input) }?))
    }

    /// An expression: the variant, with its fields decoded from `input`.
    fn build_decoded(&self, krate: &Path) -> TokenStream {
        self.build_of(|ty| quote!(<#ty as #krate::Wire>::decode(input)?))
    }

    fn build_of(&self, value: impl Fn(&Type) -> TokenStream) -> TokenStream {
        let Self { path, fields, .. } = self;
        let fields = fields.iter().map(|Field { member, ty, .. }| {
            let value = value(ty);
            quote!(#member: #value)
        });
        quote!(#path { #(#fields),* })
    }
}
