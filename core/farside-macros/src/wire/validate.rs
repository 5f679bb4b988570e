//! Checks that run before any code is generated, for cases where the compiler's own message would
//! not give the reason.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DataStruct, DataUnion, DeriveInput, Error, Field, Fields, Meta, Result, Token, Type};

/// Rejects types that can never be `Wire`. Reports all reasons at once.
pub(super) fn validate(input: &DeriveInput) -> Result<()> {
    let fields: Vec<&Field> = match &input.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(data) => return Err(union_error(data)),
    };
    let errors = fields
        .iter()
        .filter_map(|field| address_error(&field.ty))
        .chain(input.generics.lifetimes().map(|parameter| {
            Error::new_spanned(parameter, "a `Wire` type borrows nothing: another process cannot reach what it borrows")
        }))
        .chain(input.attrs.iter().filter_map(packed_error))
        .chain(misplaced_option_errors(input, &fields));
    match errors.reduce(|mut all, error| {
        all.combine(error);
        all
    }) {
        None => Ok(()),
        Some(errors) => Err(errors),
    }
}

/// Rejects types to which no fields can be added.
pub(super) fn validate_extensible(input: &DeriveInput) -> Result<()> {
    match &input.data {
        Data::Struct(DataStruct { fields: Fields::Named(_), .. }) => Ok(()),
        _ => Err(Error::new_spanned(
            &input.ident,
            "`extensible` is for structs with named fields: only they can get more",
        )),
    }
}

pub(super) fn union_error(data: &DataUnion) -> Error {
    Error::new_spanned(
        data.union_token,
        "a union cannot derive `Wire`: nothing says which of its fields to send; use an enum",
    )
}

/// Reports types whose syntax already shows that they are addresses. The trait bound catches those
/// behind another name.
pub(crate) fn address_error(ty: &Type) -> Option<Error> {
    let what = match ty {
        Type::Reference(_) => {
            "a reference is an address of this process; send an owned value, like `String` or `Vec<T>`"
        }
        Type::Ptr(_) => "a raw pointer is an address of this process; send what it points to, or a global address",
        Type::FnPtr(_) => "a function pointer is an address of this process; send an enum that names the function",
        _ => return None,
    };
    Some(Error::new_spanned(ty, what))
}

fn packed_error(attribute: &Attribute) -> Option<Error> {
    if !attribute.path().is_ident("repr") {
        return None;
    }
    let options = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let packed = options.into_iter().find(|option| option.path().is_ident("packed"))?;
    Some(Error::new(packed.span(), "a packed type cannot derive `Wire`: its fields may not be aligned"))
}

/// Reports each `#[wire(...)]` that is not on the type itself, where it would be ignored.
fn misplaced_option_errors<'a>(input: &'a DeriveInput, fields: &'a [&Field]) -> impl Iterator<Item = Error> + 'a {
    let of_variants = match &input.data {
        Data::Enum(data) => Some(data.variants.iter().flat_map(|variant| &variant.attrs)),
        _ => None,
    };
    of_variants
        .into_iter()
        .flatten()
        .chain(fields.iter().flat_map(|field| &field.attrs))
        .filter(|attribute| attribute.path().is_ident("wire"))
        .map(|attribute| Error::new_spanned(attribute, "`#[wire(...)]` belongs to the whole type, not to a part of it"))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn messages(input: DeriveInput) -> Vec<String> {
        validate(&input).err().into_iter().flatten().map(|error| error.to_string()).collect()
    }

    #[test]
    fn owned_types_pass() {
        let inputs: [DeriveInput; 3] = [
            parse_quote!(
                struct S<T>(T, Vec<u8>);
            ),
            parse_quote!(
                #[repr(C, align(64))]
                struct S {
                    a: [u8; 3],
                }
            ),
            parse_quote!(
                #[repr(u8)]
                enum E {
                    A(u8),
                    B { b: () },
                }
            ),
        ];
        for input in inputs {
            assert_eq!(messages(input), Vec::<String>::new());
        }
    }

    #[test]
    fn every_address_is_reported() {
        let found = messages(parse_quote!(
            enum E<'a> {
                A(&'a str, u8),
                B { b: *const u8, c: fn() },
            }
        ));
        assert_eq!(found.len(), 4);
        for (message, start) in
            found.iter().zip(["a reference", "a raw pointer", "a function pointer", "a `Wire` type"])
        {
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn unions_and_packed_types_are_refused() {
        assert!(messages(parse_quote!(union U { a: u8, b: i8 }))[0].starts_with("a union"));
        assert!(
            messages(parse_quote!(
                #[repr(C, packed(2))]
                struct S(u8, u64);
            ))[0]
                .starts_with("a packed type")
        );
        assert!(
            messages(parse_quote!(
                #[repr(packed)]
                struct S(u8, u64);
            ))[0]
                .starts_with("a packed type")
        );
    }

    #[test]
    fn only_structs_with_named_fields_are_extensible() {
        let refused = |input: DeriveInput| validate_extensible(&input).unwrap_err().to_string();
        assert!(
            refused(parse_quote!(
                struct S(u8);
            ))
            .starts_with("`extensible` is for")
        );
        assert!(
            refused(parse_quote!(
                enum E {
                    A { a: u8 },
                }
            ))
            .starts_with("`extensible` is for")
        );
        let named: DeriveInput = parse_quote!(
            struct S {
                a: u8,
            }
        );
        validate_extensible(&named).unwrap();
    }

    #[test]
    fn options_in_the_wrong_place_are_refused() {
        assert!(
            messages(parse_quote!(
                struct S(#[wire(skip)] u8);
            ))[0]
                .starts_with("`#[wire(...)]`")
        );
        assert!(
            messages(parse_quote!(
                enum E {
                    #[wire(tag = 3)]
                    A,
                }
            ))[0]
                .starts_with("`#[wire(...)]`")
        );
    }
}
