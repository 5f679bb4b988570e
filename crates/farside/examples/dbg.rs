//! tmp
use farside::prelude::*;
use std::cell::Cell;
fn main() -> farside::Result<()> {
    farside::job().processes(2).deadline(std::time::Duration::from_secs(3)).run(|me: &Worker| {
    let sums = PerWorker::new(me, Cell::new((0_u64, 0_u64)))?;
    for size in [0usize, 1, 7, 8, 9, 55, 56, 57, 4000, 4096, 65_535, 65_536, 65_537, 600_000, 1 << 20, 3 << 20] {
        let buffer: Vec<u8> = vec![1; size];
        let r = me.call_buffer(me.neighbor(1), (sums, size as u64), &buffer, |there, (sums, size), buffer| {
            assert_eq!(buffer.len() as u64, size);
            let (bytes, sum) = sums.here(there).get();
            sums.here(there).set((bytes + size, sum + 1));
        });
        if let Err(e) = r { eprintln!("{} size {size} {:?} {:?}", me.id(), e.error, me.counters()); return Err(e.into()); }
    }
    me.barrier()
    })
}
