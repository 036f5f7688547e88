//! One batch on a device.

use super::packed::Packed;
use host::loader::{BlockLayout, GAP};
#[cfg(test)]
use host::loader::{Budget, SoundKind, Span};
use std::sync::Arc;
use tch::{Device, Tensor};

/// A packed batch as the model reads it.
pub struct Batch {
    /// Every whole-number table of the batch, one after the other: what is copied when the batch moves.
    tables: Tensor,
    layout: Arc<BlockLayout>,
    /// `[text]`, i32.
    pub tokens: Tensor,
    /// `[capacity]`, i32: index into the tokenizer's languages.
    pub languages: Tensor,
    /// `[capacity]`, i32: frames of each utterance as it was recorded.
    pub(super) source_lens: Tensor,
    /// `[frames, n_mels]`, normalised log-mel, zero in gaps; f32.
    pub mel: Tensor,
    /// `[frames, n_mels]`: the same as the decoder hears it where it is context, as a worse recording would have it; absent
    /// where it hears `mel`.
    pub context_mel: Option<Tensor>,
    /// `[frames * hop]`, f32 in -1..1, for a vocoder; a voice's batches have none.
    pub samples: Option<Tensor>,
    /// `[frames]`, i32: packed token index of every frame, where durations are known; otherwise the model searches.
    pub token_of_frame: Option<Tensor>,
    pub text: Packed,
    pub frames: Packed,
}

/// Features of a block's sound.
pub struct Sound {
    pub mel: Tensor,
    pub context_mel: Option<Tensor>,
    pub samples: Option<Tensor>,
}

impl Batch {
    /// `tables`: i32, as `layout` says.
    pub fn new(tables: Tensor, sound: Sound, layout: &Arc<BlockLayout>) -> Batch {
        let part = |range: &std::ops::Range<usize>| tables.narrow(0, range.start as i64, range.len() as i64);
        Batch {
            tokens: part(&layout.tokens),
            languages: part(&layout.languages),
            source_lens: part(&layout.source_lens),
            text: Packed::of_tables(&tables, &layout.text, layout.budget.longest_tokens + GAP),
            frames: Packed::of_tables(&tables, &layout.frames, layout.budget.longest_frames + GAP),
            mel: sound.mel,
            context_mel: sound.context_mel,
            samples: sound.samples,
            token_of_frame: (!layout.token_of_frame.is_empty()).then(|| part(&layout.token_of_frame)),
            tables,
            layout: layout.clone(),
        }
    }

    /// A copy in memory of its own on `device`.
    pub fn copy_to(&self, device: Device) -> Batch {
        let copy = |tensor: &Tensor| tensor.to_device_(device, tensor.kind(), false, true);
        let some = |tensor: &Option<Tensor>| tensor.as_ref().map(copy);
        let sound = Sound { mel: copy(&self.mel), context_mel: some(&self.context_mel), samples: some(&self.samples) };
        Batch::new(copy(&self.tables), sound, &self.layout)
    }

    /// Overwrites this batch's memory. Addresses stay, which is what a captured graph needs; the copies are ordered on
    /// the current streams and the host does not wait for them.
    pub fn fill_from(&self, other: &Batch) -> Result<(), torchx::Error> {
        let copies: Vec<_> = self.tensors().into_iter().zip(other.tensors()).collect();
        torchx::stream::copy_together(&copies)
    }

    /// The tensors that hold the batch's memory; all others are views of these.
    pub fn tensors(&self) -> Vec<&Tensor> {
        let own = [&self.tables, &self.mel, &self.text.mask, &self.frames.mask];
        own.into_iter().chain(&self.context_mel).chain(&self.samples).collect()
    }

    /// Where utterances of these lengths lie, one after the other.
    #[cfg(test)]
    pub fn end_to_end(lens: &[usize]) -> Vec<Span> {
        let mut at = 0;
        let place = |&len: &usize| {
            let span = Span { start: at, len };
            at = (at + len + GAP).next_multiple_of(2);
            span
        };
        lens.iter().map(place).collect()
    }

    /// A batch from spans and values.
    #[cfg(test)]
    pub fn by_hand(text: &[Span], frames: &[Span], tokens: &[i32], languages: &[i32], mel: Tensor) -> Batch {
        let longest = |spans: &[Span]| spans.iter().map(|span| span.len).max().unwrap_or(0);
        let budget = Budget {
            frames: mel.size()[0] as usize,
            tokens: tokens.len(),
            utterances: text.len(),
            longest_frames: longest(frames),
            longest_tokens: longest(text),
            padded: false,
        };
        let layout = BlockLayout::new(&budget, SoundKind::Pcm, 1, false);
        let mut tables = vec![0; layout.source_lens.end];
        layout.text.fill(&mut tables, text);
        layout.frames.fill(&mut tables, frames);
        tables[layout.tokens.clone()].copy_from_slice(tokens);
        tables[layout.languages.clone()].copy_from_slice(languages);
        let sound = Sound { mel, context_mel: None, samples: None };
        Batch::new(Tensor::from_slice(&tables), sound, &Arc::new(layout))
    }

    /// Values that no batch has, so that reading a slot at the wrong time shows.
    #[cfg(test)]
    pub fn poison(&self) {
        for tensor in self.tensors() {
            let wrong = if tensor.kind() == tch::Kind::Float { f64::NAN } else { -7.0 };
            let _ = tensor.shallow_clone().fill_(wrong);
        }
    }
}
