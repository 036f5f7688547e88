//! Memory of one batch. Where it comes from is the feed's business: pinned beside a GPU, plain anywhere else.

use std::any::Any;
use std::sync::Arc;

/// One block holds one batch and is used again and again. Its first byte is aligned for every table in it.
pub trait Block: Send {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Lets the feed find its own kind of memory again.
    fn as_any(&self) -> &dyn Any;
}

/// Memory of so many bytes, or why there is none.
pub type Allocate = Arc<dyn Fn(usize) -> Result<Box<dyn Block>, String> + Send + Sync>;

/// Ordinary memory, aligned to 8 bytes.
pub struct PlainBlock {
    words: Vec<u64>,
    bytes: usize,
}

impl PlainBlock {
    pub fn new(bytes: usize) -> Self {
        PlainBlock { words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes }
    }

    pub fn allocate() -> Allocate {
        Arc::new(|bytes| Ok(Box::new(PlainBlock::new(bytes))))
    }
}

impl Block for PlainBlock {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
