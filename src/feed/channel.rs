//! What a worse recording would have kept of an utterance: another microphone, a room, a telephone, noise. The context that
//! the decoder gets is changed, the frames that it is to generate are not, so a voice learns to speak clearly after somebody
//! whom it heard badly. On mel frames, where filters are sums and noise adds its power; nothing of the sound itself is needed.

use super::augment::per_frame;
use super::batch::Batch;
use super::mel::{FLOOR, MelStats, mel_filters};
use host::config::Config;
use host::rng::Rng;
use tch::{Device, Kind, Tensor};

/// Nepers in a decibel of amplitude.
const DB: f64 = std::f64::consts::LN_10 / 20.0;
/// Cosines that a microphone's response is drawn from, and the deviation of each.
const RIPPLES: usize = 4;
const RIPPLE_DB: f64 = 3.0;
/// Of the utterances that are changed: shares with a telephone's band, in a room, with noise.
const TELEPHONES: f64 = 0.3;
const ROOMS: f64 = 0.4;
const NOISY: f64 = 0.6;
/// What a filter takes away at most: as much as silence is below speech.
const DEEPEST_DB: f64 = 80.0;
/// Level of white noise as loud as speech, above the mean of log-mel values of speech.
const NOISE_ABOVE_MEAN: f64 = 3.0;
/// Deviation of a band's noise from frame to frame, in nepers, where one bin of the spectrum makes the band.
const JITTER: f64 = 0.72;
/// Frames of an echo, doubled from one: 32 are 0.37 s at 22,050 Hz.
const ECHO_SHIFTS: [i64; 5] = [1, 2, 4, 8, 16];

/// How one utterance is heard.
struct Channel {
    changed: bool,
    /// Share of a frame's power that the next one still has, and how loud the echo is.
    decay: f64,
    echo: f64,
    /// Nepers by band: the microphone, and noise before it.
    response: Vec<f32>,
    noise: Vec<f32>,
}

impl Channel {
    fn row(self) -> impl Iterator<Item = f32> {
        let numbers = [f32::from(u8::from(self.changed)), self.decay as f32, self.echo as f32];
        numbers.into_iter().chain(self.response).chain(self.noise)
    }
}

pub struct Channels {
    /// Share of utterances that are changed.
    share: f64,
    /// Of each band, Hz.
    centres: Vec<f64>,
    /// `[n_mels]`: deviation of noise from frame to frame, nepers.
    jitter: Tensor,
    frames_per_s: f64,
    stats: MelStats,
}

impl Channels {
    /// None where no context is to be changed.
    pub fn new(config: &Config, stats: &MelStats, device: Device) -> Option<Self> {
        let share = config.data.augment_context;
        if share == 0.0 || !config.model.clones() {
            return None;
        }
        let rate_hz = config.data.sample_rate;
        let filters = mel_filters(&config.model, rate_hz);
        let hz = Tensor::arange(filters.size()[1], (Kind::Float, Device::Cpu)) * f64::from(rate_hz)
            / config.model.n_fft as f64;
        let along_bins = |values: &Tensor| values.sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
        let sums = along_bins(&filters);
        let bins = sums.square() / along_bins(&filters.square());
        Some(Channels {
            share,
            centres: Vec::try_from((along_bins(&(&filters * hz)) / &sums).to_kind(Kind::Double)).expect("a list"),
            jitter: (bins.rsqrt() * JITTER).to_device(device),
            frames_per_s: f64::from(rate_hz) / config.model.hop_length as f64,
            stats: *stats,
        })
    }

    /// The batch's frames (`[frames, n_mels]`, normalised) as they are heard. `noise`: as many numbers, of variance 1.
    pub fn apply(&self, mel: &Tensor, batch: &Batch, noise: &Tensor, rng: &mut Rng) -> Tensor {
        let bands = self.centres.len() as i64;
        let rows: Vec<f32> = (0..batch.frames.capacity()).flat_map(|_| self.draw(rng).row()).collect();
        let rows = Tensor::from_slice(&rows).view([-1, 3 + 2 * bands]).to_device(mel.device());
        let [changed, decay, echo, response, hiss] =
            per_frame(&rows, batch).split_with_sizes([1, 1, 1, bands, bands], 1).try_into().expect("five widths");
        let power = (self.stats.restore(mel) * 2.0).exp();
        let echoed = echoes(&power, &decay, &batch.frames.position);
        let hiss = ((hiss + noise.view_as(mel) * &self.jitter) * 2.0).exp();
        let sum = &power + (echoed - &power) * echo + hiss;
        let heard = (sum.log() * 0.5 + response).clamp_min(FLOOR.ln());
        (self.stats.apply(&heard) * &changed + mel * (1.0 - &changed)) * &batch.frames.mask
    }

    fn draw(&self, rng: &mut Rng) -> Channel {
        let changed = rng.unit() < self.share;
        let within = |rng: &mut Rng, low: f64, high: f64| low + rng.unit() * (high - low);
        let telephone = rng.unit() < TELEPHONES;
        // Hz, Hz, decibels an octave. Half of the microphones hear all that there is above.
        let (low, high, slope) = match telephone {
            true => (within(rng, 200.0, 400.0), within(rng, 3_000.0, 3_800.0), 80.0),
            false => (within(rng, 20.0, 200.0), 4_000.0 * 4f64.powf(rng.unit() * 2.0), 24.0),
        };
        let ripples: [f64; RIPPLES] = std::array::from_fn(|_| within(rng, -1.0, 1.0) * 3f64.sqrt() * RIPPLE_DB);
        let response = self.centres.iter().enumerate().map(|(band, hz)| {
            let place = (band as f64 + 0.5) / self.centres.len() as f64 * std::f64::consts::PI;
            let ripple: f64 = ripples.iter().zip(1..).map(|(level, k)| level * (place * f64::from(k)).cos()).sum();
            let beyond = (low / hz).log2().max(0.0) + (hz / high).log2().max(0.0);
            ((ripple - (slope * beyond).min(DEEPEST_DB)) * DB) as f32
        });
        let response = response.collect();
        let (noisy, snr_db, tilt_db) = (rng.unit() < NOISY, within(rng, 5.0, 35.0), within(rng, -6.0, 0.0));
        let level = self.stats.mean + NOISE_ABOVE_MEAN - snr_db * DB - if noisy { 0.0 } else { 100.0 };
        let noise = self.centres.iter().map(|hz| (level + tilt_db * DB * (hz.max(60.0) / 1_000.0).log2()) as f32);
        let noise = noise.collect();
        let (room, t60_s, direct_db) = (rng.unit() < ROOMS, within(rng, 0.2, 0.8), within(rng, 0.0, 12.0));
        let decay = 10f64.powf(-6.0 / (t60_s * self.frames_per_s));
        let echo = if room { 10f64.powf(-direct_db / 10.0) * (1.0 - decay) } else { 0.0 };
        Channel { changed, decay, echo, response, noise }
    }
}

/// What is left of all frames before, each weaker by `decay` (`[frames, 1]`) a frame: Σ decayᵏ · power of the frame k before,
/// within an utterance.
fn echoes(power: &Tensor, decay: &Tensor, position: &Tensor) -> Tensor {
    let (mut sum, mut decay) = (power.shallow_clone(), decay.shallow_clone());
    for shift in ECHO_SHIFTS {
        let before = sum.constant_pad_nd([0, 0, shift, 0]).narrow(0, 0, sum.size()[0]);
        let own = position.ge(shift).unsqueeze(1).to_kind(Kind::Float);
        sum += before * own * &decay;
        decay = decay.square();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::loader::Span;

    fn batch(lens: &[usize], mel: Tensor) -> Batch {
        let spans = Batch::end_to_end(lens);
        let text: Vec<Span> = (0..lens.len()).map(|index| Span { start: index * 6, len: 1 }).collect();
        Batch::by_hand(&text, &spans, &vec![1; lens.len() * 6], &vec![0; lens.len()], mel)
    }

    /// By the sum itself.
    #[test]
    fn an_echo_fades_and_ends_with_its_utterance() {
        let power = Tensor::from_slice(&[1f32, 0., 0., 0., 5., 2., 0.]).unsqueeze(1);
        let position = Tensor::from_slice(&[0i32, 1, 2, 3, 0, 1, 2]);
        let echoed = echoes(&power, &Tensor::full([7, 1], 0.5, (Kind::Float, Device::Cpu)), &position);
        let echoed: Vec<f32> = Vec::try_from(echoed.view(-1)).unwrap();
        assert_eq!(echoed, [1.0, 0.5, 0.25, 0.125, 5.0, 4.5, 2.25]);
    }

    fn channels(text: &str, stats: &MelStats) -> Option<Channels> {
        let config = Config::parse(text, std::path::Path::new("a.yaml")).unwrap();
        Channels::new(&config, stats, Device::Cpu)
    }

    /// White noise as loud as speech (an RMS of 0.1) has this mel level, whatever its place: measured with librosa's filters.
    #[test]
    fn shares_and_levels_are_as_drawn() {
        let stats = MelStats { mean: -5.58, std: 2.4 };
        assert!(channels("", &stats).is_none() && channels("data: {augment_context: 0.0}", &stats).is_none());
        assert!(channels("data: {augment_context: 0.5}\nmodel: {context_share: 0.0}", &stats).is_none());
        let half = channels("data: {augment_context: 0.5}", &stats).unwrap();
        let mut rng = Rng::new(&[7]);
        let drawn: Vec<Channel> = (0..4000).map(|_| half.draw(&mut rng)).collect();
        let share = |is: &dyn Fn(&Channel) -> bool| drawn.iter().filter(|one| is(one)).count() as f64 / 4000.0;
        let near = |is: &dyn Fn(&Channel) -> bool, wanted: f64| (share(is) - wanted).abs() < 0.03;
        assert!(near(&|one| one.changed, 0.5) && near(&|one| one.echo > 0.0, ROOMS));
        assert!(near(&|one| one.noise[40] > -20.0, NOISY));
        // Of 5 to 35 dB at 1 kHz; librosa has white noise 15 dB below speech at -4.3 nepers.
        let band = half.centres.iter().position(|hz| *hz > 1_000.0).unwrap();
        let loudest = drawn.iter().map(|one| one.noise[band]).fold(f32::MIN, f32::max);
        assert!((loudest - (-4.3 + 10.0 * DB as f32)).abs() < 0.15, "{loudest}");
        let top = half.centres.len() - 1;
        assert!(near(&|one| f64::from(one.response[top]) < -70.0 * DB, TELEPHONES), "nothing above a telephone's band");
    }

    #[test]
    fn gaps_stay_empty_and_what_is_not_chosen_stays_as_it_was() {
        let stats = MelStats { mean: -5.58, std: 2.4 };
        let half = channels("data: {augment_context: 0.5}", &stats).unwrap();
        tch::manual_seed(3);
        let lens = [9; 40];
        let rows = 40 * 14;
        let mel = Tensor::randn([rows, 80], (Kind::Float, Device::Cpu));
        let batch = batch(&lens, &mel * 1.0);
        let mel = mel.narrow(0, 0, batch.frames.len()) * &batch.frames.mask;
        let noise = mel.randn_like();
        let heard = half.apply(&mel, &batch, &noise, &mut Rng::new(&[1]));
        assert_eq!(heard.isfinite().all().int64_value(&[]), 1);
        let same = |tensor: &Tensor| tensor.abs().max().double_value(&[]) == 0.0;
        assert!(same(&(&heard * (1.0 - &batch.frames.mask))));
        let changed = (0..40).filter(|&index| {
            let start = batch.frames.starts.int64_value(&[index]);
            !same(&(heard.narrow(0, start, 9) - mel.narrow(0, start, 9)))
        });
        let changed = changed.count();
        assert!((10..=30).contains(&changed), "{changed} of 40");
        let again = half.apply(&mel, &batch, &noise, &mut Rng::new(&[1]));
        assert!(same(&(&heard - again)), "by the seed alone");
    }
}
