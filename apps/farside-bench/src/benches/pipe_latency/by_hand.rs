//! Messages by global addresses: bytes followed by a flag.

use farside::{AccessBytes, GlobalAddress, GlobalPtr, Worker};

use super::Exchange;
use super::piped::{check, stamp};
use crate::kit::*;
use crate::limits::libfabric::exchange;

/// Memory of each of the two: bytes, and a flag with lines of its own.
#[derive(Clone, Copy, Debug)]
struct Place {
    data: GlobalAddress,
    flag: GlobalPtr<u64>,
}

/// The memory at both workers, and the way in which a worker waits at its own.
#[derive(Debug)]
struct Ends<'w> {
    me: &'w Worker,
    here: Place,
    there: Place,
    patience: Patience,
}

const FLAG_DISTANCE: u64 = 256;

impl<'w> Ends<'w> {
    /// Allocates the memory. Collective.
    fn new(me: &'w Worker, bytes: usize) -> Result<Self, BenchError> {
        let data_bytes = (bytes as u64).next_multiple_of(FLAG_DISTANCE);
        let address = me.allocate_at(me.id(), data_bytes + FLAG_DISTANCE)?.address()?;
        let flag = |data: GlobalAddress| Ok::<_, BenchError>(data.cast::<u8>().add(data_bytes as usize)?.cast());
        let here = Place { data: address, flag: flag(address)? };
        here.flag.put(me, 0)?;
        let data = exchange(me, address)?[me.neighbor(1).index()];
        let there = Place { data, flag: flag(data)? };
        Ok(Self { me, here, there, patience: Patience::new(2) })
    }

    /// Raises the flag of the other.
    #[inline]
    fn tell(&self, number: u64) -> farside::Result<()> {
        self.there.flag.store(self.me, number)
    }

    /// Waits for its own flag.
    #[inline]
    fn hear(&self, number: u64) -> farside::Result<()> {
        let heard = self.patience.wait_for(|| match self.here.flag.load(self.me) {
            Ok(found) if found >= number => Some(Ok(())),
            Ok(_) => self.me.progress().err().map(Err),
            Err(error) => Some(Err(error)),
        });
        heard?
    }

    /// Returns the first and the last byte of the memory.
    #[inline]
    fn ends_at(&self, data: GlobalAddress, bytes: usize) -> farside::Result<[u8; 2]> {
        let first = data.cast::<u8>();
        Ok([first.get(self.me)?, first.add(bytes - 1)?.get(self.me)?])
    }
}

/// Puts bytes and then the flag.
#[derive(Debug)]
pub(super) struct TwoPuts<'w> {
    ends: Ends<'w>,
    data: Vec<u8>,
}

impl<'w> TwoPuts<'w> {
    pub(super) fn new(me: &'w Worker, bytes: usize) -> Result<Self, BenchError> {
        Ok(Self { ends: Ends::new(me, bytes)?, data: vec![0; bytes] })
    }
}

impl Exchange for TwoPuts<'_> {
    #[inline]
    fn send(&mut self, number: u64) -> farside::Result<()> {
        stamp(&mut self.data, number);
        self.ends.me.put_bytes(self.ends.there.data, &self.data)?;
        self.ends.tell(number)
    }

    #[inline]
    fn receive(&mut self, number: u64) -> farside::Result<()> {
        self.ends.hear(number)?;
        check(self.ends.ends_at(self.ends.here.data, self.data.len())?, number)
    }
}
