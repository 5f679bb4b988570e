//! A wrong length does not make the receiver reserve memory for it.

use std::mem::MaybeUninit;

use farside::Wire;
use farside::check::requested_by;
use farside::wire::{Reader, WireError};

use crate::record::{Record, read, write};

/// 16 KiB in memory for 8 bytes on the wire.
struct Roomy([u64; 2048]);

impl Roomy {
    fn new(first: u64) -> Self {
        let mut numbers = [0; 2048];
        numbers[0] = first;
        Self(numbers)
    }
}

// SAFETY: (1) numbers; (2, 4) the first of them is written and read, and the others are 0; (3)
// numbers have no destructor; (6) it has 8 bytes.
unsafe impl Wire for Roomy {
    const PLAIN: bool = false;

    fn wire_bytes(&self) -> usize {
        self.0[0].wire_bytes()
    }

    unsafe fn write(self, out: *mut u8) {
        // SAFETY: the caller passes room for `wire_bytes`, which are those of the number.
        unsafe { self.0[0].write(out) };
    }

    unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        // SAFETY: any bytes are a valid `u64`.
        match unsafe { u64::read(input) }? {
            u64::MAX => Err(WireError::invalid::<Self>(u64::MAX)),
            first => Ok(Self::new(first)),
        }
    }
}

/// Returns a length followed by bytes of which no element can be made.
fn lying_record(elements: u64, record_bytes: usize) -> Record {
    let rest = vec![0xFF; record_bytes - size_of::<u64>()];
    elements.to_le_bytes().into_iter().chain(rest).map(MaybeUninit::new).collect()
}

#[test]
fn memory_is_bounded_by_the_record() {
    const RECORD_BYTES: usize = 1 << 16;
    // The most elements that a record of this size can claim, if each has one byte: 1 GiB in
    // memory.
    let record = lying_record((RECORD_BYTES - size_of::<u64>()) as u64, RECORD_BYTES);
    // SAFETY: the plain part of a `Roomy` is a number.
    let (error, requested_bytes) = requested_by(|| unsafe { read::<Vec<Roomy>>(&record) }.err());
    assert!(matches!(error, Some(WireError::Invalid { .. })), "{error:?}");
    assert!(requested_bytes <= 4 * RECORD_BYTES as u64, "{requested_bytes} bytes for a record of {RECORD_BYTES}");
}

#[test]
fn elements_that_are_wider_in_memory_all_arrive() {
    for length in [1, 2, 3, 15, 16, 17, 127, 128, 129] {
        let sent: Vec<Roomy> = (0..length).map(Roomy::new).collect();
        // SAFETY: a `Vec<Roomy>` was written there.
        let (arrived, left_bytes) = unsafe { read::<Vec<Roomy>>(&write(sent, 0)) }.unwrap();
        assert_eq!(left_bytes, 0);
        assert!(arrived.iter().map(|roomy| roomy.0[0]).eq(0..length));
    }
}
