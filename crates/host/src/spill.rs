//! Records in any number, in bounded memory: what is complete of them lies in a file that has no name and is mapped, so the
//! system keeps in memory what is used and drops the rest. The file is one of the folder for temporary files (`TMPDIR`).

use bytes::Bytes;
use filebuffer::FileBuffer;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is gathered in memory before it goes to a file: some 50,000 rows of a corpus, so small ones write none.
const CHUNK_BYTES: usize = 8 << 20;

/// Records, each at a place that stays its own.
#[derive(Clone, Debug, Default)]
pub struct Spill {
    full: Vec<Bytes>,
    open: Vec<u8>,
}

impl Spill {
    /// Adds what `write` appends; returns its place.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        if self.open.len() >= CHUNK_BYTES {
            let chunk = std::mem::take(&mut self.open);
            // Without a file it stays where it is: it costs memory, and nothing else.
            self.full.push(mapped(&chunk).unwrap_or_else(|_| chunk.into()));
        }
        let place = (self.full.len() as u64) << 32 | self.open.len() as u64;
        write(&mut self.open);
        place
    }

    /// The record at a place, and whatever follows it.
    pub fn get(&self, place: u64) -> &[u8] {
        let chunk = self.full.get((place >> 32) as usize).map_or(&self.open[..], |chunk| chunk);
        &chunk[place as u32 as usize..]
    }
}

/// The same bytes in a file that only this map holds.
fn mapped(bytes: &[u8]) -> io::Result<Bytes> {
    let (path, mut file) = temporary()?;
    let mapped = file.write_all(bytes).and_then(|()| FileBuffer::open(&path));
    fs::remove_file(&path)?;
    Ok(Bytes::from_owner(mapped?))
}

/// A new file that no other process writes to.
fn temporary() -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!("myxtts-{}-{}.rows", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((path, opened?)),
        }
    }
}

/// Appends a number: seven bits a byte, the lowest first, all but the last byte with their highest bit set (LEB128).
pub fn put_number(record: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        record.push(number as u8 | 0x80);
        number >>= 7;
    }
    record.push(number as u8);
}

/// Appends bytes with their length in front.
pub fn put_bytes(record: &mut Vec<u8>, bytes: &[u8]) {
    put_number(record, bytes.len() as u64);
    record.extend(bytes);
}

/// Takes a number from the front.
pub fn take_number(record: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = record.split_first() {
        *record = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            break;
        }
    }
    number
}

/// Takes bytes from the front.
pub fn take_bytes<'a>(record: &mut &'a [u8]) -> &'a [u8] {
    let length = take_number(record) as usize;
    let (bytes, rest) = record.split_at(length);
    *record = rest;
    bytes
}

/// Takes a text from the front.
pub fn take_text<'a>(record: &mut &'a [u8]) -> &'a str {
    std::str::from_utf8(take_bytes(record)).expect("what was put was a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_memory_and_from_files() {
        let (mut spill, count) = (Spill::default(), 40_000u64);
        let text = |number: u64| format!("{number} ").repeat(100);
        let put = |record: &mut Vec<u8>, number: u64| {
            put_number(record, u64::MAX - number);
            put_bytes(record, text(number).as_bytes());
        };
        let places: Vec<u64> = (0..count).map(|number| spill.push(|record| put(record, number))).collect();
        assert!(spill.full.len() >= 2 && spill.open.len() <= CHUNK_BYTES + 1000, "{}", spill.full.len());
        for (number, place) in (0..count).zip(places) {
            let mut record = spill.get(place);
            assert_eq!((take_number(&mut record), take_text(&mut record)), (u64::MAX - number, &*text(number)));
        }
    }

    #[test]
    fn numbers_of_any_size() {
        let numbers = [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        let mut record = vec![];
        numbers.iter().for_each(|number| put_number(&mut record, *number));
        let mut rest = &record[..];
        assert_eq!(numbers.map(|_| take_number(&mut rest)), numbers);
        assert!(rest.is_empty());
    }
}
