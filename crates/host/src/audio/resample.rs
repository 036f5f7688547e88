//! From the recording's rate to the voice's, with a linear-phase FFT filter. The length keeps the clip's duration.

use super::{Error, RATES_HZ, Waveform};
use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler as _, ResamplerConstructionError, WindowFunction};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Samples of an FFT block, about: the longer it is, the sharper the filter at the upper end. With this one and
/// the window below, tones up to 95 % of the new band pass unchanged and those above it come out 140 dB down.
const BLOCK_SAMPLES: usize = 1024;

/// Filters that are kept: more than a corpus has rates.
const MAX_FILTERS: usize = 8;

/// Brings one clip to a rate; whoever has many keeps a [`Resampler`].
pub fn resample(wave: Waveform, rate_hz: u32) -> Result<Waveform, Error> {
    Resampler::default().resample(wave, rate_hz)
}

/// Resamples clips and keeps its filters for the next one of the same rate: to make one takes a seventh of the time of
/// a clip.
#[derive(Default)]
pub struct Resampler {
    filters: HashMap<(u32, u32), Fft<f32>>,
}

impl Resampler {
    pub fn resample(&mut self, wave: Waveform, rate_hz: u32) -> Result<Waveform, Error> {
        if self.filters.len() > MAX_FILTERS {
            self.filters.clear();
        }
        resample_with(&mut self.filters, wave, rate_hz)
    }
}

fn resample_with(filters: &mut HashMap<(u32, u32), Fft<f32>>, wave: Waveform, rate_hz: u32) -> Result<Waveform, Error> {
    if wave.rate_hz == rate_hz || wave.samples.is_empty() {
        return Ok(Waveform { samples: wave.samples, rate_hz });
    }
    let fail = |what: String| Error::Resample { from_hz: wave.rate_hz, to_hz: rate_hz, what };
    if ![wave.rate_hz, rate_hz].iter().all(|rate| RATES_HZ.contains(rate)) {
        return Err(fail(format!("both must be {} to {} Hz", RATES_HZ.start(), RATES_HZ.end())));
    }
    let (from, to) = (wave.rate_hz as usize, rate_hz as usize);
    let filter = match filters.entry((wave.rate_hz, rate_hz)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(filter(from, to).map_err(|error| fail(error.to_string()))?),
    };
    let length = wave.samples.len();
    let input = SequentialSlice::new(&wave.samples, 1, length).map_err(|error| fail(error.to_string()))?;
    let output = filter.process_all(&input, length, None).map_err(|error| fail(error.to_string()))?;
    let mut samples = output.take_data();
    // The filter works its length out in floats and may give one sample too many.
    samples.truncate((length * to).div_ceil(from));
    Ok(Waveform { samples, rate_hz })
}

fn filter(from: usize, to: usize) -> Result<Fft<f32>, ResamplerConstructionError> {
    Fft::new_custom(from, to, block_samples(from, to), 1, 1, WindowFunction::BlackmanHarris2, FixedSync::Both)
}

/// Resamples sound that comes in pieces: all that comes out is what the whole would have given.
pub struct StreamResampler {
    /// The filter; none where both rates are the same.
    filter: Option<Fft<f32>>,
    /// Samples that do not fill a block yet.
    waiting: Vec<f32>,
    /// Samples that the filter still gives before the first one that counts.
    delay: usize,
    rates_hz: (u32, u32),
    taken: usize,
    given: usize,
}

impl StreamResampler {
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, Error> {
        let fail = |what: String| Error::Resample { from_hz, to_hz, what };
        let made = || filter(from_hz as usize, to_hz as usize).map_err(|error| fail(error.to_string()));
        let filter = (from_hz != to_hz).then(made).transpose()?;
        let delay = filter.as_ref().map_or(0, rubato::Resampler::output_delay);
        Ok(StreamResampler { filter, waiting: Vec::new(), delay, rates_hz: (from_hz, to_hz), taken: 0, given: 0 })
    }

    /// What is final once these samples are there.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        let Some(filter) = &mut self.filter else { return samples.to_vec() };
        self.taken += samples.len();
        self.waiting.extend_from_slice(samples);
        let (block, mut out) = (filter.input_frames_next(), Vec::new());
        let whole = self.waiting.len() / block * block;
        for input in self.waiting[..whole].chunks_exact(block) {
            let input = SequentialSlice::new(input, 1, block).expect("one channel of a block");
            out.extend(filter.process(&input, None).expect("blocks of the size that it asks for").take_data());
        }
        self.waiting.drain(..whole);
        let early = self.delay.min(out.len());
        self.delay -= early;
        out.drain(..early);
        self.given += out.len();
        out
    }

    /// The rest of the sound, which silence pushes out of the filter.
    pub fn finish(&mut self) -> Vec<f32> {
        let Some(block) = self.filter.as_ref().map(|filter| filter.input_frames_next()) else { return Vec::new() };
        let (from, to) = (self.rates_hz.0 as usize, self.rates_hz.1 as usize);
        let (given, due) = (self.given, (self.taken * to).div_ceil(from));
        let mut out = Vec::new();
        while given + out.len() < due {
            out.extend(self.push(&vec![0.0; block]));
        }
        out.truncate(due - given);
        out
    }
}

/// Samples of a block: an even number of the smallest blocks that both rates share: an odd one would delay the clip by
/// half a sample.
fn block_samples(from: usize, to: usize) -> usize {
    let step = 2 * from / greatest_common_divisor(from, to);
    step * BLOCK_SAMPLES.div_ceil(step)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    fn tone(hz: f64, rate_hz: u32, seconds: f64) -> Waveform {
        let rate = f64::from(rate_hz);
        let sample = |n| (0.5 * (TAU * hz * f64::from(n) / rate).sin()) as f32;
        Waveform { samples: (0..(seconds * rate) as u32).map(sample).collect(), rate_hz }
    }

    /// Truth: the same sine sampled at the new rate. The edges ring, so they are left out.
    #[test]
    fn a_tone_stays_the_same_tone() {
        for (from, to) in [(44_100, 22_050), (16_000, 22_050), (48_000, 22_050), (22_050, 24_000)] {
            let made = resample(tone(1_000.0, from, 1.0), to).unwrap();
            let truth = tone(1_000.0, to, 1.0);
            assert_eq!(made.samples.len(), truth.samples.len());
            let inner = to as usize / 10..to as usize * 9 / 10;
            let error = made.samples[inner.clone()].iter().zip(&truth.samples[inner]).map(|(a, b)| (a - b).abs());
            assert!(error.fold(0.0, f32::max) < 1e-4, "{from} to {to}");
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        for (to_hz, seconds) in [(24_000, 1.37), (16_000, 0.01), (22_050, 0.2)] {
            let wave = tone(700.0, 22_050, seconds);
            let mut resampler = StreamResampler::new(22_050, to_hz).unwrap();
            let mut made: Vec<f32> = wave.samples.chunks(997).flat_map(|piece| resampler.push(piece)).collect();
            made.extend(resampler.finish());
            let whole = resample(wave, to_hz).unwrap().samples;
            assert_eq!(made.len(), whole.len());
            assert!(made.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-6), "{to_hz}");
        }
    }

    #[test]
    fn a_filter_that_was_used_starts_afresh() {
        let mut resampler = Resampler::default();
        for (hz, rate_hz) in [(1_000.0, 24_000), (300.0, 24_000), (300.0, 44_100), (1_000.0, 24_000)] {
            let wave = tone(hz, rate_hz, 0.3);
            assert_eq!(resampler.resample(wave.clone(), 22_050).unwrap(), resample(wave, 22_050).unwrap());
        }
    }

    #[test]
    fn what_the_new_rate_cannot_hold_is_filtered_out() {
        let made = resample(tone(15_000.0, 44_100, 1.0), 22_050).unwrap();
        let loudest = made.samples[2_000..20_000].iter().fold(0.0, |peak: f32, sample| peak.max(sample.abs()));
        assert!(loudest < 0.5e-5, "less than 100 dB down: {loudest}");
    }

    #[test]
    fn short_clips_and_odd_rates() {
        assert_eq!(resample(tone(100.0, 22_050, 0.001), 22_050).unwrap(), tone(100.0, 22_050, 0.001));
        assert_eq!(resample(Waveform { samples: vec![0.5], rate_hz: 44_101 }, 22_050).unwrap().samples.len(), 1);
        assert_eq!(resample(Waveform { samples: vec![], rate_hz: 8_000 }, 22_050).unwrap().samples.len(), 0);
        assert!(resample(tone(100.0, 22_050, 0.1), 0).unwrap_err().to_string().contains("22050 Hz to 0 Hz"));
    }
}
