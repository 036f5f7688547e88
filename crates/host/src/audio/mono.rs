//! Decoded packets gathered into one channel, and refused when no voice could learn from them.

use super::codec::SampleLayout;
use super::{Error, RATES_HZ, Waveform};

/// Samples of the longest recording, 256 MiB of them: 50 minutes at 22.05 kHz. A few bytes of FLAC can unfold to more
/// than any machine holds.
pub(super) const MAX_SAMPLES: usize = 1 << 26;

/// The loudest sample. Float files may overshoot ±1 a little and are clipped; beyond this they hold integers and would
/// become noise.
const MAX_PEAK: f32 = 8.0;

/// Packets mixed down to one channel so far.
#[derive(Default)]
pub struct Mono {
    samples: Vec<f32>,
    rate_hz: u32,
}

impl Mono {
    /// Adds a packet as the mean of its channels.
    pub fn append(
        &mut self,
        interleaved: &[f32],
        SampleLayout { rate_hz, channels }: SampleLayout,
    ) -> Result<(), Error> {
        if channels == 0 || interleaved.is_empty() {
            return Ok(());
        }
        if !RATES_HZ.contains(&rate_hz) {
            return Err(Error::Damaged(format!("its header says {rate_hz} Hz")));
        }
        if self.samples.len() + interleaved.len() / channels > MAX_SAMPLES {
            return Err(Error::Unusable(format!("longer than {} minutes", MAX_SAMPLES as u32 / rate_hz / 60)));
        }
        if ![0, rate_hz].contains(&self.rate_hz) {
            return Err(Error::Damaged(format!("changes from {} Hz to {rate_hz} Hz midway", self.rate_hz)));
        }
        self.rate_hz = rate_hz;
        match channels {
            1 => self.samples.extend_from_slice(interleaved),
            2 => self.samples.extend(interleaved.as_chunks().0.iter().map(|[left, right]| (left + right) * 0.5)),
            _ => {
                let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
                self.samples.extend(interleaved.chunks_exact(channels).map(mean));
            }
        }
        Ok(())
    }

    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate_hz.max(1))
    }

    /// The recording, where it is one; `promised` is how many samples its header says it has.
    pub fn finish(mut self, promised: Option<u64>) -> Result<Waveform, Error> {
        let there = self.samples.len() as u64;
        if let Some(promised) = promised.filter(|&promised| promised > there) {
            return Err(Error::Damaged(format!("truncated: its header promises {promised} samples, it has {there}")));
        }
        if self.samples.is_empty() {
            return Err(Error::Unusable("no samples in it".into()));
        }
        if let Some(at) = self.samples.iter().position(|sample| !sample.is_finite()) {
            return Err(Error::Unusable(format!("sample {at} is not a number")));
        }
        let peak = super::peak(&self.samples);
        if peak > MAX_PEAK {
            return Err(Error::Unusable(format!("samples reach {peak}, float samples belong within ±1")));
        }
        if peak > 1.0 {
            self.samples.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        }
        Ok(Waveform { samples: self.samples, rate_hz: self.rate_hz })
    }
}
