//! The service messages about signals.

use super::Signal;
use crate::Wire;
use crate::memory::address::GlobalAddress;

/// A message between the service threads of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(crate) enum SignalMessage {
    /// To the owner of a signal: write the data, which goes to the owner's memory, too, and then
    /// change the word.
    Raise { request: u32, signal: GlobalAddress, what: Signal, to: GlobalAddress, data: Vec<u8> },
    /// To the owner of a word: if it holds `expected`, write the data, as above, and then `new`.
    Replace { request: u32, word: GlobalAddress, expected: u64, new: u64, to: GlobalAddress, data: Vec<u8> },
    /// The answer: done, or why not.
    Raised { request: u32, refused: Option<Refused> },
}

/// Why an owner refuses a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) struct Refused {
    /// The address of the signal, or of the data.
    pub(super) address: GlobalAddress,
    pub(super) why: Refusal,
}

/// A fault of the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum Refusal {
    Stale,
    ReadOnly,
    Misaligned,
    /// The word holds another value than expected.
    Replaced {
        found: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invoke::message::CallMessage;

    #[test]
    fn what_carries_bytes_adds_few() {
        let (signal, to) = (GlobalAddress::from_bits(1), GlobalAddress::from_bits(2));
        let message = SignalMessage::Raise { request: 1, signal, what: Signal::Add(3), to, data: vec![4; 100] };
        assert!(crate::wire::encode(&message, Vec::new()).len() < CallMessage::OVERHEAD_BYTES + 100);
        let (expected, new, data) = (u64::MAX, u64::MAX, vec![4; 100]);
        let message = SignalMessage::Replace { request: 1, word: signal, expected, new, to, data };
        assert!(crate::wire::encode(&message, Vec::new()).len() < CallMessage::OVERHEAD_BYTES + 100);
    }
}
