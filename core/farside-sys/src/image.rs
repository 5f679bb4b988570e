//! Facts about the running executable: where its code lies, where its functions start, and which
//! build it is.
//!
//! Processes that run the same binary name functions to each other by their offset from the start
//! of the text, because each process maps the text at a different address. An [`Image`] turns an
//! address into such an offset. It turns an offset from another process back into an address only
//! if a function starts there.
//!
//! Only the *main* executable counts. Code of shared libraries has no offset here: each process may
//! map it elsewhere, or may even load another version.
//!
//! # Where functions start
//!
//! The linker writes a sorted table of all functions that have unwinding information
//! (`.eh_frame_hdr`), and the loader maps it. `rustc` emits that information for every function by
//! default, also with `panic = "abort"`. Two limits:
//! - A function without it is refused. Examples are assembly without directives, and C code that
//!   was built without unwinding information.
//! - The cold part that a compiler splits off a function has an entry of its own, so it passes for
//!   a function.
//!
//! The check therefore catches a stale or torn offset. It does not prove that the function has the
//! type that the caller expects. That proof must come from agreement on the build,
//! [`Image::fingerprint`].

mod eh_frame;
mod hash;
mod note;
mod segments;
mod starts;

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

pub use hash::hash_bytes;

use segments::Segments;
use starts::FunctionStarts;

/// The main executable of this process.
///
/// ```
/// use farside_sys::image::Image;
///
/// fn answer() -> u32 {
///     42
/// }
///
/// let image = Image::of_this_program()?;
/// let address = answer as fn() -> u32 as usize;
/// let offset = image.text_offset(address).expect("`answer` is part of this program");
/// assert_eq!(image.function_at(offset), Some(address));
/// # Ok::<(), farside_sys::image::ImageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    /// Addresses from the start of the first executable segment to the end of the last.
    text: Range<usize>,
    /// The executable segments: nearly always exactly one.
    executable: Vec<Range<usize>>,
    starts: FunctionStarts,
    build_id: Option<Vec<u8>>,
    fingerprint: Fingerprint,
}

/// Identifies one build of a program; equal in all processes that run the same binary.
///
/// It is computed from the build id if the linker wrote one, otherwise from the text itself. A
/// debugger's breakpoints change the text. The fingerprint guards against accidents, not against
/// forgery.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Why the facts about the running executable are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The loader does not report the main executable.
    #[error(
        "this executable cannot be examined: the loader does not show its program headers; start it with the system's own loader"
    )]
    NoProgramHeaders,
    /// No segment of the main executable holds code.
    #[error("this executable cannot be examined: it has no code segment; link it as an ordinary program")]
    NoText,
    /// The text is larger than an offset of 32 bits can express.
    #[error(
        "this executable cannot be examined: its text spans {bytes} bytes, more than 32-bit offsets reach; make it smaller"
    )]
    TextTooLarge {
        /// The size of the text.
        bytes: usize,
    },
    /// There is no build id, and the text can be executed but not read.
    #[error(
        "this executable cannot be identified: its text is not readable and it has no build id; \
             link it with -C link-arg=-Wl,--build-id"
    )]
    NoIdentity,
}

impl Image {
    /// The facts about the running program.
    ///
    /// *Cost*: the first call reads the table of functions, 8 bytes each, and writes a bitmap of
    /// one bit for each byte of text. The bitmap takes an eighth of the text's size, but pages
    /// without a function are never touched. Without a build id this call also reads the whole
    /// text, at several gigabytes a second plus page faults. Later calls take a lock and copy some
    /// words. The bitmap stays until the program ends, and all values share it.
    ///
    /// # Errors
    ///
    /// [`ImageError`] if the loader does not show the executable, or if it has no text, too large a
    /// text, or nothing that identifies it.
    pub fn of_this_program() -> Result<Image, ImageError> {
        static KEPT: Mutex<Option<Image>> = Mutex::new(None);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            *kept = Some(Image::read()?);
        }
        Ok(kept.clone().expect("was read just now"))
    }

    fn read() -> Result<Image, ImageError> {
        let segments = Segments::of_this_program().ok_or(ImageError::NoProgramHeaders)?;
        let executable = segments.executable();
        let first = executable.iter().map(|range| range.start).min().ok_or(ImageError::NoText)?;
        let end = executable.iter().map(|range| range.end).max().ok_or(ImageError::NoText)?;
        let text = first..end;
        if u32::try_from(text.len()).is_err() {
            return Err(ImageError::TextTooLarge { bytes: text.len() });
        }
        let build_id = segments.notes().find_map(|(notes, align)| note::build_id(notes, align)).map(<[u8]>::to_vec);
        let fingerprint = match &build_id {
            Some(id) => hash_bytes(text.len() as u64, id),
            None => executable
                .iter()
                .try_fold(text.len() as u64, |seed, range| Some(hash_bytes(seed, segments.bytes(range.clone())?)))
                .ok_or(ImageError::NoIdentity)?,
        };
        // Last, because its memory is never given back.
        let starts = segments
            .eh_frame_hdr()
            .and_then(|(table, address)| eh_frame::function_starts(table, address))
            .map_or(FunctionStarts::Unknown, |starts| FunctionStarts::collect(starts, &text, &executable));
        Ok(Image { text, executable, starts, build_id, fingerprint: Fingerprint(fingerprint) })
    }

    /// The addresses of the text, from the first executable segment to the end of the last.
    pub fn text(&self) -> Range<usize> {
        self.text.clone()
    }

    /// The linker's build id. The linker's defaults decide whether there is one: the C compilers of
    /// many distributions ask for it, `rustc` itself does not.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// The fingerprint of this build. *Cost*: none; it was computed with the image.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The offset of an address from the start of the text. `None` outside the text, for example
    /// for a function of a shared library.
    ///
    /// This does not check that a function starts there; [`Image::function_at`] does.
    ///
    /// *Cost*: a subtraction and a comparison.
    #[inline]
    pub fn text_offset(&self, function_address: usize) -> Option<u32> {
        let offset = function_address.wrapping_sub(self.text.start);
        // The text is shorter than 4 GiB, otherwise `of_this_program` would have failed.
        (offset < self.text.len()).then_some(offset as u32)
    }

    /// The address of the function that starts at `offset`; `None` if none does.
    ///
    /// Where function starts are not known ([`Image::checks_function_starts`]), any offset into
    /// code is accepted.
    ///
    /// *Cost*: one load from a bitmap.
    #[inline]
    pub fn function_at(&self, offset: u32) -> Option<usize> {
        let address = self.text.start.checked_add(offset as usize)?;
        let allowed = match &self.starts {
            FunctionStarts::Known(starts) => starts.contains(offset),
            FunctionStarts::Unknown => self.executable.iter().any(|range| range.contains(&address)),
        };
        allowed.then_some(address)
    }

    /// Returns whether [`Image::function_at`] knows where functions start. If not, it only checks
    /// that the offset lies in code.
    pub fn checks_function_starts(&self) -> bool {
        matches!(self.starts, FunctionStarts::Known(_))
    }

    /// Number of known function starts; 0 if they are not known.
    pub fn function_count(&self) -> usize {
        match &self.starts {
            FunctionStarts::Known(starts) => starts.len(),
            FunctionStarts::Unknown => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_known_starts_any_offset_into_code_is_accepted() {
        let image = Image {
            text: 1000..1300,
            executable: vec![1000..1100, 1200..1300],
            starts: FunctionStarts::Unknown,
            build_id: None,
            fingerprint: Fingerprint(0),
        };
        assert!(!image.checks_function_starts());
        for offset in (0..400).chain([u32::MAX]) {
            let in_code = offset < 100 || (200..300).contains(&offset);
            assert_eq!(image.function_at(offset), in_code.then_some(1000 + offset as usize), "{offset}");
        }
    }

    /// A thousand simulated processes of one program have one bitmap.
    #[test]
    fn images_of_one_program_share_their_starts() {
        let [one, two] = [(); 2].map(|()| Image::of_this_program().expect("this program has an image"));
        let [FunctionStarts::Known(one), FunctionStarts::Known(two)] = [one.starts, two.starts] else {
            panic!("the linker wrote a table of functions")
        };
        assert!(one.shares_memory_with(&two));
    }
}
