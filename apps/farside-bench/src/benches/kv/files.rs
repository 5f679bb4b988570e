//! Long files, put into a store on disk and got from it, compared with `cp` of the same file in the
//! same folder. A put is safe when it returns, so the copy it is compared with is synced.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use farside::{Worker, WorkerId};
use farside_kv::{Client, KvServer, Store};
use farside_rpc::{Credentials, Server};

use super::super::size_name;
use super::KEY;
use crate::kit::*;

/// `--quick` leaves out the longer one.
const SIZES: [usize; 2] = [256 << 20, LONG];
const LONG: usize = 1 << 30;

pub(super) fn cases() -> impl Iterator<Item = Case> {
    SIZES.into_iter().flat_map(|bytes| {
        [("put-file", true), ("get-file", false)].map(|(name, is_put)| {
            let name = format!("{name}/{}", size_name(bytes));
            Case::job(name, 2, move |me, options| measure(me, options, bytes, is_put))
        })
    })
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind takes room, and no other run finds it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn measure(me: &Worker, options: Options, bytes: usize, is_put: bool) -> Measured {
    if options.quick && bytes == LONG {
        return Ok(Vec::new());
    }
    let serving = WorkerId::new(1);
    let name = format!("farside-bench-files-{}", me.broadcast(serving, (me.id() == serving).then(std::process::id))?);
    let (folder, address) = (std::env::temp_dir().join(&name), format!("shm:{name}"));
    let server = match me.id() == serving {
        true => {
            fs::create_dir(&folder).map_err(failed)?;
            let removed = Folder(folder.clone());
            let store = Store::open(folder.join("store")).map_err(failed)?;
            let builder = Server::builder().listen(&address).map_err(failed)?;
            Some((builder.provider(0, KvServer::new(store)).pool(2).start().map_err(failed)?, removed))
        }
        false => None,
    };
    me.barrier()?;
    let (from, to) = (folder.join("from"), folder.join("to"));
    let mut kv = None;
    if me.is_first() {
        let client = Client::connect(&address, Credentials::own_user()).map_err(failed)?;
        write(&from, bytes).map_err(failed)?;
        client.put_file(KEY, &from, |_, _| ()).map_err(failed)?;
        kv = Some(client);
    }
    let taken = in_turns(me, options, |_| {
        on_first(me, || {
            let Some(kv) = &kv else { return Ok(Vec::new()) };
            let rate = |start: Instant| bytes as f64 / start.elapsed().as_secs_f64();
            let start = Instant::now();
            copy(&from, &to, is_put)?;
            let of_copy = rate(start);
            fs::remove_file(&to).map_err(failed)?;
            let start = Instant::now();
            match is_put {
                true => kv.put_file(KEY, &from, |_, _| ()),
                false => kv.get_to_file(KEY, &to, |_, _| ()),
            }
            .map_err(failed)?;
            let own = rate(start);
            // A put has left none.
            let _ = fs::remove_file(&to);
            Ok(vec![of_copy, own])
        })
    })?;
    drop(server);
    let limit = if is_put { "cp and sync" } else { "cp" };
    Ok(taken.rows([column("bytes_per_s", "B/s", 1).against(limit, 0)]))
}

/// Writes a file that does not consist of zeroes.
fn write(path: &Path, bytes: usize) -> std::io::Result<()> {
    let block: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    let mut file = File::create(path)?;
    (0..bytes / block.len()).try_for_each(|_| file.write_all(&block))?;
    file.sync_all()
}

fn copy(from: &Path, to: &Path, is_synced: bool) -> Result<(), BenchError> {
    let status = Command::new("cp").args([from, to]).status().map_err(failed)?;
    if !status.success() {
        return Err(failed(format_args!("cp: {status}")));
    }
    if is_synced { File::open(to).and_then(|copy| copy.sync_all()).map_err(failed) } else { Ok(()) }
}
