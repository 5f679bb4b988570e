//! The memory that a job of a given shape takes, as a sum with its terms.

use farside_fabric::ring::RingControl;

use crate::invoke::ring::pool::ALIGN_BYTES;
use crate::runtime::home::{
    CALLER_SLOT_COUNT, CALLER_SPACE_BYTES, HomeLayout, LATCH_COUNT, REPLY_SLOT_BYTES, REPLY_SLOT_COUNT,
    REPLY_SPACE_BYTES, SEGMENT_BYTES, SEGMENT_COUNT, Shape,
};
use farside_launch::ring_options::{FIRST_CHUNK_BYTES, FIRST_CHUNK_COUNT, FIRST_SHARED_CHUNK_BYTES};
use farside_launch::settings::STARTER_BYTES;

/// The shared memory that a job takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// The starter memory of each process: the sum of [`starter_terms`](Self::starter_terms),
    /// rounded up to whole pages.
    pub starter_bytes: u64,
    /// The parts of the starter memory.
    pub starter_terms: Vec<(&'static str, u64)>,
    /// The ring memory of an idle pair of workers, after one has called the other both directly and
    /// on the shared ring.
    pub idle_pair_bytes: u64,
    /// The parts of that ring memory.
    pub idle_pair_terms: Vec<(&'static str, u64)>,
}

/// Returns the memory that a job of `processes` processes with `threads` worker threads each takes.
pub fn footprint(processes: u32, threads: u32) -> Footprint {
    let shape = Shape { processes, threads, without_body: 0 };
    let page = farside_sys::shm::page_bytes();
    let per_thread = |bytes: usize| u64::from(threads) * bytes as u64;
    let layout = HomeLayout::new(shape, STARTER_BYTES as usize);
    let starter = layout.bytes();
    let bell_bytes = layout.arrival_word(0, 0) - layout.thread(0);
    let starter_terms = vec![
        ("doorbells and looks", per_thread(bell_bytes)),
        ("arrival bits", per_thread(layout.arrival_bytes())),
        ("reply slots", per_thread(REPLY_SLOT_COUNT * REPLY_SLOT_BYTES)),
        ("reply space", per_thread(REPLY_SPACE_BYTES)),
        ("callers' doorbell and bits", (bell_bytes + layout.arrival_bytes()) as u64),
        ("callers' replies", (CALLER_SLOT_COUNT * REPLY_SLOT_BYTES + CALLER_SPACE_BYTES) as u64),
        ("latches", (LATCH_COUNT * 8) as u64),
        ("segments", (SEGMENT_COUNT as usize * SEGMENT_BYTES) as u64),
        ("the program's", STARTER_BYTES.into()),
    ];
    let control = size_of::<RingControl>().next_multiple_of(ALIGN_BYTES);
    let idle_pair_terms = vec![
        ("ring chunks", (FIRST_CHUNK_COUNT * FIRST_CHUNK_BYTES) as u64),
        ("ring control", control as u64),
        ("shared ring chunks", (FIRST_CHUNK_COUNT * FIRST_SHARED_CHUNK_BYTES) as u64),
        ("shared ring control", control as u64),
    ];
    Footprint {
        starter_bytes: starter.next_multiple_of(page) as u64,
        starter_terms,
        idle_pair_bytes: idle_pair_terms.iter().map(|(_, bytes)| bytes).sum(),
        idle_pair_terms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_make_the_sum() {
        for (processes, threads) in [(1, 1), (2, 1), (8, 4), (1000, 2)] {
            let footprint = footprint(processes, threads);
            let terms: u64 = footprint.starter_terms.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(terms.next_multiple_of(farside_sys::shm::page_bytes() as u64), footprint.starter_bytes);
        }
    }

    #[test]
    fn an_idle_pair_is_cheap() {
        assert!(footprint(2, 1).idle_pair_bytes <= 16 << 10);
    }
}
