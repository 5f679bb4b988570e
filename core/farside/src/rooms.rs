//! The rooms of this crate, in one list: every process has them, also of a program that uses none
//! of them itself. The rooms of other crates register themselves (`crate::runtime::room`).

use crate::check::CheckRoom;
use crate::extensions::Extensions;
use crate::global::GlobalRoom;
use crate::memory::ProcessMemory;
use crate::runtime::room::RoomEntry;

/// The rooms of every process, from the bottom up: they learn of a loss in this order.
///
/// Tags: 1 memory, 2 check, 3 global, 4 heap, 5 pipe, 6 sync, 7 dist, 8 buffers, 9 tasks,
/// 10 extensions.
pub(crate) static ROOMS: &[RoomEntry] = &[
    RoomEntry::of::<ProcessMemory>(),
    RoomEntry::of::<CheckRoom>(),
    RoomEntry::of::<GlobalRoom>(),
    RoomEntry::of::<Extensions>(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_room_has_a_tag_of_its_own() {
        let mut tags: Vec<u8> = ROOMS.iter().map(|room| room.tag()).collect();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), ROOMS.len());
    }
}
