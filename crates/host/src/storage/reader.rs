//! An object read from front to back: parts that are not wanted are passed over, and of a remote one some pieces are
//! fetched ahead, several at a time.

use super::folder::Folder;
use super::{Error, Object};
use std::fs::File;
use std::io::{self, BufReader, Read};

/// Large enough that a file is read at the speed of its disk.
const BUFFER_BYTES: usize = 1 << 18;

/// Reads an object in order. Memory: a buffer, or [`AHEAD`](super::remote::AHEAD) pieces.
pub struct ObjectReader {
    input: Input,
    at: u64,
    end: u64,
}

enum Input {
    File(BufReader<File>),
    #[cfg(feature = "remote")]
    Pieces(super::remote::Pieces),
}

impl ObjectReader {
    pub(super) fn of_file(folder: &Folder, object: &Object) -> Result<Self, Error> {
        let file = BufReader::with_capacity(BUFFER_BYTES, folder.open(object)?);
        Ok(ObjectReader { input: Input::File(file), at: 0, end: object.bytes })
    }

    #[cfg(feature = "remote")]
    pub(super) fn of_remote(remote: &super::remote::Remote, object: &Object) -> Self {
        ObjectReader { input: Input::Pieces(remote.pieces(object)), at: 0, end: object.bytes }
    }

    /// Bytes that are behind.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Passes over bytes without reading them where that is cheaper; not beyond the end.
    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.min(self.end - self.at);
        self.at += bytes;
        match &mut self.input {
            Input::File(file) => file.seek_relative(bytes as i64),
            #[cfg(feature = "remote")]
            Input::Pieces(pieces) => {
                pieces.seek(self.at);
                Ok(())
            }
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.input {
            Input::File(file) => file.read(buffer)?,
            #[cfg(feature = "remote")]
            Input::Pieces(pieces) => pieces.read(self.at, buffer)?,
        };
        self.at += read as u64;
        self.end = self.end.max(self.at);
        Ok(read)
    }
}
