//! A block of bytes on the data device to a batch: mel frames, reference slices, normalisation, augmentation.

use super::augment::Augment;
use super::batch::{Batch, Sound};
use super::mel::{MelExtractor, MelStats};
use crate::config::Config;
use crate::loader::{BlockLayout, GAP, Position, Section, SoundKind};
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// What batches are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Voice,
    /// Samples beside the mel frames, and frames of silence between utterances as well.
    Vocoder,
    /// A vocoder that learns from a voice's frames: samples beside what the voice trains on.
    Imitation,
}

pub struct Features {
    extractor: MelExtractor,
    stats: MelStats,
    layout: Arc<BlockLayout>,
    purpose: Purpose,
    augment: Augment,
}

impl Features {
    pub fn new(config: &Config, layout: Arc<BlockLayout>, stats: MelStats, purpose: Purpose, device: Device) -> Self {
        let extractor = MelExtractor::new(&config.model, config.data.sample_rate, device);
        let augment = Augment::new(&config.data, config.training.seed, device);
        Features { extractor, stats, layout, purpose, augment }
    }

    pub fn device(&self) -> Device {
        self.extractor.device()
    }

    pub fn layout(&self) -> &BlockLayout {
        &self.layout
    }

    /// Log-mel frames of a waveform, not normalised.
    pub fn log_mel_of(&self, samples: &[f32]) -> Tensor {
        self.extractor.log_mel(&Tensor::from_slice(samples).to_device(self.device()))
    }

    /// `block`: u8, on the extractor's device. Tables stay views of it; the rest has memory of its own. `at`: the
    /// batch's place in the run, which decides what is random in it.
    pub fn batch(&self, block: &Tensor, at: &Position) -> Batch {
        let tables = part(block, &self.layout.tables, Kind::Int);
        let mut batch = Batch::new(tables, self.silent(), &self.layout);
        let (mel, samples) = self.log_mel(block, &self.layout.sound, Some((&batch, at)));
        batch.mel = self.stats.apply(&mel);
        if self.purpose != Purpose::Vocoder {
            batch.mel = &batch.mel * &batch.frames.mask;
        }
        batch.reference = self.reference(block, &batch);
        batch.samples = samples.filter(|_| self.purpose != Purpose::Voice);
        batch
    }

    fn silent(&self) -> Sound {
        let none = || Tensor::zeros([0], (Kind::Float, self.extractor.device()));
        Sound { mel: none(), reference: none(), samples: None }
    }

    /// Log-mel frames of what the cache holds, `[frames, n_mels]`, and the samples where it holds those. Only speech
    /// that is trained on is augmented (`speech`), and never what a voice is cloned from.
    fn log_mel(
        &self,
        block: &Tensor,
        section: &Section,
        speech: Option<(&Batch, &Position)>,
    ) -> (Tensor, Option<Tensor>) {
        match self.layout.kind {
            SoundKind::Mel { n_mels } => {
                let frames = part(block, section, Kind::Half).to_kind(Kind::Float);
                (frames.view([-1, n_mels as i64]), None)
            }
            SoundKind::Pcm => {
                let samples = part(block, section, Kind::Int16).to_kind(Kind::Float) / 32768.0;
                let magnitude = match speech {
                    Some((batch, at)) => {
                        let magnitude = self.extractor.magnitude(&self.augment.noise(&samples, batch, at));
                        self.augment.pitch(&magnitude, batch, at)
                    }
                    None => self.extractor.magnitude(&samples),
                };
                (self.extractor.bands(&magnitude), Some(samples))
            }
        }
    }

    fn reference(&self, block: &Tensor, batch: &Batch) -> Tensor {
        let (capacity, n_mels) = (batch.frames.capacity(), self.extractor.n_mels());
        if self.layout.reference.bytes == 0 {
            return Tensor::zeros([capacity, 0, n_mels], (Kind::Float, self.extractor.device()));
        }
        let (mel, _) = self.log_mel(block, &self.layout.reference, None);
        let slices = self.stats.apply(&mel).view([capacity, -1, n_mels]);
        let frames = slices.size()[1] - GAP as i64;
        let used = batch.frames.lens.gt(0).to_kind(Kind::Float).view([-1, 1, 1]);
        slices.narrow(1, 0, frames) * used
    }
}

/// A stretch of a block as numbers.
fn part(block: &Tensor, section: &Section, kind: Kind) -> Tensor {
    block.narrow(0, section.start_bytes as i64, section.bytes as i64).view_dtype(kind)
}
