//! One batch in host memory.

use super::block::Block;
use super::layout::Span;
use super::position::Position;
use crate::machine::Ran;
use std::time::{Duration, Instant};

/// A filled block and what is known of it on the host. A `Batch` is the same on a device, with mel frames in any case.
pub struct HostBatch {
    /// The dataset's `BlockLayout` says what lies where.
    pub block: Box<dyn Block>,
    /// One span per planned utterance; empty where its clip turned out to be damaged.
    pub text_spans: Vec<Span>,
    pub frame_spans: Vec<Span>,
    /// Where to go on after this batch.
    pub position: Position,
    pub timing: BatchTiming,
}

/// How a batch was made in host memory, on the clock of the thread that did it.
#[derive(Clone, Copy, Debug)]
pub struct BatchTiming {
    /// Number of the loader's thread, from 0; 0 too where the reader makes its own batches.
    pub worker: usize,
    pub start: Instant,
    pub wall: Duration,
    /// Part of `wall` that was a wait for a lock that other workers held.
    pub locked: Duration,
    /// Parts of `wall` on a core and waiting for one; what is left was a wait for bytes. Absent where the system does not
    /// tell.
    pub ran: Option<Ran>,
}

impl HostBatch {
    pub fn utterances(&self) -> usize {
        self.frame_spans.iter().filter(|span| span.len > 0).count()
    }

    /// Frames that hold speech; the rest are gaps and padding.
    pub fn speech_frames(&self) -> usize {
        self.frame_spans.iter().map(|span| span.len).sum()
    }
}
