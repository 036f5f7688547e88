//! Files as memory. Not LibTorch's business; it stands here because a map has no safe form, and unsafe code stays in
//! this crate.

use std::fs::File;
use std::io;

/// The bytes of a file through the page cache, for as long as the value lives, whatever becomes of the file's name.
///
/// Meant for files that are complete once they have their name: whoever writes to one, or cuts it, while it is mapped
/// changes these bytes or ends the program.
pub fn map(file: &File) -> io::Result<impl AsRef<[u8]> + Send + 'static> {
    // SAFETY: the bytes must not change under the map. Callers map only files that were written under another name and
    // renamed, to which nothing writes afterwards; the documentation above demands it.
    unsafe { memmap2::Mmap::map(file) }
}
