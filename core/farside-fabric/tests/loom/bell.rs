//! Arrival bits and the doorbell: no record stays behind while its receiver sleeps for ever.

use std::sync::Arc;

use farside_fabric::bell::{self, Doorbell, Fencing, SleepToken};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::check;
use crate::futex::Futex;
use crate::memory::{ModelReceiver, ring, send, try_receive};

/// The way in which senders announce records to a receiver, and in which it sleeps until then.
pub(crate) trait Protocol: Send + Sync + 'static {
    type Token;

    /// A sender has published a record in the ring of this bit.
    fn announce(&self, mask: u64);

    /// The bits that are set.
    fn bits(&self) -> u64;

    /// The receiver stops watching the rings of these bits.
    fn clear(&self, mask: u64);

    /// The receiver is about to sleep, and stops watching the rings of these bits.
    fn prepare(&self, watched: u64) -> Self::Token;

    /// The receiver does not sleep after all.
    fn cancel(&self, token: Self::Token);

    /// The receiver sleeps.
    fn sleep(&self, token: Self::Token);
}

/// The implementation of the crate.
struct Real {
    bits: AtomicU64,
    bell: Doorbell,
    futex: Futex,
}

impl Real {
    fn new() -> Self {
        Self { bits: AtomicU64::new(0), bell: Doorbell::default(), futex: Futex::new() }
    }
}

impl Protocol for Real {
    type Token = SleepToken;

    fn announce(&self, mask: u64) {
        bell::announce(&self.bits, mask, self.bell.fencing());
        self.bell.ring_with(|_| self.futex.wake());
    }

    fn bits(&self) -> u64 {
        self.bits.load(Ordering::Relaxed)
    }

    fn clear(&self, mask: u64) {
        bell::leave(&self.bits, mask);
    }

    fn prepare(&self, watched: u64) -> SleepToken {
        self.bell.prepare(self.bell.fencing(), || bell::clear_bits(&self.bits, watched))
    }

    fn cancel(&self, token: SleepToken) {
        self.bell.cancel(token);
    }

    fn sleep(&self, token: SleepToken) {
        self.bell.sleep_on(token, |word, seen| self.futex.wait(word, seen));
    }
}

/// The time at which a receiver stops watching a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leaves {
    /// As soon as the ring is empty.
    Awake,
    /// When the receiver goes to sleep.
    Asleep,
}

/// Receives from rings, of which number `n` has bit `n`, until `wanted` records have arrived. It
/// watches a ring once its bit is set, and sleeps when all are empty. `look` takes all records out
/// of one ring and returns their number.
pub(crate) fn receive_sleeping<P: Protocol>(
    protocol: &P,
    leaves: Leaves,
    wanted: usize,
    mut look: impl FnMut(usize) -> usize,
) {
    let mut came = 0;
    let mut look_at = |rings: u64| (0..2).filter(|ring| rings & 1 << ring != 0).map(&mut look).sum::<usize>();
    while came < wanted {
        let mut watched = protocol.bits();
        let mut found = look_at(watched);
        if leaves == Leaves::Awake && watched != 0 && came + found < wanted {
            protocol.clear(watched);
            found += look_at(std::mem::take(&mut watched));
        }
        came += found;
        if found > 0 {
            continue;
        }
        let token = protocol.prepare(watched);
        let found_late = look_at(watched);
        came += found_late;
        if protocol.bits() == 0 && found_late == 0 {
            protocol.sleep(token);
        } else {
            protocol.cancel(token);
        }
    }
}

/// Takes all records out. Returns their number.
fn drain(receiver: &mut ModelReceiver) -> usize {
    std::iter::from_fn(|| try_receive(receiver)).count()
}

fn two_records(leaves: Leaves, fencing: Fencing) {
    check(Some(4), move || {
        let (mut sender, mut receiver) = ring(&[3]);
        let protocol = Arc::new(Real::new());
        protocol.bell.set_fencing(fencing);
        let sending = thread::spawn({
            let protocol = protocol.clone();
            move || {
                for value in 1..=2 {
                    send(&mut sender, value);
                    protocol.announce(1);
                }
            }
        });
        receive_sleeping(&*protocol, leaves, 2, |_| drain(&mut receiver));
        sending.join().unwrap();
    });
}

#[test]
fn a_sleeping_receiver_is_woken_for_every_record() {
    two_records(Leaves::Awake, Fencing::Mutual);
    two_records(Leaves::Asleep, Fencing::Mutual);
}

/// The model has full fences in place of light ones, so this checks only the rest.
#[test]
fn a_sleeping_receiver_that_fences_for_its_senders_is_woken() {
    two_records(Leaves::Asleep, Fencing::ByReceiver);
}

#[test]
fn two_senders_wake_one_receiver() {
    check(Some(2), || {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| ring(&[1])).unzip();
        let protocol = Arc::new(Real::new());
        let sending = senders.into_iter().enumerate().map(|(number, mut sender)| {
            let protocol = protocol.clone();
            thread::spawn(move || {
                send(&mut sender, 1);
                protocol.announce(1 << number);
            })
        });
        let sending: Vec<_> = sending.collect();
        receive_sleeping(&*protocol, Leaves::Awake, 2, |number| drain(&mut receivers[number]));
        sending.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
