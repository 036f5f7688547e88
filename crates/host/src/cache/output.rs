//! Files of the cache while they are written: in large blocks, past the page cache where the file system allows it, and
//! with the digest of what was written.
//!
//! Past the page cache, because a corpus is written once and is larger than what will be read of it soon: memory stays
//! with the recordings, and no copy is made. In a virtual machine, whose host has yet to find the memory behind each new
//! page, that copy takes longer than all the rest of a clip.

use super::digest::{Digest, Hasher};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Large enough for any disk to be at its best.
const BLOCK_BYTES: usize = 1 << 20;
/// Addresses, lengths and places in the file are multiples of this, as writing past the page cache demands.
const ALIGNED_BYTES: usize = 4096;

pub(super) struct Output {
    path: PathBuf,
    file: File,
    direct: bool,
    hasher: Hasher,
    /// Of what was written since the last piece.
    piece: Hasher,
    /// A block, with room to start it at an aligned address.
    memory: Vec<u8>,
    start: usize,
    /// Bytes in the block.
    filled: usize,
    /// Bytes in the file.
    written: u64,
}

impl Output {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let (file, direct) = match create_direct(path) {
            Some(file) => (file, true),
            None => (File::create(path)?, false),
        };
        let memory = vec![0; BLOCK_BYTES + ALIGNED_BYTES];
        let start = memory.as_ptr().align_offset(ALIGNED_BYTES).min(ALIGNED_BYTES);
        let (path, hasher, piece) = (path.to_owned(), Hasher::new(), Hasher::new());
        Ok(Output { path, file, direct, hasher, piece, memory, start, filled: 0, written: 0 })
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// The digest of what was written since this was last asked.
    pub(super) fn end_piece(&mut self) -> Digest {
        std::mem::replace(&mut self.piece, Hasher::new()).finish()
    }

    /// Writes the rest and gives the digest of all.
    pub(super) fn finish(mut self) -> io::Result<Digest> {
        let bytes = self.bytes();
        if self.direct {
            self.filled = self.filled.next_multiple_of(ALIGNED_BYTES);
        }
        self.write_block()?;
        self.file.set_len(bytes)?;
        Ok(self.hasher.finish())
    }

    fn write_block(&mut self) -> io::Result<()> {
        let block = &self.memory[self.start..self.start + self.filled];
        match self.file.write_all(block) {
            // Some file systems open such a file and refuse to write to it.
            Err(error) if self.direct && self.written == 0 && error.kind() == io::ErrorKind::InvalidInput => {
                (self.file, self.direct) = (File::create(&self.path)?, false);
                self.file.write_all(block)?;
            }
            other => other?,
        }
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn create_direct(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn create_direct(_: &Path) -> Option<File> {
    None
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(BLOCK_BYTES - self.filled);
        let at = self.start + self.filled;
        self.memory[at..at + count].copy_from_slice(&bytes[..count]);
        self.hasher.update(&bytes[..count]);
        self.piece.update(&bytes[..count]);
        self.filled += count;
        if self.filled == BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(count)
    }

    /// Blocks are written when they are full, and the last one at the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_there_whatever_its_length() {
        let dir = tempfile::tempdir().unwrap();
        // Beside this program there is a disk, where the folder for temporary files may be memory.
        let program = std::env::current_exe().unwrap();
        for folder in [dir.path(), program.parent().unwrap()] {
            for length in [0, 1, ALIGNED_BYTES, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 77] {
                let bytes: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
                let path = folder.join(format!("output-test-{}", std::process::id()));
                let mut output = Output::create(&path).unwrap();
                bytes.chunks(70_001).for_each(|piece| output.write_all(piece).unwrap());
                assert_eq!(output.finish().unwrap(), Digest::of(&bytes));
                assert!(std::fs::read(&path).unwrap() == bytes, "{length} bytes");
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
}
