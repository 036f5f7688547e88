//! Voices by example: recordings to mel frames that stand in front of what is spoken, and files that keep them.

use crate::feed::{MelExtractor, MelStats};
use anyhow::{Context, Result, anyhow, ensure};
use host::audio::reference::{self, Reference as PreparedReference};
use host::audio::{self, Waveform};
use host::config::Config;
use host::error::hinted;
use host::onnx::{Attribute, Graph, Kind as Number, Value};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// The voice that a checkpoint speaks with where none is asked for.
pub const FILE: &str = "voice.safetensors";
const FEATURES: &str = "features";
const WEIGHTS: &str = "weights";
/// Of one recording, no more is listened to: a voice is known long before, and memory is bounded.
const MOST_HEARD_S: f64 = 180.0;
/// Seconds of a reference that stand in front of what is spoken. Three carry less likeness (docs/results.md), and each
/// costs as much of the decoder as a second of speech.
const MOST_PROMPT_S: f64 = 6.0;
/// Share of a stretch, at its end, in which the quietest frame is looked for: there it is cut.
const CUT_WITHIN: f64 = 0.15;
/// Speakers in one mix: each costs a pass of the decoder.
const MOST_REFERENCES: usize = 4;

/// Mel frames of a speaker, or of several that are mixed. They are as recorded, so that any model with such frames can
/// speak with them.
#[derive(Debug)]
pub struct VoiceFile {
    pub references: Vec<Reference>,
    pub features: Geometry,
}

/// A stretch of somebody's speech, and how much it counts.
#[derive(Debug)]
pub struct Reference {
    /// `[frames, n_mels]`, log-mel, f32 with values of half precision, on the CPU.
    pub mel: Tensor,
    /// Those of a voice add up to 1.
    pub weight: f64,
}

/// What mel frames are made with: Hz, samples, samples, bands, Hz, Hz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    pub sample_rate: f64,
    pub n_fft: f64,
    pub hop_length: f64,
    pub n_mels: f64,
    pub f_min: f64,
    pub f_max: f64,
}

impl Geometry {
    pub fn of(config: &Config) -> Self {
        let (model, rate) = (&config.model, f64::from(config.data.sample_rate));
        Geometry {
            sample_rate: rate,
            n_fft: model.n_fft as f64,
            hop_length: model.hop_length as f64,
            n_mels: model.n_mels as f64,
            f_min: model.f_min,
            f_max: model.f_max.unwrap_or(rate / 2.0),
        }
    }

    fn numbers(&self) -> [f64; 6] {
        [self.sample_rate, self.n_fft, self.hop_length, self.n_mels, self.f_min, self.f_max]
    }

    /// Frames of so many seconds.
    fn frames(&self, seconds: f64) -> usize {
        (seconds * self.sample_rate / self.hop_length) as usize
    }
}

impl std::fmt::Display for Geometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Geometry { sample_rate, hop_length, n_mels, f_min, f_max, .. } = self;
        write!(f, "{n_mels} bands of {f_min} to {f_max} Hz every {hop_length} samples at {sample_rate} Hz")
    }
}

/// Who speaks, as the decoder gets it: normalised mel frames of one speaker, or of several whose velocities are blended.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// `[frames * n_mels]` and its weight; frames are even, for the decoder pairs them.
    pub parts: Vec<(Arc<[f32]>, f64)>,
}

impl Prompt {
    /// Of normalised frames, `[frames, n_mels]`.
    pub fn of(mel: &Tensor) -> Self {
        Prompt { parts: vec![(rows(mel), 1.0)] }
    }
}

fn rows(mel: &Tensor) -> Arc<[f32]> {
    let even = mel.narrow(0, 0, mel.size()[0] / 2 * 2).to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
    Vec::<f32>::try_from(even.view(-1)).expect("floats on the CPU").into()
}

/// A voice as recordings gave it.
#[derive(Debug)]
pub struct Heard {
    pub voice: VoiceFile,
    /// What may be wrong with the recordings, and what to do.
    pub notes: Vec<String>,
}

impl VoiceFile {
    /// One speaker's, of log-mel frames `[frames, n_mels]`; the stretch of them with most speech.
    pub fn of(mel: &Tensor, config: &Config) -> Self {
        let features = Geometry::of(config);
        let mel = stretch(&mel.to_device(Device::Cpu), features.frames(MOST_PROMPT_S));
        VoiceFile { references: vec![Reference { mel: halved(&mel), weight: 1.0 }], features }
    }

    /// `of` in a graph: the frames that it keeps of log-mel frames (`[frames, n_mels]`).
    pub fn graph(mel: &Value, config: &Config, g: &mut Graph) -> Value {
        let stretch = graph_stretch(mel, Geometry::of(config).frames(MOST_PROMPT_S) as i64, g);
        let halved = g.cast(&stretch, Number::F16);
        g.cast(&halved, Number::F32)
    }

    /// Seconds of speech that it holds.
    pub fn seconds(&self) -> f64 {
        let frames: i64 = self.references.iter().map(|reference| reference.mel.size()[0]).sum();
        frames as f64 * self.features.hop_length / self.features.sample_rate
    }

    /// As the decoder gets it, for a model that was trained with these statistics.
    pub fn prompt(&self, stats: &MelStats) -> Prompt {
        let part = |reference: &Reference| (rows(&stats.apply(&reference.mel)), reference.weight);
        Prompt { parts: self.references.iter().map(part).collect() }
    }

    /// Fails where its frames are not those of a model.
    pub fn fits(&self, features: Geometry, path: &Path) -> Result<()> {
        if self.features == features {
            return Ok(());
        }
        let fact = format!("{}: a voice of {}, and this model has {features}", path.display(), self.features);
        Err(hinted(fact, "make it again from recordings with `myxtts voice make`"))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let damaged = || {
            let fact = format!("{}: not a voice file, or damaged", path.display());
            hinted(fact, "make it again from recordings")
        };
        ensure!(path.exists(), "{}: no such file", path.display());
        let mut tensors = Tensor::read_safetensors(path).map_err(|_| damaged())?;
        let mut take = |name: &str| {
            let at = tensors.iter().position(|(other, _)| other == name).ok_or_else(damaged)?;
            anyhow::Ok(tensors.swap_remove(at).1)
        };
        let numbers = |tensor: Tensor| Vec::<f64>::try_from(tensor).map_err(|_| damaged());
        let [sample_rate, n_fft, hop_length, n_mels, f_min, f_max] =
            numbers(take(FEATURES)?)?.try_into().map_err(|_| damaged())?;
        let features = Geometry { sample_rate, n_fft, hop_length, n_mels, f_min, f_max };
        let mut references = Vec::new();
        for (index, weight) in numbers(take(WEIGHTS)?)?.into_iter().enumerate() {
            let mel = take(&name(index))?.to_kind(Kind::Float);
            let sound = mel.dim() == 2 && mel.size()[0] >= 2 && mel.size()[1] as f64 == n_mels && weight.is_finite();
            if !sound || mel.isfinite().all().int64_value(&[]) != 1 {
                return Err(damaged());
            }
            references.push(Reference { mel, weight });
        }
        if references.is_empty() {
            return Err(damaged());
        }
        Ok(VoiceFile { references, features })
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let written = Tensor::write_safetensors(&self.tensors(), path);
        written.map_err(|error| anyhow!("{}: cannot be written: {error}", path.display()))
    }

    /// What its file holds.
    pub(super) fn tensors(&self) -> Vec<(String, Tensor)> {
        let features = Tensor::from_slice(&self.features.numbers());
        let weights: Vec<f64> = self.references.iter().map(|reference| reference.weight).collect();
        let mut tensors = vec![(FEATURES.to_owned(), features), (WEIGHTS.to_owned(), Tensor::from_slice(&weights))];
        let mel = |(index, reference): (usize, &Reference)| {
            (name(index), reference.mel.to_kind(Kind::Half).to_device(Device::Cpu).contiguous())
        };
        tensors.extend(self.references.iter().enumerate().map(mel));
        tensors
    }

    /// Between two voices of equal frames: 0 is this one, 1 the other.
    pub fn mixed(&self, other: &VoiceFile, weight: f64) -> Result<Self> {
        let weighted = |voice: &VoiceFile, share: f64| -> Vec<Reference> {
            let of = |one: &Reference| Reference { mel: one.mel.shallow_clone(), weight: one.weight * share };
            voice.references.iter().map(of).filter(|one| one.weight > 0.0).collect()
        };
        let mut references = weighted(self, 1.0 - weight);
        references.extend(weighted(other, weight));
        ensure!(
            references.len() <= MOST_REFERENCES,
            "{} speakers in one voice, and each costs a pass of the network; at most {MOST_REFERENCES} can be mixed",
            references.len()
        );
        Ok(VoiceFile { references, features: self.features })
    }
}

fn name(index: usize) -> String {
    format!("mel.{index}")
}

/// Rounded as files keep it, so that a voice sounds the same from its file and from its recording.
fn halved(mel: &Tensor) -> Tensor {
    mel.to_kind(Kind::Half).to_kind(Kind::Float)
}

/// Names the contents of a weights file.
pub fn fingerprint(weights: &Path) -> Result<blake3::Hash> {
    let unread = || format!("{}: cannot be read", weights.display());
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(weights).with_context(unread)?).with_context(unread)?;
    Ok(hasher.finalize())
}

/// Makes mel frames of recordings as the corpus was made: the same rate, trimming and loudness.
pub struct Listener<'a> {
    config: &'a Config,
    extractor: MelExtractor,
}

impl<'a> Listener<'a> {
    pub fn new(config: &'a Config) -> Self {
        Listener { config, extractor: MelExtractor::new(&config.model, config.data.sample_rate, Device::Cpu) }
    }

    /// One voice from all recordings, each having the same share of it.
    pub fn hear(&self, recordings: &[PathBuf]) -> Result<Heard> {
        ensure!(!recordings.is_empty(), "no recording to take the voice from");
        let features = Geometry::of(self.config);
        let share = features.frames(MOST_PROMPT_S) / recordings.len();
        let (mut each, mut seconds, mut notes) = (Vec::new(), 0.0, Vec::new());
        for path in recordings {
            let (wave, cut) = audio::decode_start(path, MOST_HEARD_S)?;
            let reference = self.prepared(wave).with_context(|| path.display().to_string())?;
            notes.extend(reference.warnings.iter().map(|warning| format!("{}: {warning}", path.display())));
            if cut {
                notes.push(format!(
                    "{}: only its first {} minutes are listened to",
                    path.display(),
                    MOST_HEARD_S / 60.0
                ));
            }
            each.push(stretch(&self.log_mel(&reference), share));
            seconds += reference.seconds();
        }
        notes.extend(reference::short(seconds));
        let references = vec![Reference { mel: halved(&Tensor::cat(&each, 0)), weight: 1.0 }];
        Ok(Heard { voice: VoiceFile { references, features }, notes })
    }

    /// One voice from a recording that is in memory.
    pub fn hear_wave(&self, wave: Waveform) -> Result<Heard> {
        let reference = self.prepared(wave)?;
        let voice = VoiceFile::of(&self.log_mel(&reference), self.config);
        let short = reference::short(reference.seconds());
        Ok(Heard { voice, notes: reference.warnings.into_iter().chain(short).collect() })
    }

    fn prepared(&self, wave: Waveform) -> Result<PreparedReference> {
        let data = &self.config.data;
        PreparedReference::of(wave, data.sample_rate, data.trim_silence, data.loudness())
    }

    fn log_mel(&self, reference: &PreparedReference) -> Tensor {
        self.extractor.log_mel(&Tensor::from_slice(&reference.wave.samples))
    }
}

/// The loudest stretch of a recording (`[frames, n_mels]`, log-mel) of at most so many frames, ending where it is quiet.
fn stretch(mel: &Tensor, most: usize) -> Tensor {
    let levels: Vec<f32> = Vec::try_from(mel.mean_dim([1i64].as_slice(), false, Kind::Float)).expect("one a frame");
    let frames = loudest(&levels, most.max(2));
    mel.narrow(0, frames.start as i64, frames.len() as i64)
}

/// An even number of frames.
fn loudest(levels: &[f32], most: usize) -> Range<usize> {
    if levels.len() <= most {
        return 0..levels.len() / 2 * 2;
    }
    let mut sum: f64 = levels[..most].iter().copied().map(f64::from).sum();
    let (mut best, mut start) = (sum, 0);
    for first in 1..=levels.len() - most {
        sum += f64::from(levels[first + most - 1]) - f64::from(levels[first - 1]);
        // By a margin, for the beginning of a recording is as good as its end.
        if sum > best + 1e-6 * best.abs() {
            (best, start) = (sum, first);
        }
    }
    let near = ((most as f64 * CUT_WITHIN) as usize).max(1);
    let tail = start + most - near..start + most;
    let quietest = tail.min_by(|a, b| levels[*a].total_cmp(&levels[*b])).expect("at least one frame");
    start..start + ((quietest + 1 - start) / 2 * 2).max(2)
}

/// `stretch` in a graph. Where two stretches are as loud but for rounding, it may take the other one.
fn graph_stretch(mel: &Value, most: i64, g: &mut Graph) -> Value {
    let along = |axis: i64| vec![("axes", Attribute::Ints(vec![axis])), ("keepdims", Attribute::Int(0))];
    let place = || vec![("axis", Attribute::Int(0)), ("keepdims", Attribute::Int(1))];
    let levels = g.op("ReduceMean", &[mel], along(1));
    let (frames, axis, zero) = (g.len(&levels, 0), g.int(0), g.ints(&[0]));
    let limit = g.ints(&[most]);
    let most = g.op("Min", &[&frames, &limit], vec![]);
    let wide = g.cast(&levels, Number::F64);
    let sums = g.op("CumSum", &[&wide, &axis], vec![]);
    let end = g.ints(&[host::onnx::END]);
    let none = g.double(0.0);
    let none = g.unsqueeze(&none, 0);
    let sums = g.concat(&[&none, &sums], 0);
    let last = g.sub(&frames, &most);
    let one = g.ints(&[1]);
    let behind_last = g.add(&last, &one);
    let (starts, ends) = (g.slice(&sums, &zero, &behind_last, 0), g.slice(&sums, &most, &end, 0));
    let loudness = g.sub(&ends, &starts);
    let start = g.op("ArgMax", &[&loudness], place());
    let stop = g.add(&start, &most);

    // Of a longer recording: up to the quietest frame near the end.
    let near = g.cast(&most, Number::F64);
    let share = g.double(CUT_WITHIN);
    let near = g.mul(&near, &share);
    let near = g.cast(&near, Number::I64);
    let near = g.op("Max", &[&near, &one], vec![]);
    let tail_start = g.sub(&stop, &near);
    let tail = g.slice(&levels, &tail_start, &stop, 0);
    let quietest = g.op("ArgMin", &[&tail], place());
    let cut = g.add(&tail_start, &quietest);
    let cut = g.add(&cut, &one);
    let cut = g.sub(&cut, &start);
    let longer = g.op("Greater", &[&frames, &most], vec![]);
    let length = g.op("Where", &[&longer, &cut, &frames], vec![]);
    let two = g.ints(&[2]);
    let pairs = g.op("Div", &[&length, &two], vec![]);
    let length = g.mul(&pairs, &two);
    let length = g.op("Max", &[&length, &two], vec![]);
    let stop = g.add(&start, &length);
    g.slice(mel, &start, &stop, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loudest_stretch_is_taken_and_ends_where_it_is_quiet() {
        assert_eq!(loudest(&[1.0; 7], 10), 0..6);
        assert_eq!(loudest(&[1.0; 30], 20), 0..18, "as good everywhere: the beginning");
        let mut levels = vec![0.0; 100];
        levels[40..60].fill(5.0);
        levels[58] = 1.0;
        assert_eq!(loudest(&levels, 20), 40..58);
        levels[57] = -1.0;
        assert_eq!(loudest(&levels, 20), 40..58);
    }

    fn file(seed: i64) -> VoiceFile {
        tch::manual_seed(seed);
        VoiceFile::of(&Tensor::randn([31, 80], (Kind::Float, Device::Cpu)), &Config::default())
    }

    #[test]
    fn a_voice_file_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mixed = file(1).mixed(&file(2), 0.25).unwrap();
        mixed.write(&path).unwrap();
        let read = VoiceFile::read(&path).unwrap();
        let weights: Vec<f64> = read.references.iter().map(|reference| reference.weight).collect();
        assert_eq!((weights, read.features), (vec![0.75, 0.25], mixed.features));
        for (read, written) in read.references.iter().zip(&mixed.references) {
            assert_eq!((&read.mel, read.mel.size()), (&written.mel, vec![30, 80]));
        }
        let other = Geometry { sample_rate: 24_000.0, ..read.features };
        let error = read.fits(other, &path).unwrap_err().to_string();
        assert!(read.fits(read.features, &path).is_ok() && error.contains("24000 Hz"), "{error}");
        std::fs::write(&path, b"noise").unwrap();
        assert!(VoiceFile::read(&path).err().unwrap().to_string().contains("not a voice file"));
    }

    #[test]
    fn a_mix_of_a_voice_alone_is_that_voice_and_too_many_are_refused() {
        assert_eq!(file(1).mixed(&file(2), 0.0).unwrap().references.len(), 1);
        let two = file(1).mixed(&file(2), 0.5).unwrap();
        let four = two.mixed(&two, 0.5).unwrap();
        let total: f64 = four.references.iter().map(|reference| reference.weight).sum();
        assert!((total - 1.0).abs() < 1e-9);
        assert!(four.mixed(&two, 0.5).unwrap_err().to_string().contains("at most 4"));
    }
}
