//! The bytes of a shard, plain or unpacked on the way, with an end to how far they may be blown up.

use crate::storage::ObjectReader;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufReader, Read};

/// Sound and text shrink to a half or a tenth; a bomb grows a thousandfold. Held against the whole from the first
/// megabytes on: a silent clip alone may shrink that much.
const MAX_GROWTH: u64 = 100;
const GROWTH_FROM_BYTES: u64 = 64 << 20;
const BUFFER_BYTES: usize = 1 << 16;
const SKIP_BYTES: usize = 1 << 16;

pub(super) struct Unpacked {
    input: Input,
    /// Bytes that are behind, unpacked.
    at: u64,
}

enum Input {
    Plain(ObjectReader),
    Gzip(Box<MultiGzDecoder<BufReader<ObjectReader>>>),
}

impl Unpacked {
    pub fn plain(reader: ObjectReader) -> Self {
        Unpacked { input: Input::Plain(reader), at: 0 }
    }

    pub fn gzip(reader: ObjectReader) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        Unpacked { input: Input::Gzip(Box::new(MultiGzDecoder::new(reader))), at: 0 }
    }

    pub fn position(&self) -> u64 {
        self.at
    }

    /// Passes over bytes; where the shard ends before, the next read says so.
    pub fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        if let Input::Plain(reader) = &mut self.input {
            reader.skip(bytes)?;
            self.at = reader.position();
            return Ok(());
        }
        let mut waste = [0; SKIP_BYTES];
        while bytes > 0 {
            let part = (waste.len() as u64).min(bytes) as usize;
            match self.read(&mut waste[..part])? {
                0 => return Ok(()),
                read => bytes -= read as u64,
            }
        }
        Ok(())
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.input {
            Input::Plain(reader) => reader.read(buffer)?,
            Input::Gzip(reader) => {
                let read = reader.read(buffer)?;
                let packed = reader.get_ref().get_ref().position();
                if self.at > GROWTH_FROM_BYTES && self.at / MAX_GROWTH > packed {
                    return Err(io::Error::other(format!("it unpacks to more than {MAX_GROWTH} times its size")));
                }
                read
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}
