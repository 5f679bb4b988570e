//! Snapshots: the items of a container, in a file for each worker and one that lists them.
//!
//! ```text
//! PATH                 the list: what the items are, and the length of each part
//! PATH.SESSION.0 ...   the parts, one from each worker: blocks of encoded items
//! ```
//!
//! The list is replaced when all parts are written. The parts of the earlier one are deleted then.

use std::any::type_name;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use farside::wire::{self, Decoder, Schema};
use farside::{Result, Wire, Worker};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::agreement::{first, is_first, place};

use super::{During, KeepError, agree, agree_on, is_agreed, replace, session, sibling};

/// The first bytes of a list, and its version.
const MAGIC: [u8; 8] = *b"farsnap\n";
const VERSION: u32 = 1;
/// A block is written when it has this many bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// The list of a snapshot's parts. The checksum of its bytes follows it in the file.
#[derive(Clone, Wire)]
struct List {
    magic: [u8; 8],
    version: u32,
    /// The hash of the shape of the items, and the name of their type.
    shape: u64,
    type_name: String,
    session: u64,
    parts: Vec<Part>,
}

/// The part that one worker has written.
#[derive(Clone, Copy, Default, Wire)]
struct Part {
    items: u64,
    bytes: u64,
}

/// The head of each block in a part.
#[derive(Clone, Copy, Wire)]
struct BlockHead {
    /// The number of items before it.
    place: u64,
    items: u64,
    bytes: u64,
    /// The checksum of the items' bytes and of the other fields.
    checksum: u64,
}

const HEAD_BYTES: usize = 32;

impl BlockHead {
    fn of(block: &[u8], place: u64, items: u64) -> Self {
        let bytes = block.len() as u64;
        let fields = wire::encode(&(place, items, bytes), Vec::with_capacity(HEAD_BYTES));
        Self { place, items, bytes, checksum: xxh3_64_with_seed(block, xxh3_64(&fields)) }
    }
}
const CHECKSUM_BYTES: usize = 8;

/// Writes items of all workers to `path`. An earlier snapshot at `path` stays until all items are
/// written, and a crash leaves the earlier one or the new one. All workers call this, each with its
/// own items, in the same order as other collectives. Returns the number of items of all workers.
///
/// The file at `path` lists files of its folder that have the items. The format is the same on all
/// machines.
///
/// ```
/// use farside_containers::keep;
///
/// # let folder = std::env::temp_dir().join(format!("farside-doc-{}", std::process::id()));
/// # std::fs::create_dir(&folder).unwrap();
/// # let path = folder.join("squares");
/// # farside::simulate(3, 1, 1, |me| {
/// let own = me.share(0..100).map(|x| Ok((x as u64, (x * x) as u64)));
/// keep::save(me, &path, own)?;
/// let mut squares = std::collections::HashMap::new();
/// keep::restore(me, &path, |(x, square): (u64, u64)| {
///     squares.insert(x, square);
///     Ok(())
/// })?;
/// assert_eq!(me.all_reduce(squares.len(), |a, b| a + b)?, 100);
/// # Ok(())
/// # }).unwrap();
/// # std::fs::remove_dir_all(&folder).unwrap();
/// ```
///
/// *Cost*: the items are encoded one by one, and each file is synchronised with its disk.
///
/// # Errors
/// [`KeepError`]: all workers return an error if one does, and the earlier snapshot stays. Those of
/// [`Worker::all_reduce`]. The first error of `items`.
pub fn save<T: Wire>(me: &Worker, path: &Path, items: impl IntoIterator<Item = Result<T>>) -> Result<u64> {
    agree_on(me, path, &[])?;
    let session = session(me)?;
    // The parts are numbered without gaps, also if only some workers are left.
    let own = part_path(path, session, place(me).0);
    let saved = save_part(me, path, &own, session, items);
    if saved.as_ref().is_err_and(is_agreed) {
        // It belongs to no snapshot.
        let _ = fs::remove_file(&own);
    }
    saved
}

fn save_part<T: Wire>(
    me: &Worker,
    path: &Path,
    own: &Path,
    session: u64,
    items: impl IntoIterator<Item = Result<T>>,
) -> Result<u64> {
    let part = agree(me, shape::<T>().and_then(|_| write_part(own, items)))?;
    let parts = me.gather(first(me), part)?;
    let all = parts.iter().flatten().map(|part| part.items).sum();
    let replaced = parts.map_or(Ok(None), |parts| {
        let (magic, version, shape, type_name) = (MAGIC, VERSION, shape::<T>()?, type_name::<T>().to_owned());
        replace_list(path, &List { magic, version, shape, type_name, session, parts })
    });
    if let Some(earlier) = agree(me, replaced)? {
        for number in 0..earlier.parts.len() {
            // A part that stays takes room, and does no other harm.
            let part = part_path(path, earlier.session, number);
            let _ = fs::remove_file(&part).during("deleting", &part);
        }
    }
    me.broadcast(first(me), is_first(me).then_some(all))
}

/// Reads what [`save`] has written, in a job with any number of workers, and calls `take` with each
/// item on one of the workers. All workers call this, in the same order as other collectives.
/// Returns the number of items that this worker took.
///
/// # Errors
/// [`KeepError`]: all workers return an error if one does. Items before a damaged block have been
/// taken then. The first error of `take`; those of [`Worker::all_reduce`].
pub fn restore<T: Wire>(me: &Worker, path: &Path, mut take: impl FnMut(T) -> Result<()>) -> Result<u64> {
    // One worker reads the list, which another job may replace meanwhile.
    let list = if is_first(me) { read_list::<T>(path).map(Some) } else { Ok(None) };
    let list = agree(me, list.map_err(Into::into))?;
    let list = me.broadcast(first(me), list)?;
    let (own, workers) = place(me);
    let own = (0..list.parts.len()).skip(own).step_by(workers);
    let taken = own.map(|number| {
        let part = list.parts[number];
        read_part(&part_path(path, list.session, number), part, &mut take).map(|()| part.items)
    });
    let taken = taken.sum::<Result<u64>>();
    agree(me, taken)
}

fn shape<T: Wire>() -> Result<u64> {
    let schema = Schema::of::<T>();
    match schema.unportable() {
        None => Ok(schema.hash()),
        Some(part) => Err(KeepError::Handle { name: type_name::<T>(), part }.into()),
    }
}

fn part_path(path: &Path, session: u64, number: usize) -> PathBuf {
    sibling(path, &format!(".{session:016x}.{number}"))
}

fn write_part<T: Wire>(path: &Path, items: impl IntoIterator<Item = Result<T>>) -> Result<Part> {
    let file = File::create(path).during("creating", path)?;
    let mut out = BufWriter::new(file);
    let (mut part, mut block, mut place) = (Part::default(), Vec::new(), 0);
    let mut write = |block: &[u8], place, items| {
        let head = wire::encode(&BlockHead::of(block, place, items), Vec::with_capacity(HEAD_BYTES));
        out.write_all(&head).and_then(|()| out.write_all(block)).during("writing", path)?;
        Ok::<_, KeepError>((head.len() + block.len()) as u64)
    };
    for item in items {
        block = wire::encode(&item?, block);
        part.items += 1;
        if block.len() >= BLOCK_BYTES {
            part.bytes += write(&block, place, part.items - place)?;
            (place, block) = (part.items, Vec::with_capacity(BLOCK_BYTES));
        }
    }
    if place < part.items {
        part.bytes += write(&block, place, part.items - place)?;
    }
    let file = out.into_inner().map_err(|error| error.into_error()).during("writing", path)?;
    file.sync_all().during("writing", path)?;
    Ok(part)
}

/// Writes a list in place of an earlier one, which it returns.
fn replace_list(path: &Path, list: &List) -> Result<Option<List>> {
    // If there is no earlier snapshot, there are no parts to delete.
    let earlier = read_bytes(path).ok().and_then(|bytes| decode_list(path, &bytes).ok());
    let new = sibling(path, &format!(".{:016x}", list.session));
    let bytes = wire::encode(list, Vec::new());
    let bytes = wire::encode(&xxh3_64(&bytes), bytes);
    let mut file = File::create(&new).during("creating", &new)?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all()).during("writing", &new);
    if let Err(error) = written.and_then(|()| replace(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(error.into());
    }
    Ok(earlier)
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, KeepError> {
    fs::read(path).during("reading", path)
}

fn decode_list(path: &Path, bytes: &[u8]) -> Result<List, KeepError> {
    let malformed = |why: &str| KeepError::malformed(path, why);
    if !bytes.starts_with(&MAGIC) {
        return Err(malformed("it is no snapshot"));
    }
    let (list, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES.min(bytes.len()));
    if wire::decode(Decoder::new(checksum), 0) != Ok(xxh3_64(list)) {
        return Err(malformed("it was altered or cut short"));
    }
    let mut input = Decoder::new(list);
    let (_, version): ([u8; 8], u32) = Wire::decode(&mut input).map_err(|error| KeepError::malformed(path, error))?;
    if version != VERSION {
        return Err(malformed(&format!("it has version {version}; this program reads version {VERSION}")));
    }
    wire::decode(Decoder::new(list), 0).map_err(|error| KeepError::malformed(path, error))
}

fn read_list<T: Wire>(path: &Path) -> Result<List, KeepError> {
    let list = decode_list(path, &read_bytes(path)?)?;
    if list.shape != Schema::of::<T>().hash() {
        let (path, here) = (path.to_owned(), type_name::<T>().to_owned());
        return Err(KeepError::Type { path, here, there: list.type_name });
    }
    Ok(list)
}

fn read_part<T: Wire>(path: &Path, part: Part, take: &mut impl FnMut(T) -> Result<()>) -> Result<()> {
    let file = File::open(path).during("opening", path)?;
    let length = file.metadata().during("reading", path)?.len();
    if length != part.bytes {
        return Err(KeepError::malformed(path, format!("it has {length} bytes instead of {}", part.bytes)).into());
    }
    let mut input = BufReader::new(file);
    let (mut place, mut left) = (0, length);
    while place < part.items || left > 0 {
        let altered = || KeepError::malformed(path, format!("the block from item {place} on was altered"));
        let mut head = [0; HEAD_BYTES];
        left = left.checked_sub(HEAD_BYTES as u64).ok_or_else(altered)?;
        input.read_exact(&mut head).during("reading", path)?;
        let head: BlockHead =
            wire::decode(Decoder::new(&head), 0).map_err(|error| KeepError::malformed(path, error))?;
        left = left.checked_sub(head.bytes).ok_or_else(altered)?;
        let mut block = vec![0; head.bytes as usize];
        input.read_exact(&mut block).during("reading", path)?;
        let is_next = head.place == place && (1..=part.items - place).contains(&head.items);
        if !is_next || BlockHead::of(&block, place, head.items).checksum != head.checksum {
            return Err(altered().into());
        }
        let mut items = Decoder::new(&block);
        for _ in 0..head.items {
            take(T::decode(&mut items).map_err(|error| KeepError::malformed(path, error))?)?;
        }
        if items.remaining() > 0 {
            return Err(altered().into());
        }
        place += head.items;
    }
    Ok(())
}
