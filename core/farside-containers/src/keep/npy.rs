//! Arrays in NumPy's format `.npy`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use farside::bytemuck::{self, Pod};
use farside::wire::{self, Decoder};
use farside::{GlobalArray, MakeArrays, Result, Wire, Worker};

use crate::agreement::{first, is_first};

use super::{During, KeepError, agree, agree_on, is_agreed, replace, session, sibling};

/// Numbers that `.npy` files hold: integers of 8 to 64 bits, `f32` and `f64`.
pub trait Number: Pod + sealed::Described {}

mod sealed {
    pub trait Described {
        /// The type as the header of a file names it.
        const DESCR: &'static str;
    }
}

macro_rules! numbers {
    ($($number:ty: $descr:literal),*) => {
        $(
            impl sealed::Described for $number {
                const DESCR: &'static str = $descr;
            }
            impl Number for $number {}
        )*
    };
}

numbers!(
    u8: "|u1", i8: "|i1", u16: "<u2", i16: "<i2", u32: "<u4", i32: "<i4", u64: "<u8", i64: "<i8", f32: "<f4", f64: "<f8"
);

/// The first bytes of a file, and the version that is written.
const MAGIC: [u8; 8] = *b"\x93NUMPY\x01\x00";
/// The data begin at a multiple of this.
const ALIGN: usize = 64;
/// The longest header that is read.
const HEADER_BYTES_MAX: usize = 1 << 16;

/// Writes an array to `path`, in the order of its indices. An earlier file stays until all is
/// written. All workers call this, in the same order as other collectives.
///
/// `shape` has the dimensions, the last of which varies fastest. Their product is the length of the
/// array.
///
/// ```
/// use farside::prelude::*;
/// use farside_containers::keep::npy;
///
/// # let folder = std::env::temp_dir().join(format!("farside-npy-{}", std::process::id()));
/// # std::fs::create_dir(&folder).unwrap();
/// # let path = folder.join("field.npy");
/// # farside::simulate(3, 1, 1, |me| {
/// let field = me.global_array::<f64>(6)?;
/// field.fill(me, 1.5)?;
/// npy::save(me, &path, &field, &[2, 3])?;
/// let (again, shape) = npy::load::<f64>(me, &path)?;
/// assert_eq!((again.to_vec(me)?, shape), (vec![1.5; 6], vec![2, 3]));
/// # field.free(me)?;
/// # again.free(me)
/// # }).unwrap();
/// # std::fs::remove_dir_all(&folder).unwrap();
/// ```
///
/// *Cost*: each worker writes its part, in as many pieces as its part has blocks.
///
/// # Errors
/// [`KeepError`]: all workers return an error if one does, and an earlier file stays. Those of
/// [`Worker::all_reduce`].
pub fn save<T: Number>(me: &Worker, path: &Path, array: &GlobalArray<T>, shape: &[usize]) -> Result<()> {
    agree_on(me, path, shape)?;
    let new = sibling(path, &format!(".{:016x}", session(me)?));
    let saved = save_as(me, &new, path, array, shape);
    if is_first(me) && saved.as_ref().is_err_and(is_agreed) {
        let _ = std::fs::remove_file(&new);
    }
    saved
}

fn save_as<T: Number>(me: &Worker, new: &Path, path: &Path, array: &GlobalArray<T>, shape: &[usize]) -> Result<()> {
    let header = header::<T>(shape);
    let checked = if let Some(process) = me.lost_processes().first() {
        Err(KeepError::Lost { path: path.to_owned(), process: *process }.into())
    } else if product(shape) == Some(array.len()) {
        Ok(())
    } else {
        let why = format!("the shape {shape:?} is not that of {} values", array.len());
        Err(KeepError::malformed(path, why).into())
    };
    agree(me, checked.and_then(|()| if is_first(me) { begin::<T>(new, &header, array.len()) } else { Ok(()) }))?;
    agree(me, write_local(me, new, array, header.len() as u64))?;
    agree(me, if is_first(me) { replace(new, path).map_err(Into::into) } else { Ok(()) })
}

/// Reads an array from `path`, and returns it with its dimensions. All workers call this, in the
/// same order as other collectives. Each worker reads its part.
///
/// # Errors
/// [`KeepError`]: all workers return an error if one does. Those of
/// [`Worker::global_array`](farside::MakeArrays::global_array).
pub fn load<T: Number>(me: &Worker, path: &Path) -> Result<(GlobalArray<T>, Vec<usize>)> {
    let opened = open::<T>(path).and_then(|opened| {
        let inode = opened.0.metadata().during("reading", path)?.ino();
        Ok((opened, inode))
    });
    let ((file, start, shape), inode) = agree(me, opened.map_err(Into::into))?;
    // Another job may have replaced it meanwhile.
    let all_inodes = me.broadcast(first(me), is_first(me).then_some(inode))?;
    let why = "it was replaced while the workers opened it: try again";
    agree(me, if inode == all_inodes { Ok(()) } else { Err(KeepError::malformed(path, why).into()) })?;
    let array = me.global_array::<T>(shape.iter().product())?;
    match agree(me, read_local(me, path, &file, &array, start)) {
        Ok(()) => Ok((array, shape)),
        Err(error) => {
            array.free(me)?;
            Err(error)
        }
    }
}

fn product(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length))
}

fn header<T: Number>(shape: &[usize]) -> Vec<u8> {
    let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({lengths}), }}", T::DESCR);
    let before = MAGIC.len() + 2;
    // A line break ends the header, behind spaces.
    let text_bytes = (before + text.len() + 1).next_multiple_of(ALIGN) - before;
    let header = MAGIC.to_vec();
    let mut header = wire::encode(&(text_bytes as u16), header);
    header.extend(format!("{text:<width$}\n", width = text_bytes - 1).bytes());
    header
}

/// Makes a file of the right length.
fn begin<T>(path: &Path, header: &[u8], length: usize) -> Result<()> {
    let file = File::create(path).during("creating", path)?;
    file.write_all_at(header, 0).during("writing", path)?;
    Ok(file.set_len((header.len() + length * size_of::<T>()) as u64).during("writing", path)?)
}

/// Calls `each` with the place in the array and the own part of each run of neighbouring values.
fn for_each_run<T: Number>(
    me: &Worker,
    array: &GlobalArray<T>,
    mut each: impl FnMut(usize, std::ops::Range<usize>) -> Result<()>,
) -> Result<()> {
    // Of workers that share a part, one works on it.
    if let Some(first) = array.local_indices(me).next()
        && array.worker_of(me, first)? != me.id()
    {
        return Ok(());
    }
    let mut run: Option<(usize, std::ops::Range<usize>)> = None;
    for (offset, index) in array.local_indices(me).enumerate() {
        match &mut run {
            Some((first, range)) if *first + range.len() == index => range.end += 1,
            _ => {
                if let Some((first, range)) = run.replace((index, offset..offset + 1)) {
                    each(first, range)?;
                }
            }
        }
    }
    run.map_or(Ok(()), |(first, range)| each(first, range))
}

fn write_local<T: Number>(me: &Worker, path: &Path, array: &GlobalArray<T>, start: u64) -> Result<()> {
    let file = File::options().write(true).open(path).during("opening", path)?;
    let local = array.local(me);
    for_each_run(me, array, |first, range| {
        let values = local.part(range).to_vec();
        let at = start + (first * size_of::<T>()) as u64;
        Ok(file.write_all_at(bytemuck::cast_slice(&values), at).during("writing", path)?)
    })?;
    Ok(file.sync_all().during("writing", path)?)
}

fn read_local<T: Number>(me: &Worker, path: &Path, file: &File, array: &GlobalArray<T>, start: u64) -> Result<()> {
    let local = array.local(me);
    for_each_run(me, array, |first, range| {
        let mut values = vec![T::zeroed(); range.len()];
        let at = start + (first * size_of::<T>()) as u64;
        file.read_exact_at(bytemuck::cast_slice_mut(&mut values), at).during("reading", path)?;
        local.write(range.start, &values);
        Ok(())
    })
}

/// Opens a file and returns where its data begin, and its shape.
fn open<T: Number>(path: &Path) -> Result<(File, u64, Vec<usize>), KeepError> {
    let malformed = |why: &str| KeepError::malformed(path, why);
    let mut file = File::open(path).during("opening", path)?;
    let mut begin = [0; 12];
    file.read_exact(&mut begin).map_err(|_| malformed("it is no .npy file"))?;
    let mut length = Decoder::new(&begin[MAGIC.len()..]);
    let (text_at, text_bytes) = match (&begin[..6], begin[6]) {
        (b"\x93NUMPY", 1) => (10, u16::decode(&mut length).map(usize::from)),
        (b"\x93NUMPY", 2 | 3) => (12, u32::decode(&mut length).map(|bytes| bytes as usize)),
        (b"\x93NUMPY", version) => return Err(malformed(&format!("version {version} of the format is unknown"))),
        _ => return Err(malformed("it is no .npy file")),
    };
    let text_bytes = text_bytes.map_err(|error| KeepError::malformed(path, error))?;
    if text_bytes > HEADER_BYTES_MAX {
        return Err(malformed("its header is too long"));
    }
    let mut text = vec![0; text_bytes];
    file.read_exact_at(&mut text, text_at).map_err(|_| malformed("it was cut short"))?;
    let text = String::from_utf8(text).map_err(|_| malformed("its header is no text"))?;
    let entry = |key: &str| {
        let (_, rest) = text.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start())
    };
    let descr = entry("descr").and_then(|rest| rest.strip_prefix('\'')?.split_once('\''));
    let (descr, _) = descr.ok_or_else(|| malformed("its header names no plain type"))?;
    if descr != T::DESCR {
        let (here, there) = (format!("'{}'", T::DESCR), format!("'{descr}'"));
        return Err(KeepError::Type { path: path.to_owned(), here, there });
    }
    let lengths = entry("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
    let (lengths, _) = lengths.ok_or_else(|| malformed("its header has no shape"))?;
    let lengths = lengths.split(',').map(str::trim).filter(|length| !length.is_empty());
    let shape: Option<Vec<usize>> = lengths.map(|length| length.parse().ok()).collect();
    let shape = shape.ok_or_else(|| malformed("its shape is not readable"))?;
    match entry("fortran_order") {
        Some(order) if order.starts_with("False") => {}
        Some(order) if order.starts_with("True") && shape.len() < 2 => {}
        _ => return Err(malformed("its first dimension varies fastest: save it with order='C'")),
    }
    let start = text_at + text_bytes as u64;
    let bytes = product(&shape).and_then(|length| length.checked_mul(size_of::<T>()));
    let wanted = bytes.and_then(|bytes| start.checked_add(bytes as u64));
    let length = file.metadata().during("reading", path)?.len();
    if wanted != Some(length) {
        return Err(malformed(&format!("it has {length} bytes, which is not what its shape {shape:?} needs")));
    }
    Ok((file, start, shape))
}
