//! Augmentation: changes to what is trained on, drawn anew for every utterance of every batch, on the data device. One
//! more is a key `augment_…` of the config, a function here, and a call from the hook where it belongs: [`Augment::waveform`],
//! [`Augment::spectrum`], [`Augment::mel`] or [`Augment::context`]. Held-out speech is never changed: `Config::without_augmentation`.
//!
//! Draws come from the seed and the batch's place in the run, never from the device's generator: that one belongs to
//! the step, and a resumed run must draw the same.

use super::batch::Batch;
use super::channel::Channels;
use super::mel::MelStats;
use host::config::Config;
use host::loader::Position;
use host::rng::Rng;
use tch::{Device, Kind, Tensor};

/// White noise to cut from: long enough that no model learns it.
const NOISE_SAMPLES: usize = 1 << 20;
/// Decibels by which the noise of an utterance is weaker than the chosen ratio at most.
const NOISE_SPREAD_DB: f64 = 10.0;

/// The augmentations of a run.
pub struct Augment {
    noise_snr_db: Option<f64>,
    pitch_semitones: f64,
    speed: bool,
    channels: Option<Channels>,
    seed: u64,
    /// `[NOISE_SAMPLES]`, uniform with power 1; empty when no noise is asked for.
    noise: Tensor,
}

impl Augment {
    pub fn new(config: &Config, stats: &MelStats, device: Device) -> Self {
        let (data, seed) = (&config.data, config.training.seed);
        let channels = Channels::new(config, stats, device);
        let wanted = if data.augment_noise_snr_db.is_some() || channels.is_some() { NOISE_SAMPLES } else { 0 };
        let mut rng = Rng::new(&[seed]);
        let width = 12f64.sqrt(); // a uniform draw from an interval this wide has variance 1
        let noise: Vec<f32> = (0..wanted).map(|_| ((rng.unit() - 0.5) * width) as f32).collect();
        Augment {
            noise_snr_db: data.augment_noise_snr_db,
            pitch_semitones: data.augment_pitch_semitones,
            speed: data.augment_speed > 0.0,
            channels,
            seed,
            noise: Tensor::from_slice(&noise).to_device(device),
        }
    }

    /// Whether the frames that are trained on are changed before they are normalised.
    pub fn is_on(&self) -> bool {
        self.noise_snr_db.is_some() || self.pitch_semitones != 0.0 || self.speed
    }

    /// Changes samples, `[frames * hop]`.
    pub fn waveform(&self, samples: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        self.noise(samples, batch, at)
    }

    /// Changes magnitudes before they are summed into bands, `[frames, bins]`.
    pub fn spectrum(&self, magnitude: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        self.pitch(&self.speed(magnitude, batch), batch, at)
    }

    /// Changes cached mel frames, `[frames, n_mels]`, which have neither samples nor bins.
    pub fn mel(&self, frames: &Tensor, batch: &Batch) -> Tensor {
        self.speed(frames, batch)
    }

    /// Normalised frames (`[frames, n_mels]`) as the decoder hears them where they are context; absent where it hears them as
    /// they are.
    pub fn context(&self, mel: &Tensor, batch: &Batch, at: &Position) -> Option<Tensor> {
        let channels = self.channels.as_ref()?;
        let mut rng = Rng::new(&[self.seed, at.epoch, at.number(), 3]);
        let noise = self.noise_of(mel.numel(), &mut rng);
        Some(channels.apply(mel, batch, &noise, &mut rng))
    }

    /// So many samples of the noise, from any place on.
    fn noise_of(&self, count: usize, rng: &mut Rng) -> Tensor {
        let from = rng.below(NOISE_SAMPLES) as i64;
        let times = (count / NOISE_SAMPLES + 1) as i64;
        self.noise.roll([from], [0]).repeat([times]).narrow(0, 0, count as i64)
    }

    /// Adds white noise at the chosen ratio to each utterance's mean power, or up to 10 dB weaker. `samples`:
    /// `[frames * hop]`.
    fn noise(&self, samples: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        let Some(snr_db) = self.noise_snr_db else { return samples.shallow_clone() };
        let frames = &batch.frames;
        let hops = samples.view([frames.len(), -1]);
        let power = hops.square().mean_dim([1i64].as_slice(), true, Kind::Float);
        let sums = Tensor::zeros([frames.capacity() + 1, 1], (Kind::Float, samples.device()));
        let mean = sums.index_add(0, &frames.owner, &power).narrow(0, 0, frames.capacity())
            / frames.lens.clamp_min(1).unsqueeze(1);
        let mut rng = Rng::new(&[self.seed, at.epoch, at.number(), 1]);
        let share = |rng: &mut Rng| 10f64.powf(-(snr_db + rng.unit() * NOISE_SPREAD_DB) / 10.0);
        let level = (mean * draws(frames.capacity(), &mut rng, share, samples.device())).sqrt();
        let noise = self.noise_of(samples.numel(), &mut rng);
        // Up to the next utterance: sound may reach further than the frames it is spoken in, and gaps are masked later.
        let level = level.index_select(0, &latest(batch));
        (hops + noise.view([frames.len(), -1]) * level).view(-1)
    }

    /// Speaks every utterance in the frames that the batch has for it, which are more or fewer than were recorded: each
    /// frame lies between two recorded ones. `spectrum`: `[frames, bins or bands]`, as recorded.
    pub(super) fn speed(&self, spectrum: &Tensor, batch: &Batch) -> Tensor {
        if !self.speed {
            return spectrum.shallow_clone();
        }
        let (first, share) = places(batch);
        let next = (&first + 1).clamp_max(spectrum.size()[0] - 1);
        spectrum.index_select(0, &first) * (-&share + 1.0) + spectrum.index_select(0, &next) * share
    }

    /// Factors by which the utterances move up or down, within the chosen interval: `[utterances, 1]`. Absent where nothing
    /// moves.
    fn pitch_factors(&self, batch: &Batch, at: &Position) -> Option<Tensor> {
        let mut rng = Rng::new(&[self.seed, at.epoch, at.number(), 2]);
        let factor = |rng: &mut Rng| 2f64.powf((rng.unit() * 2.0 - 1.0) * self.pitch_semitones / 12.0);
        let device = batch.frames.lens.device();
        (self.pitch_semitones != 0.0).then(|| draws(batch.frames.capacity(), &mut rng, factor, device))
    }

    /// Moves every utterance's spectrum by its factor: bin `b` then shows what was at `b / factor`. Pitch and formants
    /// move together, as between a smaller and a larger speaker. `magnitude`: `[frames, bins]`.
    pub(super) fn pitch(&self, magnitude: &Tensor, batch: &Batch, at: &Position) -> Tensor {
        match self.pitch_factors(batch, at) {
            Some(factors) => stretch(magnitude, &per_frame(&factors, batch).clamp_min(1e-3)),
            None => magnitude.shallow_clone(),
        }
    }
}

/// The utterance that began last, for every frame: `[frames]`.
fn latest(batch: &Batch) -> Tensor {
    let frames = &batch.frames;
    let begins = Tensor::zeros([frames.len()], (Kind::Float, frames.lens.device()));
    let begins = begins.index_add(0, &frames.starts, &frames.lens.gt(0).to_kind(Kind::Float));
    (begins.cumsum(0, Kind::Float) - 1.0).clamp_min(0.0).to_kind(Kind::Int64)
}

/// Where every frame of a batch lies in its recording: a place between two frames, as (frame, share of the next one).
fn places(batch: &Batch) -> (Tensor, Tensor) {
    let frames = &batch.frames;
    let float = |list: &Tensor| list.to_kind(Kind::Float).unsqueeze(1);
    let pace = float(&batch.source_lens) / float(&frames.lens).clamp_min(1.0);
    let [pace, start, len] =
        [&pace, &float(&frames.starts), &float(&batch.source_lens)].map(|rows| per_frame(rows, batch));
    // Behind the last recorded frame there is nothing to come near to.
    let place = (float(&frames.position) * pace).minimum(&(len - 1.0).clamp_min(0.0));
    let below = place.floor();
    let share = &place - &below;
    ((start + below).squeeze_dim(1).to_kind(Kind::Int64), share)
}

/// `magnitude` `[frames, bins]` with bin `b` of a frame taken from `b / factor`, between its two neighbours.
fn stretch(magnitude: &Tensor, factor: &Tensor) -> Tensor {
    let top = magnitude.size()[1] - 1;
    let from = Tensor::arange(top + 1, (Kind::Float, magnitude.device())) / factor;
    let below = from.floor().clamp(0.0, top as f64);
    let share = &from - &below;
    let index = below.to_kind(Kind::Int64);
    let next = (&index + 1).clamp_max(top);
    let moved = magnitude.gather(1, &index, false) * (-&share + 1.0) + magnitude.gather(1, &next, false) * &share;
    moved * from.le(top as f64).to_kind(Kind::Float) // above the top there was nothing
}

/// `[capacity, 1]`
fn draws(capacity: i64, rng: &mut Rng, mut draw: impl FnMut(&mut Rng) -> f64, device: Device) -> Tensor {
    let values: Vec<f32> = (0..capacity).map(|_| draw(rng) as f32).collect();
    Tensor::from_slice(&values).unsqueeze(1).to_device(device)
}

/// Gives every frame the row of its utterance, and gaps a row of zeros. `rows`: `[capacity, channels]`.
pub(super) fn per_frame(rows: &Tensor, batch: &Batch) -> Tensor {
    rows.constant_pad_nd([0, 0, 0, 1]).index_select(0, &batch.frames.owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_moves_by_the_factor() {
        let mut row = vec![0f32; 101];
        row[40] = 1.0;
        let moved = |factor: f32| {
            let stretched =
                stretch(&Tensor::from_slice(&row).unsqueeze(0), &Tensor::from_slice(&[factor]).unsqueeze(1));
            stretched.argmax(1, false).int64_value(&[0])
        };
        assert_eq!((moved(1.0), moved(1.25), moved(0.5)), (40, 50, 20));
    }

    #[test]
    fn what_lies_above_the_top_is_silence() {
        let row = Tensor::ones([1, 11], (Kind::Float, Device::Cpu));
        let lowered = stretch(&row, &Tensor::from_slice(&[0.5f32]).unsqueeze(1));
        assert_eq!(lowered.sum(Kind::Float).double_value(&[]), 6.0); // bins 0 to 5
    }
}
