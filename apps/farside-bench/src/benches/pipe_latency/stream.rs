//! A stream of messages in one direction, and its rate.

use std::time::Instant;

use farside::{Worker, WorkerId};
use farside_kit::prelude::*;

use super::piped::{check, stamp};
use super::{copy_ns, trips};
use crate::kit::*;

/// Bytes of messages that may be under way, so that neither end waits for each message.
const UNDER_WAY_BYTES: usize = 256 << 10;
/// Factor over the number of round trips, because a streamed message takes less time.
const MESSAGES_PER_TRIP: u64 = 10;
const LIMIT: &str = "memcpy";

/// Measures a stream from worker 0 to the other, which checks both ends of each message and
/// releases it. Collective.
pub(super) fn measure(me: &Worker, bytes: usize, options: Options) -> Measured {
    let pipe = me.pipe(me.neighbor(1)).width((UNDER_WAY_BYTES / bytes).clamp(4, 512)).message_bytes(bytes);
    let count = MESSAGES_PER_TRIP * trips(bytes, options);
    let mut pass: Box<dyn FnMut(u64) -> farside::Result<()> + '_> = if me.id() == WorkerId::new(0) {
        let (mut writer, mut data) = (pipe.writer()?, vec![0; bytes]);
        Box::new(move |number| {
            stamp(&mut data, number);
            Ok(writer.write(&data)?)
        })
    } else {
        let mut reader = pipe.reader()?;
        Box::new(move |number| {
            let message = reader.recv()?;
            check([message[0], message[message.len() - 1]], number)
        })
    };
    // The first run connects the pipe and touches its memory.
    let taken = warmed(options, |_| {
        me.barrier()?;
        let begun = Instant::now();
        (0..count).try_for_each(&mut pass)?;
        // Waits until the last message was read.
        me.barrier()?;
        let per_s = count as f64 / begun.elapsed().as_secs_f64();
        Ok([per_s, per_s * bytes as f64, bytes as f64 / copy_ns(bytes) * 1e9])
    })?;
    drop(pass);
    me.barrier()?;
    Ok(taken.rows([column("messages_per_s", "1/s", 0), column("bytes_per_s", "B/s", 1).against(LIMIT, 2)]))
}
