//! Archives that the kernel unpacks into its first file system: cpio in the "newc" format.

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder. Its parent must already exist.
    pub(crate) fn folder(&mut self, path: &str) {
        self.entry(path, 0o040_755, &[]);
    }

    /// Adds an executable file.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, 0o100_755, content);
    }

    /// Returns the whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// Adds a header of thirteen hexadecimal numbers, the name and the content. The name and the
    /// content are each padded to four bytes.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (links, none) = (1, 0);
        let (file_bytes, name_bytes) = (content.len() as u32, path.len() as u32 + 1);
        self.bytes.extend_from_slice(b"070701");
        let owner_and_time = [none, none, links, none];
        let devices = [none; 4];
        let numbers = [self.entries, mode].into_iter().chain(owner_and_time).chain([file_bytes]).chain(devices);
        for number in numbers.chain([name_bytes, none]) {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn the_archive_has_the_format() {
        let mut archive = Archive::default();
        archive.folder("d");
        archive.file("d/file", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // Header 110 bytes, "d\0" to 112; header to 222, "d/file\0" to 229, padded to 232.
        assert_eq!(&bytes[112..118], b"070701");
        assert_eq!(&bytes[112 + 54..112 + 62], b"00000005");
        assert_eq!(&bytes[112 + 94..112 + 102], b"00000007");
        assert_eq!(&bytes[232..237], b"12345");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
