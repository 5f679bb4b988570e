//! The parts of a type, and the code that goes through them.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Data, Fields, Member, Path, Result, Type};

use super::validate;

/// A struct, as its only variant without a tag, or the variants of an enum.
pub(super) enum Shape<'a> {
    Struct(Variant<'a>),
    Enum(Vec<Variant<'a>>),
}

/// What can be matched, or built, as `pattern { member: binding, ... }`. Tuples and units are also written so.
pub(super) struct Variant<'a> {
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
            Data::Struct(data) => Ok(Self::Struct(Variant::new(quote!(Self), &data.fields))),
            Data::Enum(data) => {
                let variants = data.variants.iter().map(|variant| {
                    let name = &variant.ident;
                    Variant::new(quote!(Self::#name), &variant.fields)
                });
                Ok(Self::Enum(variants.collect()))
            }
            Data::Union(data) => Err(validate::union_error(data)),
        }
    }

    fn variants(&self) -> &[Variant<'a>] {
        match self {
            Self::Struct(fields) => std::slice::from_ref(fields),
            Self::Enum(variants) => variants,
        }
    }

    /// The value of `PLAIN`: are all fields? An enum without variants is not, so that reading one is an error.
    pub(super) fn is_plain(&self, krate: &Path) -> TokenStream {
        if self.variants().is_empty() {
            return quote!(false);
        }
        let types = self.variants().iter().flat_map(|variant| &variant.fields).map(|field| field.ty);
        quote!(true #(&& <#types as #krate::Wire>::PLAIN)*)
    }

    /// An expression: the bytes of `self`, where the type is not plain.
    pub(super) fn wire_bytes(&self, krate: &Path) -> TokenStream {
        self.match_on(&quote!(self), |_, variant| {
            let tag_bytes = match self {
                Self::Struct(_) => quote!(0_usize),
                Self::Enum(_) => quote!(::core::mem::size_of::<::core::primitive::u32>()),
            };
            let fields = variant
                .fields
                .iter()
                .map(|Field { binding, ty, .. }| quote!(.saturating_add(<#ty as #krate::Wire>::wire_bytes(#binding))));
            quote!(#tag_bytes #(#fields)*)
        })
    }

    /// An expression: moves the fields from `this`, a `ManuallyDrop`, to `out`, where the type is not plain.
    pub(super) fn write(&self, krate: &Path) -> TokenStream {
        self.match_on(&quote!(&*this), |tag, variant| {
            let tag = match self {
                Self::Struct(_) => quote!(),
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

    /// An expression: a `Result` with the value that is read from `input`, where the type is not plain.
    pub(super) fn read(&self, krate: &Path) -> TokenStream {
        match self {
            Self::Struct(fields) => {
                let value = fields.build(krate);
                quote!(::core::result::Result::Ok(#value))
            }
            Self::Enum(variants) => {
                let tags = (0..).map(Literal::u32_suffixed);
                let values = variants.iter().map(|variant| variant.build(krate));
                quote! {
                    match unsafe { <::core::primitive::u32 as #krate::Wire>::read(input) }? {
                        #(#tags => ::core::result::Result::Ok(#values),)*
                        tag => ::core::result::Result::Err(#krate::wire::WireError::invalid::<Self>(tag)),
                    }
                }
            }
        }
    }

    /// A `match` on `value`, a reference, with the result of `arm` for each variant and its tag.
    fn match_on(&self, value: &TokenStream, arm: impl Fn(Literal, &Variant<'a>) -> TokenStream) -> TokenStream {
        if self.variants().is_empty() {
            return quote!(match *#value {});
        }
        let arms = (0..).map(Literal::u32_suffixed).zip(self.variants()).map(|(tag, variant)| {
            let Variant { path, fields } = variant;
            let members = fields.iter().map(|field| &field.member);
            let bindings = fields.iter().map(|field| &field.binding);
            let body = arm(tag, variant);
            quote!(#path { #(#members: #bindings),* } => { #body })
        });
        quote!(match #value { #(#arms)* })
    }
}

impl<'a> Variant<'a> {
    fn new(path: TokenStream, fields: &'a Fields) -> Self {
        let fields = fields.members().zip(fields).enumerate().map(|(index, (member, field))| Field {
            member,
            binding: format_ident!("field_{index}", span = Span::mixed_site()),
            ty: &field.ty,
        });
        Self { path, fields: fields.collect() }
    }

    /// An expression: the variant, its fields read from `input`.
    fn build(&self, krate: &Path) -> TokenStream {
        let Self { path, fields } = self;
        let fields = fields
            .iter()
            .map(|Field { member, ty, .. }| quote!(#member: unsafe { <#ty as #krate::Wire>::read(input) }?));
        quote!(#path { #(#fields),* })
    }
}
