//! The checks of [`farside_wire::check`] find what they look for.

use farside::Wire;
use farside::check::{MessageKind, Watched};

#[global_allocator]
static WATCHED: Watched = Watched;

#[derive(Wire)]
enum Sound {
    Numbers(Vec<u16>),
    Name(String),
    Nothing,
}

/// Decodes a length and that many bytes.
fn lengths(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*length) as usize, rest))
}

#[test]
fn a_sound_decoder_passes() {
    let kind = MessageKind::of::<Sound>();
    assert_eq!(kind.variants, 3);
    assert_eq!(MessageKind::of::<(u64, String)>().variants, 0);
    let message = farside::encode(&Sound::Numbers(vec![1, 2]), Vec::new());
    let longer = [&message[..], b"left over"].concat();
    assert_eq!(kind.check(&longer), Ok(Some(&message[..])));
    assert_eq!(kind.check(&longer[1..]), Ok(None));
    // A length of 2^64 - 1.
    assert_eq!(kind.check(&[&[0; 4][..], &[0xff; 40]].concat()), Ok(None));
}

#[test]
fn a_length_that_is_believed_unchecked_is_found() {
    let kind = MessageKind::by_hand("unchecked", |bytes| {
        let (length, rest) = lengths(bytes)?;
        let mut content = Vec::with_capacity(length);
        content.extend_from_slice(rest.get(..length)?);
        Some([&bytes[..4], &content].concat())
    });
    assert_eq!(kind.check(&[2, 0, 0, 0, 7]), Ok(None));
    let found = kind.check(&[0, 0, 1, 0, 7]).unwrap_err();
    assert!(found.contains("65536 B of memory requested"), "{found}");
}

#[test]
fn a_message_that_changes_is_found() {
    let kind = MessageKind::of::<bool>().through(&[], |bytes| match bytes {
        [byte] => Some(vec![u8::from(*byte != 0)]),
        _ => None,
    });
    assert_eq!(kind.check(&[1]), Ok(Some(&[1][..])));
    assert!(kind.check(&[2]).unwrap_err().contains("encoded to other bytes"));
}

#[test]
fn a_prefix_that_is_a_message_is_found() {
    let all = |bytes: &[u8]| lengths(bytes).map(|_| bytes.to_vec());
    let found = MessageKind::of::<u32>().through(&[], all).check(&[0; 5]).unwrap_err();
    assert!(found.contains("so is a prefix of it"), "{found}");
    assert_eq!(MessageKind::of::<u32>().with_payload(all).check(&[0; 5]), Ok(Some(&[0; 5][..])));
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_panic_is_found() {
    let _ = MessageKind::by_hand("careless", |bytes| Some(bytes[..usize::from(bytes[0])].to_vec())).check(&[9]);
}
