//! The exact bytes of answers and of names.
//!
//! They may change with the version of the greeting, and only with it. `farside-connect` has the
//! bytes of the other messages.

use std::fmt::Debug;

use farside_wire::{Decoder, Wire};

use crate::answer::{Bind, Bound, Refused};

/// Decodes a message, which is given in parts, and checks that it is encoded in the same way.
#[track_caller]
fn read<T: Wire + Debug>(parts: &[&[u8]]) -> T {
    let bytes = parts.concat();
    let value = farside_wire::decode(Decoder::new(&bytes), 0).unwrap();
    assert_eq!(farside_wire::encode(&value, Vec::new()), bytes, "{value:?}");
    value
}

#[test]
fn answers_and_names_have_fixed_bytes() {
    let text = [1, 0, 0, 0, 0, 0, 0, 0, b'a'];
    let bind: Bind = read(&[&text, &[2, 1], &[1, 0, 0, 0, 0, 0, 0, 0], &text, &text]);
    assert_eq!(bind, Bind { service: "a".into(), provider: 0x102, procedures: vec![("a".into(), "a".into())] });
    assert_eq!(read::<Bound>(&[&[0; 4], &[7, 0, 0, 0]]), Bound::Procedure { number: 7 });
    assert_eq!(read::<Bound>(&[&[1, 0, 0, 0], &text]), Bound::Unknown { served: "a".into() });
    assert_eq!(read::<Bound>(&[&[2, 0, 0, 0], &text]), Bound::Shape { theirs: "a".into() });
    let refused = |variant: u8, parts: &[&[u8]]| read::<Refused>(&[&[&[variant, 0, 0, 0][..]], parts].concat());
    assert_eq!(refused(0, &[]), Refused::Expired);
    assert_eq!(refused(1, &[]), Refused::Cancelled);
    assert_eq!(refused(2, &[&[9, 0, 0, 0, 0, 0, 0, 0], &text]), Refused::Busy { limit: 9, what: "a".into() });
    assert_eq!(refused(3, &[&text, &text]), Refused::Unknown { name: "a".into(), served: "a".into() });
    assert_eq!(refused(4, &[&text]), Refused::Undecodable { cause: "a".into() });
    let too_large = Refused::TooLarge { is_result: true, bytes: 2, max: 1 };
    assert_eq!(refused(5, &[&[1], &[2, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0]]), too_large);
    assert_eq!(refused(6, &[&text]), Refused::Panicked { message: "a".into() });
    assert_eq!(refused(7, &[]), Refused::ShuttingDown);
    assert_eq!(refused(8, &[]), Refused::Late);
}
