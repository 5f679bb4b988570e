//! Tests of `#[derive(Wire)]`. This file forbids unsafe code, so deriving works in crates that
//! forbid it.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;

use farside::Wire;
use proptest::prelude::*;

use crate::record::{check, transfer};

#[derive(Debug, Clone, PartialEq, Wire)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Wire)]
struct Nothing {}

/// Has seven bytes of padding behind the first field, and six behind the last.
#[derive(Debug, Clone, PartialEq, Wire)]
#[repr(C)]
struct Padded {
    small: u8,
    large: u64,
    middle: u16,
}

#[derive(Debug, Clone, PartialEq, Wire)]
#[repr(align(64))]
struct Line(u8, Option<Padded>);

#[derive(Debug, Clone, PartialEq, Wire)]
struct Owner(u8, String, Padded, Vec<Padded>);

#[derive(Debug, Clone, Copy, PartialEq, Wire)]
#[repr(i8)]
enum Direction {
    Back = -1,
    Forth = 1,
}

#[derive(Debug, Clone, PartialEq, Wire)]
enum PlainEvent {
    Stop,
    Turn(Direction, u64),
    Move { by: i32 },
}

#[derive(Debug, Clone, PartialEq, Wire)]
enum Event<T, const N: usize> {
    Stop,
    Note(String, T),
    Several { values: [T; N], then: Box<Event<T, N>> },
}

trait Store {
    type Key;
}

#[derive(Debug, Clone, PartialEq, Wire)]
struct Memory;

impl Store for Memory {
    type Key = String;
}

/// Has bounds of its own, an associated type, a marker (whose parameter gets a bound like any
/// other) and a default.
#[derive(Debug, Clone, PartialEq, Wire)]
struct Entry<S, V = u32>
where
    S: Store + Clone + Debug,
    S::Key: Wire + Clone + Debug + PartialEq,
    V: Clone,
{
    key: S::Key,
    value: V,
    store: PhantomData<S>,
}

#[derive(Debug, Clone, PartialEq, Wire)]
struct Marked<T>(PhantomData<T>, u64);

#[derive(Debug, Clone, PartialEq, Wire)]
enum Never {}

#[test]
fn plain_if_all_fields_are() {
    const {
        assert!(Unit::PLAIN && Nothing::PLAIN && Padded::PLAIN && Line::PLAIN);
        assert!(Direction::PLAIN && PlainEvent::PLAIN && Marked::<String>::PLAIN);
        assert!(!Owner::PLAIN && !Event::<u8, 2>::PLAIN && !Never::PLAIN);
    }
}

#[test]
fn plain_types_round_trip() {
    check(&Unit);
    check(&Nothing {});
    let padded = Padded { small: 1, large: u64::MAX, middle: 3 };
    check(&padded);
    check(&vec![padded.clone(); 9]);
    check(&Line(5, Some(padded)));
    check(&[Direction::Back, Direction::Forth]);
    check(&[PlainEvent::Stop, PlainEvent::Turn(Direction::Back, 7), PlainEvent::Move { by: -1 }]);
    check(&Marked(PhantomData::<String>, 9));
}

proptest! {
    #[test]
    fn structs_round_trip(name: String, numbers: Vec<(u8, u64, u16)>) {
        let padded = |(small, large, middle)| Padded { small, large, middle };
        let all: Vec<Padded> = numbers.into_iter().map(padded).collect();
        check(&Owner(1, name, padded((2, 3, 4)), all));
    }

    #[test]
    fn enums_round_trip(note: String, values: [Option<String>; 3]) {
        let note = Event::Note(note, values[0].clone());
        check(&note);
        check(&Event::Several { values, then: Box::new(note) });
    }

    #[test]
    fn generics_round_trip(key: String, value: Vec<u8>) {
        check(&Entry::<Memory, _> { key, value, store: PhantomData });
    }
}

#[test]
fn the_variant_is_a_number_of_four_bytes() {
    assert_eq!(Event::<u8, 3>::Stop.wire_bytes(), 4);
    assert_eq!(Event::<u8, 3>::Note(String::from("ab"), 1).wire_bytes(), 4 + (8 + 2) + 1);
    let then = Box::new(Event::Stop);
    assert_eq!(Event::Several { values: [1_u8, 2, 3], then }.wire_bytes(), 4 + 3 + (1 + 4));
}

#[test]
fn options_with_impossible_values() {
    check(&None::<Never>);
    check(&Ok::<u8, Never>(3));
}

thread_local! {
    static DROPS: Cell<u32> = const { Cell::new(0) };
}

fn count_drop() {
    DROPS.set(DROPS.get() + 1);
}

#[derive(Wire)]
struct Ticket(u64);

impl Drop for Ticket {
    fn drop(&mut self) {
        count_drop();
    }
}

#[derive(Wire)]
enum Booking {
    Single { name: String, ticket: Ticket },
    Group(Vec<Ticket>, Option<Box<Ticket>>),
}

impl Drop for Booking {
    fn drop(&mut self) {
        count_drop();
    }
}

#[test]
fn a_destructor_runs_once_and_at_the_receiver() {
    /// Returns the numbers of destructors that run when `value` is sent, and when the arrived value
    /// is dropped.
    fn drops<T: Wire>(value: T) -> (u32, u32) {
        DROPS.set(0);
        let arrived = transfer(value);
        let sending = DROPS.replace(0);
        drop(arrived);
        (sending, DROPS.get())
    }
    const { assert!(Ticket::PLAIN && !Booking::PLAIN) }
    assert_eq!(drops(Ticket(1)), (0, 1));
    assert_eq!(drops([Ticket(1), Ticket(2)]), (0, 2));
    assert_eq!(drops((Ticket(1), String::from("x"))), (0, 1));
    assert_eq!(drops(vec![Ticket(1), Ticket(2), Ticket(3)]), (0, 3));
    assert_eq!(drops(vec![Some(Box::new(Ticket(1))), None]), (0, 1));
    assert_eq!(drops(Booking::Single { name: String::from("n"), ticket: Ticket(1) }), (0, 2));
    assert_eq!(drops(Booking::Group(vec![Ticket(1), Ticket(2)], Some(Box::new(Ticket(3))))), (0, 4));
}

#[test]
fn parts_that_arrived_are_dropped_when_the_rest_is_missing() {
    let value = || (String::from("x"), vec![Ticket(1), Ticket(2)], Box::new(Ticket(3)), Some(String::from("y")));
    let whole_bytes = value().wire_bytes();
    let drops = |left_out_bytes| {
        let value = value();
        DROPS.set(0);
        assert!(crate::record::transfer_part(value, whole_bytes - left_out_bytes).is_err());
        DROPS.get()
    };
    let option_bytes = 4 + 8 + 1;
    let box_bytes = 1 + 8;
    assert_eq!(drops(1), 3);
    assert_eq!(drops(option_bytes), 3);
    assert_eq!(drops(option_bytes + 1), 2);
    assert_eq!(drops(option_bytes + box_bytes + 1), 0);
}
