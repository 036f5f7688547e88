//! A block of bytes on the data device to a batch: mel frames, normalisation, augmentation.

use super::augment::Augment;
use super::batch::{Batch, Sound};
use super::mel::{MelExtractor, MelStats};
use super::mel_kernel::{LiveFrames, MelKernel};
use host::config::Config;
use host::loader::{BlockLayout, Position, Section, SoundKind};
use std::sync::Arc;
use tch::{Device, Kind, Tensor};
use torchx::Stream;
use torchx::stream::{record_stream, settled};

/// What streams are asked for here is there.
const STREAMS: &str = "streams of this device";

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
        let augment = Augment::new(config, &stats, device);
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
        batch.mel = match &self.kernel {
            Some(kernel) => self.in_one(kernel, block, &batch).expect("shapes are fixed by construction"),
            None => self.mel(block, &batch, at),
        };
        if self.purpose == Purpose::Voice {
            batch.context_mel = self.augment.context(&batch.mel, &batch, at);
        }
        batch
    }

    fn silent(&self) -> Sound {
        Sound { mel: Tensor::zeros([0], (Kind::Float, self.extractor.device())), context_mel: None, samples: None }
    }

    /// All frames in one launch.
    fn in_one(&self, kernel: &MelKernel, block: &Tensor, batch: &Batch) -> Result<Tensor, torchx::Error> {
        let frames = &batch.frames;
        let sounds = if self.purpose == Purpose::Vocoder { i32::MIN..i32::MAX } else { 0..frames.capacity() as i32 };
        let speech = LiveFrames { table: &frames.owner, live: sounds };
        kernel.log_mel(&part(block, &self.layout.sound, Kind::Int16), &speech, &self.stats)
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
        let waveform = augment.waveform(&samples(block, section), batch, at);
        let magnitude = || self.extractor.magnitude(&waveform);
        let magnitude = settled(self.extractor.device(), "spectra of a batch", &waveform.size(), magnitude);
        let magnitude = magnitude.expect(STREAMS);
        if magnitude.device().is_cuda() {
            // Made on the default stream the first time: its memory is not given away there before this stream has read it.
            let here = Stream::current(magnitude.device()).expect(STREAMS);
            record_stream(&magnitude, &here).expect(STREAMS);
        }
        self.extractor.bands(&augment.spectrum(&magnitude, batch, at))
    }

    /// Where the cache holds mel frames instead of samples.
    fn cached_frames(&self, block: &Tensor, section: &Section) -> Option<Tensor> {
        let SoundKind::Mel { n_mels } = self.layout.kind else { return None };
        Some(part(block, section, Kind::Half).to_kind(Kind::Float).view([-1, n_mels as i64]))
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
