//! The segments of the main executable, as the loader mapped them.

use std::ops::Range;

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Phdr as ProgramHeader;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Phdr as ProgramHeader;

/// The main executable in memory.
///
/// **Invariant:** the headers describe a program that the loader has mapped at `bias` for the life
/// of the process.
pub(super) struct Segments {
    /// The difference between an address in memory and one in the headers; 0 if the program is not
    /// position-independent.
    bias: usize,
    headers: &'static [ProgramHeader],
}

impl Segments {
    /// The segments of the running program; `None` if the loader does not report them.
    pub(super) fn of_this_program() -> Option<Segments> {
        /// Takes the first object, which is the main program, and stops the iteration.
        unsafe extern "C" fn first(
            object: *mut libc::dl_phdr_info,
            _: libc::size_t,
            found: *mut libc::c_void,
        ) -> libc::c_int {
            // SAFETY: the loader passes a pointer to a valid description, which may be read until
            // this returns.
            let object = unsafe { object.read() };
            // SAFETY: `found` is the pointer passed below, to an `Option` that outlives the
            // iteration.
            unsafe { found.cast::<Option<libc::dl_phdr_info>>().write(Some(object)) };
            1
        }

        let mut found: Option<libc::dl_phdr_info> = None;
        // SAFETY: `first` has the type that the function asks for, and accepts the pointer that is
        // passed here.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
        let found = found.filter(|object| !object.dlpi_phdr.is_null())?;
        // SAFETY: the loader guarantees `dlpi_phnum` headers at `dlpi_phdr`. They belong to the
        // main program, which is never unmapped, and nothing writes them.
        let headers = unsafe { std::slice::from_raw_parts(found.dlpi_phdr, usize::from(found.dlpi_phnum)) };
        Some(Segments { bias: found.dlpi_addr as usize, headers })
    }

    /// The ranges of memory that hold code.
    pub(super) fn executable(&self) -> Vec<Range<usize>> {
        self.of_kind(libc::PT_LOAD)
            .filter(|header| header.p_flags & libc::PF_X != 0)
            .map(|header| self.range(header))
            .filter(|range| !range.is_empty())
            .collect()
    }

    /// The bytes of each note segment, with its alignment.
    pub(super) fn notes(&self) -> impl Iterator<Item = (&'static [u8], usize)> {
        self.of_kind(libc::PT_NOTE)
            .filter_map(|header| Some((self.bytes(self.range(header))?, header.p_align as usize)))
    }

    /// The table of functions, with its address.
    pub(super) fn eh_frame_hdr(&self) -> Option<(&'static [u8], usize)> {
        let range = self.of_kind(libc::PT_GNU_EH_FRAME).next().map(|header| self.range(header))?;
        Some((self.bytes(range.clone())?, range.start))
    }

    /// The bytes at `range`. `None` unless one loaded segment, readable and not writable, holds
    /// them all.
    pub(super) fn bytes(&self, range: Range<usize>) -> Option<&'static [u8]> {
        let holds = |header: &ProgramHeader| {
            let loaded = self.range(header);
            header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R
                && loaded.start <= range.start
                && range.end <= loaded.end
        };
        if range.is_empty() || !self.of_kind(libc::PT_LOAD).any(holds) {
            return None;
        }
        // SAFETY: by the invariant, the loader has mapped the segment that holds this range,
        // readable, for the life of the process. It is not writable, so nothing changes it while
        // the program runs (except a debugger, which stops the program).
        Some(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(range.start), range.len()) })
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = &'static ProgramHeader> {
        self.headers.iter().filter(move |header| header.p_type == kind)
    }

    /// The addresses of a segment in memory. Empty if its header is malformed.
    fn range(&self, header: &ProgramHeader) -> Range<usize> {
        let start = self.bias.wrapping_add(header.p_vaddr as usize);
        let bytes = header.p_memsz as usize;
        start..start.checked_add(bytes).unwrap_or(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_with_the_code_that_runs() {
        let segments = Segments::of_this_program().expect("the loader knows this program");
        let here = this_program_is_found_with_the_code_that_runs as fn() as usize;
        assert!(segments.executable().iter().any(|range| range.contains(&here)));
    }

    #[test]
    fn bytes_outside_one_read_only_segment_are_refused() {
        static CONSTANT: [u8; 4] = *b"ball";

        let segments = Segments::of_this_program().expect("the loader knows this program");
        let start = CONSTANT.as_ptr().addr();
        assert_eq!(segments.bytes(start..start + 4), Some(b"ball".as_slice()));

        let loaded: Vec<_> =
            segments.of_kind(libc::PT_LOAD).map(|header| (segments.range(header), header.p_flags)).collect();
        let (constants, _) =
            loaded.iter().find(|(range, _)| range.contains(&start)).expect("it is part of this program");
        assert!(segments.bytes(constants.clone()).is_some());
        assert!(segments.bytes(constants.start..constants.end + 1).is_none());
        assert!(segments.bytes(constants.start - 1..constants.end).is_none());
        let (writable, _) = loaded.iter().find(|(_, flags)| flags & libc::PF_W != 0).expect("there is data");
        assert!(segments.bytes(writable.clone()).is_none());

        let on_the_heap = Box::new(0_u8);
        let heap = std::ptr::from_ref(&*on_the_heap).addr();
        assert!(segments.bytes(heap..heap + 1).is_none());
        assert!(segments.bytes(start..start).is_none());
    }
}
