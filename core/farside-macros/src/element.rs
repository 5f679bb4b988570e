//! `#[derive(Element)]`: structs as elements of areas.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result, Type};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "only a struct can be an element: its fields become columns"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "name the fields of the struct: they become columns"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "an element has no parameters: write a struct for each type"));
    }
    let described = fields.named.iter().map(|field| {
        let (ident, mut element) = (field.ident.as_ref().expect("the field has a name"), &field.ty);
        let name = ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name);
        let mut counts = Vec::new();
        while let Type::Array(array) = element {
            counts.push(&array.len);
            element = &array.elem;
        }
        quote! {
            ::farside_inspect::__private::add_field::<#element>(
                &mut fields, #name, ::core::mem::offset_of!(Self, #ident), &[#(#counts as usize),*],
            );
        }
    });
    let ident = &input.ident;
    Ok(quote! {
        impl ::farside_inspect::__private::Sealed for #ident {}

        #[automatically_derived]
        impl ::farside_inspect::Element for #ident {
            const TYPE: ::farside_inspect::ElementType = ::farside_inspect::__private::struct_of::<Self>();

            fn fields() -> ::std::vec::Vec<::farside_inspect::Field> {
                let mut fields = ::std::vec::Vec::new();
                #(#described)*
                fields
            }

            fn bytes_mut(elements: &mut [Self]) -> ::core::option::Option<&mut [u8]> {
                ::core::option::Option::Some(::farside_inspect::__private::bytes_of(elements))
            }
        }
    })
}
