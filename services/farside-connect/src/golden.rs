//! The exact bytes of the messages of a greeting, and of the bodies of frames.
//!
//! Programs of different releases exchange at least a [`Hello`] and a [`Refusal::Version`]. The
//! other messages may change with [`VERSION`], and only with it. [`crate::frame`] has the bytes of
//! headers.

use std::fmt::Debug;

use farside_wire::{Decoder, Wire};

use crate::frame::{Fetch, Share, Take};
use crate::greeting::{Hello, Nearby, Proof, Refusal, Reply, VERSION, Welcome};
use crate::remote::Description;
use crate::segments::Segments;

/// Decodes a message, which is given in parts, and checks that it is encoded in the same way.
#[track_caller]
fn read<T: Wire + Debug>(parts: &[&[u8]]) -> T {
    let bytes = parts.concat();
    let value = farside_wire::decode(Decoder::new(&bytes), 0).unwrap();
    assert_eq!(farside_wire::encode(&value, Vec::new()), bytes, "{value:?}");
    value
}

#[test]
fn a_client_has_fixed_messages() {
    assert_eq!(VERSION, 5, "change the bytes below with the version");
    let hello: Hello = read(&[
        b"fars-rpc",
        &[5, 0, 0, 0],
        &[0xaa; 16],
        // The name of the token.
        &[1, 2, 0, 0, 0, 0, 0, 0, 0],
        b"ab",
    ]);
    assert_eq!((&hello.magic, hello.version, hello.nonce), (b"fars-rpc", 5, [0xaa; 16]));
    assert_eq!(hello.token.as_deref(), Some("ab"));
    let proof: Proof = read(&[&[0xbb; 32], &[0]]);
    assert_eq!((proof.proof, proof.secret), ([0xbb; 32], None));
    // The secret has an address and 16 bytes.
    let proof: Proof = read(&[&[0xbb; 32], &[1], &[1, 2, 3, 4, 5, 6, 7, 8], &[0xcc; 16]]);
    let secret = proof.secret.map(|secret| format!("{secret:?}")).unwrap();
    assert!(secret.contains(&0x0807_0605_0403_0201_u64.to_string()) && secret.contains("204"), "{secret}");
}

#[test]
fn a_server_has_fixed_messages() {
    let challenge: Reply = read(&[&[0, 0, 0, 0], &[0xaa; 16]]);
    assert_eq!(challenge, Reply::Challenge { nonce: [0xaa; 16] });
    let welcome: Reply = read(&[
        &[1, 0, 0, 0],
        &[0xbb; 32],
        // No secret.
        &[0],
        &[1, 2, 0, 0, 0, 0, 0, 0],
        &[3, 4, 0, 0, 0, 0, 0, 0],
        &[5, 6, 0, 0],
        &[7, 8, 0, 0, 0, 0, 0, 0],
        // No RDMA.
        &[0],
        // The machine and an address there.
        &[1],
        &[0xdd; 16],
        &[5, 0, 0, 0, 0, 0, 0, 0],
        b"shm:a",
    ]);
    let Reply::Welcome(welcome) = welcome else { panic!("{welcome:?}") };
    let Welcome { proof, secret, incarnation, connection, calls_max, bytes_max, rdma, nearby } = welcome;
    assert_eq!((rdma, nearby), (None, Some(Nearby { machine: [0xdd; 16], address: "shm:a".into() })));
    assert_eq!((proof, secret), ([0xbb; 32], None));
    assert_eq!((incarnation, connection, calls_max, bytes_max), (0x201, 0x403, 0x605, 0x807));
    let refused = |parts: &[&[u8]]| match read(&[&[&[2_u8, 0, 0, 0][..]], parts].concat()) {
        Reply::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[&[0; 4], &[4, 0, 0, 0], &[3, 0, 0, 0]]), Refusal::Version { server: 4, client: 3 });
    assert_eq!(refused(&[&[1, 0, 0, 0]]), Refusal::OtherUser);
    assert_eq!(refused(&[&[2, 0, 0, 0]]), Refusal::NeedsToken);
    assert_eq!(refused(&[&[3, 0, 0, 0]]), Refusal::Unproven);
    assert_eq!(refused(&[&[4, 0, 0, 0], &[9, 0, 0, 0]]), Refusal::Full { max: 9 });
    assert_eq!(refused(&[&[5, 0, 0, 0]]), Refusal::ShuttingDown);
    let malformed = refused(&[&[6, 0, 0, 0], &[2, 0, 0, 0, 0, 0, 0, 0], b"no"]);
    assert_eq!(malformed, Refusal::Malformed { why: "no".into() });
}

#[test]
fn bodies_of_frames_have_fixed_bytes() {
    let fetch: Fetch = read(&[&[1, 0, 0, 0, 0, 0, 0, 0], &[2; 8], &[3; 8], &[4; 8]]);
    let word = |byte: u64| byte * 0x0101_0101_0101_0101;
    assert_eq!(fetch, Fetch { offset: 1, bytes: word(2), into: word(3), into_offset: word(4) });
    // A segment of 3 bytes at the address 5.
    let take: Take = read(&[&[1; 8], &[2, 0, 0, 0, 0, 0, 0, 0], &[10, 6]]);
    assert_eq!(take.operation, word(1));
    let segments = Segments::unpack(&take.segments).unwrap();
    assert!(segments.range(0, usize::MAX).eq([(5, 3)]));
    let share: Share = read(&[&[1; 8], &[2; 8], &[3; 8], &[1]]);
    assert_eq!(share, Share { key: word(1), base: word(2), bytes: word(3), may_write: true });
    let empty = [0; 8];
    let memory: Vec<Option<Description>> = read(&[
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[0],
        // The number, the size, no bytes, no segments, the number of shared memory, not to write.
        &[1],
        &[[1; 8], [2; 8]].concat(),
        &[0],
        &empty,
        &[1, 5, 0, 0, 0, 0, 0, 0, 0],
        &[0],
    ]);
    let (number, bytes) = (word(1), word(2));
    let described = Description { number, bytes, inline: None, segments: vec![], shared: Some(5), may_write: false };
    assert_eq!(memory, [None, Some(described)]);
}
