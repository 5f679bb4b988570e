//! ELF notes, in which linkers store the build id.

const HEADER_BYTES: usize = 12;
const GNU_BUILD_ID: u32 = 3;

/// Finds the GNU build id among `notes`, the bytes of a note segment whose entries are aligned to
/// `align`.
///
/// A malformed note ends the search.
pub(super) fn build_id(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    // Note segments are aligned to 4 or to 8; some linkers write 0 or 1 and mean 4.
    let align = if align == 8 { 8 } else { 4 };
    loop {
        let (header, _) = notes.split_first_chunk::<HEADER_BYTES>()?;
        let [name_len, id_len, kind] = words(header);
        let name_end = HEADER_BYTES.checked_add(name_len as usize)?;
        let id_start = name_end.checked_next_multiple_of(align)?;
        let id_end = id_start.checked_add(id_len as usize)?;
        let (name, id) = (notes.get(HEADER_BYTES..name_end)?, notes.get(id_start..id_end)?);
        if kind == GNU_BUILD_ID && name == b"GNU\0" && !id.is_empty() {
            return Some(id);
        }
        notes = notes.get(id_end.checked_next_multiple_of(align)?..)?;
    }
}

fn words(header: &[u8; HEADER_BYTES]) -> [u32; 3] {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3] = *header;
    [[a0, a1, a2, a3], [b0, b1, b2, b3], [c0, c1, c2, c3]].map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8], align: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, content.len() as u32, kind] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(align), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(align), 0);
        bytes
    }

    #[test]
    fn the_build_id_is_found_among_others() {
        for align in [4, 8] {
            let id: Vec<u8> = (0..20).collect();
            let mut notes = note(b"GNU\0", 1, &[0; 16], align);
            notes.extend(note(b"stapsdt\0", 3, &[9; 5], align));
            notes.extend(note(b"", 7, &[], align));
            notes.extend(note(b"GNU\0", 3, &id, align));
            assert_eq!(build_id(&notes, align), Some(id.as_slice()), "align {align}");
        }
    }

    #[test]
    fn an_id_of_odd_length_at_the_very_end_needs_no_padding() {
        let mut notes = note(b"GNU\0", 3, &[1, 2, 3, 4, 5], 4);
        notes.truncate(12 + 4 + 5);
        assert_eq!(build_id(&notes, 0), Some([1, 2, 3, 4, 5].as_slice()));
    }

    #[test]
    fn truncated_notes_have_no_build_id() {
        let mut notes = note(b"GNU\0", 1, &[0; 16], 4);
        notes.extend(note(b"GNU\0", 3, &[7; 8], 4));
        for len in 0..notes.len() {
            assert_eq!(build_id(&notes[..len], 4), None, "{len} of {}", notes.len());
        }
    }

    #[test]
    fn lengths_beyond_the_segment_are_refused() {
        for field in 0..2 {
            for huge in [9_u32, 1 << 20, u32::MAX - 3, u32::MAX] {
                let mut notes = note(b"GNU\0", 3, &[7; 8], 4);
                notes[field * 4..field * 4 + 4].copy_from_slice(&huge.to_ne_bytes());
                assert_eq!(build_id(&notes, 4), None, "field {field} is {huge}");
            }
        }
    }

    #[test]
    fn other_owners_and_empty_ids_are_passed_over() {
        assert_eq!(build_id(&note(b"GNU\0", 3, &[], 4), 4), None);
        assert_eq!(build_id(&note(b"NUG\0", 3, &[1; 8], 4), 4), None);
        assert_eq!(build_id(&note(b"GNU", 3, &[1; 8], 4), 4), None);
        assert_eq!(build_id(&note(b"GNU\0", 5, &[1; 8], 4), 4), None);
    }
}
