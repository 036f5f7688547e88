//! A block of bytes on the data device to a batch: mel frames, reference slices, normalisation, augmentation.

use super::augment::Augment;
use super::batch::{Batch, Sound};
use super::mel::{MelExtractor, MelStats};
use super::mel_kernel::{MelKernel, Rows};
use host::config::Config;
use host::loader::{BlockLayout, GAP, Position, Section, SoundKind};
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// What a run's batches are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Voice,
    /// Samples beside the mel frames, and frames of silence between utterances as well.
    Vocoder,
    /// A vocoder that learns from the frames that a voice predicts: samples beside what the voice trains on.
    PredictedMel,
}

pub struct Features {
    extractor: MelExtractor,
    stats: MelStats,
    layout: Arc<BlockLayout>,
    purpose: Purpose,
    augment: Augment,
    /// Where there is one, it makes all frames.
    kernel: Option<MelKernel>,
}

impl Features {
    pub fn new(
        config: &Config,
        layout: Arc<BlockLayout>,
        stats: MelStats,
        purpose: Purpose,
        device: Device,
    ) -> Result<Self, torchx::Error> {
        let rate_hz = config.data.sample_rate;
        let extractor = MelExtractor::new(&config.model, rate_hz, device);
        let augment = Augment::new(&config.data, config.training.seed, device);
        // Augmentation changes samples before the window and spectra before the bands.
        let plain = layout.kind == SoundKind::Pcm && !augment.is_on();
        let kernel = if plain { MelKernel::new(&config.model, rate_hz, device)? } else { None };
        Ok(Features { extractor, stats, layout, purpose, augment, kernel })
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
        let heard = self.purpose != Purpose::Voice && self.layout.kind == SoundKind::Pcm;
        batch.samples = heard.then(|| samples(block, &self.layout.sound));
        (batch.mel, batch.reference) = match &self.kernel {
            Some(kernel) => self.in_one(kernel, block, &batch).expect("shapes are fixed by construction"),
            None => (self.mel(block, &batch, at), self.reference(block, &batch, at)),
        };
        batch
    }

    fn silent(&self) -> Sound {
        let none = || Tensor::zeros([0], (Kind::Float, self.extractor.device()));
        Sound { mel: none(), reference: none(), samples: None }
    }

    /// Speech and references, one launch each.
    fn in_one(&self, kernel: &MelKernel, block: &Tensor, batch: &Batch) -> Result<(Tensor, Tensor), torchx::Error> {
        let frames = &batch.frames;
        let sounds = if self.purpose == Purpose::Vocoder { i32::MIN..i32::MAX } else { 0..frames.capacity() as i32 };
        let speech = Rows { slice: 1, kept: 1, table: &frames.owner, live: sounds };
        let mel = kernel.log_mel(&part(block, &self.layout.sound, Kind::Int16), &speech, &self.stats)?;
        if self.layout.reference.bytes == 0 {
            return Ok((mel, self.no_reference(batch)));
        }
        let kept = self.layout.reference_frames as i64;
        let slices = Rows { slice: kept + GAP as i64, kept, table: &frames.lens, live: 1..i32::MAX };
        let reference = kernel.log_mel(&part(block, &self.layout.reference, Kind::Int16), &slices, &self.stats)?;
        Ok((mel, reference.view([frames.capacity(), kept, -1])))
    }

    fn mel(&self, block: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        let mel = self.stats.apply(&self.speech(block, batch, at));
        if self.purpose == Purpose::Vocoder { mel } else { mel * &batch.frames.mask }
    }

    /// Log-mel frames of what is trained on, `[frames, n_mels]`, with every change that is asked for.
    fn speech(&self, block: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        let (section, augment) = (&self.layout.sound, &self.augment);
        if let Some(frames) = self.cached_frames(block, section) {
            return augment.mel(&frames, batch);
        }
        let magnitude = self.extractor.magnitude(&augment.waveform(&samples(block, section), batch, at));
        self.extractor.bands(&augment.spectrum(&magnitude, batch, at))
    }

    /// `[utterances, reference_frames, n_mels]`. Of all changes, only the pitch's reaches what a voice is cloned from.
    fn reference(&self, block: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        let section = &self.layout.reference;
        if section.bytes == 0 {
            return self.no_reference(batch);
        }
        let mel = self.cached_frames(block, section).unwrap_or_else(|| {
            let magnitude = self.extractor.magnitude(&samples(block, section));
            self.extractor.bands(&self.augment.reference_pitch(&magnitude, batch, at))
        });
        let slices = self.stats.apply(&mel).view([batch.frames.capacity(), -1, self.extractor.n_mels()]);
        let used = batch.frames.lens.gt(0).to_kind(Kind::Float).view([-1, 1, 1]);
        slices.narrow(1, 0, self.layout.reference_frames as i64) * used
    }

    /// Where the cache holds mel frames instead of samples.
    fn cached_frames(&self, block: &Tensor, section: &Section) -> Option<Tensor> {
        let SoundKind::Mel { n_mels } = self.layout.kind else { return None };
        Some(part(block, section, Kind::Half).to_kind(Kind::Float).view([-1, n_mels as i64]))
    }

    fn no_reference(&self, batch: &Batch) -> Tensor {
        Tensor::zeros([batch.frames.capacity(), 0, self.extractor.n_mels()], (Kind::Float, self.extractor.device()))
    }
}

/// A stretch of 16-bit sound, in -1..1.
fn samples(block: &Tensor, section: &Section) -> Tensor {
    part(block, section, Kind::Int16).to_kind(Kind::Float) / 32768.0
}

/// A stretch of a block as numbers.
fn part(block: &Tensor, section: &Section, kind: Kind) -> Tensor {
    block.narrow(0, section.start_bytes as i64, section.bytes as i64).view_dtype(kind)
}
