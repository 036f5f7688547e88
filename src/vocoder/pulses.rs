//! Where the pulses of recorded voices lie, frame by frame: what the generator's harmonics follow while it learns. Pitch by
//! autocorrelation (Boersma 1993); pulses where the harmonics agree on a phase, smoothed along the periods that the pitch
//! counts. Tensor operations alone, so that a GPU can capture them.

use super::harmonics::Harmonics;
use super::pitch::{HIGHEST_HZ, LOWEST_HZ};
use host::config::Config;
use std::f64::consts::{PI, TAU};
use tch::{Device, Kind, Tensor};

/// Correlations of noise lie below the first, those of vowels above the second.
const VOICED: (f64, f64) = (0.5, 0.8);
/// How much less a lag counts than one of half its length, so that a period is preferred to two of them.
const OCTAVE_COST: f64 = 0.02;
/// Frames around each whose median is its pitch.
const MEDIAN: i64 = 5;
/// Harmonics that are looked at, up to this frequency: higher ones are mostly noise.
const HARMONICS: i64 = 32;
const HIGHEST_HARMONIC_HZ: f64 = 5_000.0;
/// Places in a period that are tried.
const PLACES: i64 = 128;
/// Frames over which pulses are smoothed.
const SMOOTHED: i64 = 9;
/// Phase on which harmonics agree where a microphone has not turned the sound upside down, as measured on speech.
const UPRIGHT: f64 = 1.4;

/// Pitch and pulses of `[waves, samples]`.
pub struct PulseTracker {
    harmonics: Harmonics,
    /// Hann, periodic: so long that the longest period fits twice, whatever windows the vocoder's frames have.
    window: Tensor,
    /// `[lags]`: the lags of a pitch in samples, one more on either side, and what the window leaves of a correlation there.
    lags: Tensor,
    first_lag: i64,
    windowed: Tensor,
    /// `[HARMONICS]`: 1, 2, 3 …
    numbers: Tensor,
    /// `[2 * HARMONICS, 2 * PLACES]`: turns real and imaginary parts of the harmonics back by each place, and adds them up.
    turns: Tensor,
    /// `[1, 1, SMOOTHED]`
    smoothing: Tensor,
    rate_hz: f64,
    hop_samples: i64,
}

/// What was found in waves, `[waves, frames]` each.
pub struct Pulses {
    pub hz: Tensor,
    /// 0 where there is no voice, 1 where there surely is.
    pub voiced: Tensor,
    /// Where in its period the voice is, 0 to 1.
    pub periods: Tensor,
    /// `[waves, 1]`: -1 for a sound that is upside down, which nobody hears, but a network could not foresee.
    pub polarity: Tensor,
}

impl PulseTracker {
    pub fn new(config: &Config, device: Device) -> Self {
        let rate_hz = f64::from(config.data.sample_rate);
        let float = (Kind::Float, device);
        let longest = (rate_hz / LOWEST_HZ) as i64 + 1;
        let window = Tensor::hann_window((2 * longest as u64).next_power_of_two() as i64, float);
        let first_lag = (rate_hz / HIGHEST_HZ) as i64 - 1;
        let lags = Tensor::arange_start(first_lag, longest + 1, float);
        let whole = autocorrelation(&window.fft_rfft(2 * window.size()[0], -1, "backward"));
        let windowed = (whole.narrow(0, first_lag, lags.size()[0]) / whole.get(0)).clamp_min(0.05);
        let numbers = Tensor::arange_start(1, HARMONICS + 1, float);
        let angles = numbers.unsqueeze(1) * (Tensor::arange(PLACES, float) * (TAU / PLACES as f64));
        let (cos, sin) = (angles.cos(), angles.sin());
        let turns = Tensor::cat(&[Tensor::cat(&[&cos, &-&sin], 1), Tensor::cat(&[&sin, &cos], 1)], 0);
        let smoothing = Tensor::hann_window(SMOOTHED + 1, float).narrow(0, 1, SMOOTHED).view([1, 1, -1]);
        let harmonics = Harmonics::new(config, device);
        let hop_samples = config.model.hop_length;
        PulseTracker { harmonics, window, lags, first_lag, windowed, numbers, turns, smoothing, rate_hz, hop_samples }
    }

    pub fn track(&self, waves: &Tensor) -> Pulses {
        let width = self.window.size()[0];
        let frames = waves.size()[1] / self.hop_samples;
        let padded = waves.constant_pad_nd([width / 2, width / 2]);
        let stretches = padded.unfold(-1, width, self.hop_samples).narrow(1, 0, frames);
        let stretches = (&stretches - stretches.mean_dim(-1, true, Kind::Float)) * &self.window;
        let spectrum = stretches.fft_rfft(2 * width, -1, "backward");
        let (hz, voiced) = self.pitch(&spectrum);
        let parts = self.parts(&spectrum, &hz);
        let (periods, along) = self.follow(&parts, &hz, &voiced);
        let upright = self.at(&parts, &periods, UPRIGHT);
        let sum = (upright * &along).sum_dim_intlist(1, true, Kind::Float);
        Pulses { hz, voiced, periods, polarity: sum.ge(0.0).to_kind(Kind::Float) * 2.0 - 1.0 }
    }

    /// Pitch of each frame in Hz, and how sure it is.
    fn pitch(&self, spectrum: &Tensor) -> (Tensor, Tensor) {
        let correlation = autocorrelation(spectrum);
        let count = self.lags.size()[0];
        let own = correlation.narrow(-1, 0, 1) + 1e-6;
        let there = correlation.narrow(-1, self.first_lag, count) / own / &self.windowed;
        let (inner, before, after) =
            (there.narrow(-1, 1, count - 2), there.narrow(-1, 0, count - 2), there.narrow(-1, 2, count - 2));
        let lags = self.lags.narrow(0, 1, count - 2);
        let peak = inner.ge_tensor(&before).logical_and(&inner.ge_tensor(&after));
        let cost = (&lags / &lags.get(0)).log2() * OCTAVE_COST;
        let best = (&inner - cost).where_scalarother(&peak, -1.0).argmax(-1, true);
        let [at, before, after] = [inner, before, after].map(|x| x.gather(-1, &best, false));
        // The top of the parabola through the three.
        let bend = &before - &at * 2.0 + &after;
        let off = ((&before - &after) * 0.5 / bend.clamp_max(-1e-9)).clamp(-0.5, 0.5);
        let lag = lags.expand([best.size()[0], best.size()[1], -1], false).gather(-1, &best, false) + off;
        let hz = (lag.reciprocal() * self.rate_hz).squeeze_dim(-1).clamp(LOWEST_HZ, HIGHEST_HZ);
        let voiced = ((at - VOICED.0) / (VOICED.1 - VOICED.0)).clamp(0.0, 1.0).squeeze_dim(-1);
        let around = hz.unsqueeze(1).replication_pad1d([MEDIAN / 2, MEDIAN / 2]).squeeze_dim(1).unfold(-1, MEDIAN, 1);
        (around.median_dim(-1, false).0, voiced)
    }

    /// Real and imaginary parts of the harmonics at the centres of their frames, `[waves, frames, 2 * HARMONICS]`. Loud ones count
    /// more, but not by as much as they are louder.
    fn parts(&self, spectrum: &Tensor, hz: &Tensor) -> Tensor {
        let width = self.window.size()[0] as f64;
        let of = &self.numbers * hz.unsqueeze(-1);
        let bin = (&of * (2.0 * width / self.rate_hz)).round().clamp_max(width);
        let place = bin.to_kind(Kind::Int64);
        let [real, imaginary] = [spectrum.real(), spectrum.imag()].map(|part| part.gather(-1, &place, false));
        let size = (real.square() + imaginary.square()).sqrt() + 1e-9;
        let highest = HIGHEST_HARMONIC_HZ.min(0.45 * self.rate_hz);
        let weight = size.rsqrt() * of.le(highest);
        // Transforms begin at the start of the window.
        let turn = bin * (PI / 2.0);
        let (cos, sin) = (turn.cos() * &weight, turn.sin() * weight);
        Tensor::cat(&[&real * &cos - &imaginary * &sin, &real * &sin + &imaginary * &cos], -1)
    }

    /// Periods that follow the pulses, and how much each frame said about them.
    fn follow(&self, parts: &Tensor, hz: &Tensor, voiced: &Tensor) -> (Tensor, Tensor) {
        let sums = parts.matmul(&self.turns).chunk(2, -1);
        let agreement = sums[0].square() + sums[1].square();
        let (most, place) = agreement.max_dim(-1, false);
        let weight = voiced * most.sqrt();
        let counted = self.harmonics.periods(hz, None);
        let ahead = (place.to_kind(Kind::Float) / PLACES as f64 - &counted) * TAU;
        let smooth = |x: Tensor| {
            let padding = SMOOTHED / 2;
            x.unsqueeze(1).conv1d(&self.smoothing, None::<Tensor>, 1, padding, 1, 1).squeeze_dim(1)
        };
        let (x, y) = (smooth(ahead.cos() * &weight), smooth(ahead.sin() * &weight));
        let periods = counted + y.atan2(&x) / TAU;
        (&periods - periods.floor(), weight)
    }

    /// How much of the harmonics has this phase, once they are turned back by the periods.
    fn at(&self, parts: &Tensor, periods: &Tensor, phase: f64) -> Tensor {
        let angle = periods.unsqueeze(-1) * TAU * &self.numbers + phase;
        let halves = parts.chunk(2, -1);
        (&halves[0] * angle.cos() + &halves[1] * angle.sin()).sum_dim_intlist(-1, false, Kind::Float)
    }
}

/// From the spectrum of something and as many zeros behind it.
fn autocorrelation(spectrum: &Tensor) -> Tensor {
    let bins = *spectrum.size().last().expect("a spectrum has bins");
    spectrum.abs().square().fft_irfft(2 * (bins - 1), -1, "backward")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: i64 = 60;

    /// Pulses of a gliding pitch through two formants, and the periods at the centre of each frame.
    fn voice(config: &Config, from_hz: f64, to_hz: f64) -> (Tensor, Tensor, Tensor) {
        let (rate_hz, hop) = (f64::from(config.data.sample_rate), config.model.hop_length);
        let count = FRAMES * hop;
        let at = Tensor::arange(count, (Kind::Double, Device::Cpu));
        let hz = &at * ((to_hz - from_hz) / count as f64) + from_hz;
        let turns = (hz.cumsum(0, Kind::Double) - &hz) / rate_hz;
        // Harmonics of a pulse that a resonance of 40 Hz width makes ring.
        let wave: Tensor = (1..=24)
            .map(|number| {
                let harmonic = &hz * f64::from(number);
                let resonance = |centre: f64| ((&harmonic - centre) / 150.0).square().neg().exp() + 0.05;
                let below = harmonic.lt(0.4 * rate_hz);
                (&turns * (TAU * f64::from(number)) + UPRIGHT).cos() * (resonance(600.0) + resonance(1500.0)) * below
            })
            .sum();
        let centres = Tensor::arange(FRAMES, (Kind::Int64, Device::Cpu)) * hop;
        let pick = |x: &Tensor| x.index_select(0, &centres).to_kind(Kind::Float);
        ((wave * 0.1).to_kind(Kind::Float).unsqueeze(0), pick(&hz), pick(&turns.frac()))
    }

    fn tracker() -> (Config, PulseTracker) {
        let config = Config::default();
        let tracker = PulseTracker::new(&config, Device::Cpu);
        (config, tracker)
    }

    #[test]
    fn finds_pitch_and_pulses_of_low_and_high_voices() {
        let (config, tracker) = tracker();
        for (from_hz, to_hz) in [(75.0, 95.0), (120.0, 100.0), (180.0, 230.0), (380.0, 330.0)] {
            let (wave, hz, periods) = voice(&config, from_hz, to_hz);
            let found = tracker.track(&wave);
            let inner = |x: &Tensor| x.view(-1).narrow(0, 4, FRAMES - 8);
            let cents = (inner(&found.hz) / inner(&hz)).log2().abs() * 1200.0;
            assert!(cents.max().double_value(&[]) < 25.0, "{from_hz} Hz: {cents}");
            assert!(inner(&found.voiced).min().double_value(&[]) > 0.9, "{from_hz} Hz");
            let off = inner(&found.periods) - inner(&periods);
            let off = (&off - off.round()).abs();
            assert!(off.max().double_value(&[]) < 0.05, "{from_hz} Hz: {off}");
            assert_eq!(found.polarity.double_value(&[0, 0]), 1.0);
            // Upside down, its pulses are where they were.
            let other = tracker.track(&-&wave);
            assert_eq!(other.polarity.double_value(&[0, 0]), -1.0);
            let off = other.periods - &found.periods;
            assert!((&off - off.round()).abs().max().double_value(&[]) < 1e-3);
        }
    }

    /// A period is longer than these frames' windows.
    #[test]
    fn short_windows_and_high_rates_are_tracked_too() {
        let mut config = Config::default();
        (config.data.sample_rate, config.model.n_fft, config.model.hop_length) = (48_000, 128, 32);
        let (wave, hz, _) = voice(&config, 100.0, 100.0);
        let wave = Tensor::cat(&[&wave; 20], 1);
        let found = PulseTracker::new(&config, Device::Cpu).track(&wave).hz;
        let middle = found.double_value(&[0, found.size()[1] / 2]);
        assert!((middle / hz.double_value(&[0]) - 1.0).abs() < 0.02, "{middle} Hz");
    }

    #[test]
    fn noise_and_silence_have_no_voice() {
        let (config, tracker) = tracker();
        let noise = Tensor::randn([1, FRAMES * config.model.hop_length], (Kind::Float, Device::Cpu)) * 0.1;
        let voiced = tracker.track(&noise).voiced.mean(Kind::Float).double_value(&[]);
        assert!(voiced < 0.05, "{voiced}");
        let silence = tracker.track(&noise.zeros_like());
        assert_eq!(silence.voiced.max().double_value(&[]), 0.0);
        for x in [silence.hz, silence.periods, silence.polarity] {
            assert!(x.isfinite().all().int64_value(&[]) == 1);
        }
    }
}
