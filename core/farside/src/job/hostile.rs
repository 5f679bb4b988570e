//! A process that sends its peers any service messages while they work with each other.
//!
//! The decoders are tested alone (`farside-tests/tests/decoders.rs`). Here messages that are well
//! formed meet a process with open streams of calls, reply slots and operations. Whatever
//! they ask for, that process must not panic, hang or end. Records of calls are left out: a process
//! of the same program is trusted to make them for the functions that they name.

use std::sync::Mutex;
use std::time::Duration;

use super::simulate::{Simulation, share_memory_within};
use crate::error::Result;
use crate::invoke::message::{CALL, CallMessage};
use crate::prelude::*;
use crate::rooms::ROOMS;
use crate::runtime::room::TAG_BIT;

/// Tags of rooms of other crates, which the processes of these tests do not have.
const ABSENT_TAGS: [u8; 3] = [4, 5, 9];

/// The number of variants of [`CallMessage`].
const CALL_VARIANTS: u32 = 12;

/// A generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }

    /// Returns a number that occurs in messages: of a worker, a slot, a length, an offset.
    fn number(&mut self) -> u64 {
        match self.below(10) {
            0..6 => self.below(4),
            6 | 7 => 8 * self.below(600),
            8 => 1 << self.below(64),
            _ => self.below(u64::MAX),
        }
    }

    /// Returns a message of a known kind and variant, with fields of the usual sizes.
    fn message(&mut self) -> Vec<u8> {
        let rooms = ROOMS.iter().map(|room| (TAG_BIT | room.tag(), room.message_kind().variants));
        let absent = ABSENT_TAGS.map(|tag| (TAG_BIT | tag, 8));
        let kinds: Vec<_> = rooms.chain(absent).chain([(CALL, CALL_VARIANTS)]).collect();
        let (start, variants) = kinds[self.below(kinds.len() as u64) as usize];
        let mut message = vec![start];
        message = farside_wire::encode(&(self.below(u64::from(variants.max(1))) as u32), message);
        for _ in 0..self.below(16) {
            let number = self.number();
            match self.below(6) {
                0 => message.push(number as u8),
                1 | 2 => message = farside_wire::encode(&(number as u32), message),
                _ => message = farside_wire::encode(&number, message),
            }
        }
        message
    }
}

/// Processes 0 and 1 work with each other and with process 2, which also sends them messages of
/// its own making.
fn works(me: &Worker, seed: u64) -> Result<()> {
    const ROUNDS: u64 = 60;
    let values = me.symmetric::<u64>(64)?;
    let own = me.id().number();
    if own == 2 {
        let mut random = Random(seed);
        let transport = me.process_handle().transport().clone();
        for round in 0..ROUNDS {
            for _ in 0..20 {
                let to = ProcessId::new(random.below(2) as u32);
                // The transport may be full.
                let _ = transport.send(to, &random.message());
            }
            let _ = me.call_return(me.neighbor(1), round, |_, x| x)?.wait_for(Duration::from_millis(1));
            me.progress()?;
        }
        return Ok(());
    }
    let peer = WorkerId::new(1 - own);
    for round in 0..ROUNDS {
        // A forged answer may be taken for the true one, and a forged put may change the values:
        // the sender is a process of the job. But every wait ends.
        let _ = me.call_return(peer, round, |_, x| x + 1)?.wait_for(Duration::from_secs(2));
        let _ = me.call_return(peer, round, |_, x| vec![x as u8; 5000])?.wait_for(Duration::from_secs(2));
        let to = values.at(me.process_of(peer))?.start();
        if let Ok(handle) = me.start_put(to.address(), &[1_u8; 64], crate::Order::None) {
            let _ = me.complete_within(handle, Duration::from_secs(2));
        }
        me.progress()?;
    }
    Ok(())
}

#[test]
fn messages_of_every_variant_are_well_formed() {
    let mut random = Random(7);
    let mut met = std::collections::BTreeSet::new();
    for message in (0..500_000).map(|_| random.message()) {
        if message[0] == CALL && CallMessage::decode(&message[1..]).is_some() {
            met.insert(message[1]);
        }
        if met.len() == CALL_VARIANTS as usize {
            return;
        }
    }
    panic!("only these variants were met: {met:?}");
}

/// Over a network, where the calls of all processes travel in messages.
#[test]
fn healthy_processes_go_on() {
    for seed in 0..20 {
        let ends = Mutex::new(Vec::new());
        let simulated = Simulation::new(3, 1, seed).run(|me| {
            let end = works(me, seed);
            if me.id().number() != 2 {
                ends.lock().unwrap().push(end);
            }
            Ok(())
        });
        let verdict = simulated.unwrap().verdict;
        let ends = ends.into_inner().unwrap();
        assert!(ends.len() == 2 && ends.iter().all(Result::is_ok), "seed {seed}: {ends:?}, {verdict:?}");
        assert!(verdict.is_ok(), "seed {seed}: {verdict:?}");
    }
}

/// Over shared memory, where calls travel in rings. Messages may make these lose calls that their
/// senders have counted. The job then ends with an error that names the counts.
#[test]
fn healthy_processes_that_share_memory_go_on() {
    for seed in 0..20 {
        let ends = Mutex::new(Vec::new());
        let verdict = share_memory_within(3, Duration::from_secs(1), |me| {
            let end = works(me, seed);
            if me.id().number() != 2 {
                ends.lock().unwrap().push(end);
            }
            Ok(())
        });
        let ends = ends.into_inner().unwrap();
        assert!(ends.len() == 2 && ends.iter().all(Result::is_ok), "seed {seed}: {ends:?}, {verdict:?}");
        if let Err(error) = verdict {
            assert!(error.to_string().contains("calls and executed"), "seed {seed}: {error}");
        }
    }
}
