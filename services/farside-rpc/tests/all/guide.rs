//! The guide shows what compiles.

const GUIDE: &str = include_str!("../../../../docs/rpc.md");
const NOTES: &str = include_str!("../../examples/notes.rs");

#[test]
fn the_guide_has_the_example() {
    let program = &NOTES[NOTES.find("use std::error::Error;").unwrap()..];
    assert!(GUIDE.contains(program), "copy services/farside-rpc/examples/notes.rs into docs/rpc.md");
}
