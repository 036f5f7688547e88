//! Members of a tar, one after the other: ustar, GNU and PAX names. Headers are decoded by the `tar` crate; the loop is
//! ours, because every length in a header may be a lie, and what it reads into memory has to end somewhere.

use super::gzip::Unpacked;
use std::io::{self, Read};
use tar::{EntryType, Header, PaxExtensions};

const BLOCK: u64 = 512;
/// Longest name, and most extensions, that a member may have.
const MAX_EXTENSION_BYTES: u64 = 1 << 16;

/// A file in a tar.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::corpus) struct TarMember {
    /// With `/` between its parts; not yet known to stay inside.
    pub name: String,
    /// First byte of it in the unpacked tar.
    pub at: u64,
    pub bytes: u64,
}

pub(in crate::corpus) struct Tar {
    input: Unpacked,
    /// Where the next header is.
    next: u64,
}

impl Tar {
    pub(super) fn new(input: Unpacked) -> Self {
        Tar { input, next: 0 }
    }

    /// The next plain file; folders, links and devices are passed over. None at the end; an error where the bytes are
    /// none of a tar, or stop.
    pub fn next(&mut self) -> io::Result<Option<TarMember>> {
        let (mut long_name, mut pax_name, mut pax_size) = (None, None, None);
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let claimed = header.entry_size().map_err(|_| self.damaged("a size that is no number"))?;
            let bytes =
                pax_size.filter(|_| !kind.is_pax_local_extensions() && !kind.is_gnu_longname()).unwrap_or(claimed);
            let at = self.next;
            self.next = bytes
                .checked_next_multiple_of(BLOCK)
                .and_then(|bytes| bytes.checked_add(at))
                .filter(|end| *end < i64::MAX as u64)
                .ok_or_else(|| self.damaged("a size beyond any file"))?;
            match kind {
                EntryType::GNULongName => long_name = Some(self.extension(bytes)?),
                EntryType::XHeader => {
                    let text = self.extension(bytes)?;
                    for pair in PaxExtensions::new(&text).flatten() {
                        match pair.key() {
                            Ok("path") => pax_name = Some(pair.value_bytes().to_vec()),
                            Ok("size") => pax_size = pair.value().ok().and_then(|size| size.parse().ok()),
                            _ => {}
                        }
                    }
                }
                kind if kind.is_file() => {
                    let name = pax_name.or(long_name).unwrap_or_else(|| header.path_bytes().to_vec());
                    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    let name = String::from_utf8_lossy(&name[..end]).into_owned();
                    return Ok(Some(TarMember { name, at, bytes }));
                }
                _ => (long_name, pax_name, pax_size) = (None, None, None),
            }
        }
    }

    /// The bytes of the member that was just named, which its caller knows to fit in memory.
    pub fn read(&mut self, member: &TarMember) -> io::Result<Vec<u8>> {
        self.go_to(member.at)?;
        let mut bytes = Vec::with_capacity(member.bytes.min(1 << 20) as usize);
        let read = (&mut self.input).take(member.bytes).read_to_end(&mut bytes)? as u64;
        if read < member.bytes { Err(self.damaged("it stops inside a member: truncated")) } else { Ok(bytes) }
    }

    /// None at the end: a block of zeros, or no block at all.
    fn header(&mut self) -> io::Result<Option<Header>> {
        self.go_to(self.next)?;
        if self.input.position() < self.next {
            return Err(self.damaged("it stops inside a member: truncated"));
        }
        let mut header = Header::new_old();
        let mut read = 0;
        while read < BLOCK as usize {
            match self.input.read(&mut header.as_mut_bytes()[read..])? {
                0 if read == 0 => return Ok(None),
                0 => return Err(self.damaged("it stops inside a header: truncated")),
                count => read += count,
            }
        }
        self.next += BLOCK;
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum: u32 = bytes
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(self.damaged("what should be a header is none"));
        }
        Ok(Some(header))
    }

    fn extension(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        if bytes > MAX_EXTENSION_BYTES {
            return Err(self.damaged("a name longer than any name"));
        }
        let at = self.next - bytes.next_multiple_of(BLOCK);
        self.read(&TarMember { name: String::new(), at, bytes })
    }

    fn go_to(&mut self, place: u64) -> io::Result<()> {
        self.input.skip(place.saturating_sub(self.input.position()))
    }

    fn damaged(&self, what: &str) -> io::Error {
        io::Error::other(format!("damaged at byte {}: {what}", self.next.saturating_sub(BLOCK)))
    }
}
