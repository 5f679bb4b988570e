//! Reading exposed memory through doors on the network, over the loopback device.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use farside::{RegisterMemory, Worker, WorkerId};
use farside_inspect::Expose;
use farside_viewer::{At, Inspector, Selection, Target, create_token_file, jobs};

use super::wait_for;
use crate::kit::*;
use crate::limits::system::ByteStream;

const BYTES: usize = 16 << 20;
/// Reads of one run.
const READS: usize = 20;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::job("get/16MiB/tcp", 2, get)]
}

/// A file with tokens, which goes with this.
struct TokenFile(PathBuf);

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads memory that worker 1 exposes. The limit is a bare stream of as many bytes, in turns.
fn get(me: &Worker, options: Options) -> Measured {
    let memory = me.register(vec![1.0_f64; BYTES / 8])?;
    let owner = WorkerId::new(1);
    let shown = (me.id() == owner).then(|| me.expose("memory", &memory)).transpose()?;
    let file = TokenFile(std::env::temp_dir().join(format!("farside-bench-token-{}", std::process::id())));
    let mut stream = ByteStream::new(me)?;
    let mut values = vec![0.0; BYTES / 8];
    let area = if me.is_first() {
        create_token_file(&file.0).map_err(failed)?;
        me.open_network_door("tcp://127.0.0.1:0", &file.0)?;
        let own = std::process::id();
        let mut found = jobs().map_err(failed)?.into_iter().flat_map(|job| job.processes);
        let address = found.find_map(|about| about.network.filter(|_| about.system_process == own));
        let target = Target::new(address.unwrap_or_default()).token_file(Some(file.0.clone()));
        Some(wait_for(&Inspector::connect(target).map_err(failed)?, "memory")?)
    } else {
        None
    };
    // The first run warms up.
    let taken = warmed(options, |_| {
        let begun = Instant::now();
        if let Some(area) = &area {
            for _ in 0..READS {
                area.get_into(&Selection::all(), At::Now, black_box(&mut values)).map_err(failed)?;
            }
        }
        let rate = (READS * BYTES) as f64 / begun.elapsed().as_secs_f64();
        let limit = stream.per_second(me, READS * BYTES, farside::bytemuck::cast_slice_mut(&mut values))?;
        Ok([rate, limit])
    })?;
    me.barrier()?;
    drop(shown);
    Ok(taken.rows([column("bytes_per_s", "B/s", 0).against("a bare TCP stream", 1)]))
}
