//! A process that sends its peers well-formed messages about pipes that make no sense, while these
//! use pipes. Whatever the messages ask for, the peers must not panic, hang or end.

use std::sync::Mutex;

use farside::kit::WorkerParts as _;
use farside::prelude::*;
use farside::wire::{self, Decoder};
use farside::{Result, Simulation};

use super::meeting::Pipes;
use super::message::PipeMessage;
use crate::prelude::*;

/// The number of variants of a message's body.
const VARIANTS: u64 = 8;

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

    /// Returns a message about a pipe between workers 0 to 3, if these numbers are one.
    fn message(&mut self) -> Option<PipeMessage> {
        let mut bytes = Vec::new();
        // The name and the session.
        for _ in 0..4 {
            bytes = wire::encode(&(self.below(3) as u32), bytes);
        }
        bytes = wire::encode(&(self.below(VARIANTS) as u32), bytes);
        for _ in 0..16 {
            let number = match self.below(4) {
                0 | 1 => self.below(4),
                2 => 8 * self.below(600),
                _ => 1 << self.below(64),
            };
            bytes = wire::encode(&number, bytes);
        }
        // A decoder that leaves bytes over refuses them, so every length is tried.
        (20..=bytes.len()).find_map(|end| wire::decode(Decoder::new(&bytes[..end]), 0).ok())
    }
}

fn works(me: &Worker, seed: u64) -> Result<()> {
    const ROUNDS: u64 = 60;
    let own = me.id().number();
    if own == 2 {
        let mut random = Random(seed);
        let mut sent = 0;
        for _ in 0..ROUNDS {
            for message in (0..40).filter_map(|_| random.message()).collect::<Vec<_>>() {
                let to = ProcessId::new(random.below(2) as u32);
                // The transport may be full.
                sent += u32::from(me.process_handle().send::<Pipes>(to, &message).is_ok());
            }
            me.progress()?;
        }
        assert!(sent > 100, "only {sent} messages were well formed");
        return Ok(());
    }
    let peer = WorkerId::new(1 - own);
    let mut ends = [peer, WorkerId::new(2)].map(|peer| (me.pipe(peer).writer(), me.pipe(peer).reader()));
    for round in 0..ROUNDS {
        for (writer, reader) in &mut ends {
            let (Ok(writer), Ok(reader)) = (writer, reader) else { panic!("the ends are open") };
            let _ = writer.try_write(&[round as u8; 8]);
            let _ = reader.try_recv();
        }
        let answer = me.call_return(peer, round, |_, x| x + 1)?.wait()?;
        assert_eq!(answer, round + 1);
    }
    Ok(())
}

#[test]
fn healthy_processes_go_on() {
    for seed in 0..farside_testbed::scaled(10) {
        let ends = Mutex::new(Vec::new());
        let simulated = Simulation::new(3, 1, seed).run(|me| {
            let end = works(me, seed);
            ends.lock().unwrap().push(end);
            Ok(())
        });
        let verdict = simulated.unwrap().verdict;
        let ends = ends.into_inner().unwrap();
        assert!(ends.len() == 3 && ends.iter().all(Result::is_ok), "seed {seed}: {ends:?}, {verdict:?}");
        assert!(verdict.is_ok(), "seed {seed}: {verdict:?}");
    }
}
