//! Validation: the loss on held-out clips by the same code as training, and some of them spoken, as sound and pictures.

use super::HeldOutLoss;
use super::metrics::MetricsWriter;
use crate::checkpoint::RunState;
use crate::checkpoint::voice::Prompt;
use crate::feed::{Batch, Features, MelStats, Purpose};
use crate::model::{Losses, Voice};
use crate::picture::Picture;
use crate::ranks::Ranks;
use crate::run::{RunContext, batch_on, means_over};
use crate::synth::{self, VocoderBackend};
use anyhow::{Context, Result};
use host::config::{CacheContent, Config};
use host::dataset::{self, TrainingData};
use host::loader::Dataset;
use host::run_log::{Alignment, SampleClip, SampleFolder};
use host::telemetry::console;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tch::{Device, Kind, Tensor};

/// Held-out clips of at most so many seconds are spoken, as long as there are any: what is heard again and again is short.
const LONGEST_S: usize = 6;
/// The beginning of "The North Wind and the Sun", which phoneticians have spoken in every language.
const SENTENCES: &[(&str, &str)] = &[
    ("en", "The north wind and the sun were disputing which was the stronger."),
    ("de", "Einst stritten sich Nordwind und Sonne, wer von ihnen beiden wohl der Stärkere wäre."),
    ("es", "El viento norte y el sol discutían sobre cuál de ellos era el más fuerte."),
    ("fa", "باد شمال و خورشید با هم بحث می‌کردند که کدام‌یک قوی‌تر است."),
    ("fr", "La bise et le soleil se disputaient, chacun assurant qu'il était le plus fort."),
    ("it", "Il vento di tramontana e il sole discutevano su chi di loro fosse il più forte."),
    ("pt", "O vento norte e o sol discutiam qual dos dois era o mais forte."),
];

pub struct Validation {
    pub(super) dataset: Arc<Dataset>,
    pub(super) features: Features,
    stats: MelStats,
    rate_hz: u32,
    device: Device,
    hop_samples: usize,
    /// None where another rank speaks, or nothing shall be spoken.
    samples: Option<Samples>,
}

/// What is spoken at every validation, and where it goes.
struct Samples {
    folder: SampleFolder,
    /// Held-out clips, by their number.
    clips: Vec<u32>,
    /// Tokens and language of a sentence.
    sentence: Option<(Vec<i32>, usize)>,
    /// Opened at the first validation.
    vocoder: Option<VocoderBackend>,
    config: Config,
    /// The recordings themselves are written once.
    recordings_written: bool,
    /// Reads the clips' texts.
    reader: Option<JoinHandle<()>>,
}

impl Validation {
    /// `log_dir`: where samples go; none where another rank writes.
    pub fn new(context: &RunContext, state: &RunState, log_dir: Option<&Path>, resumed: bool) -> Result<Option<Self>> {
        let RunContext { config, data, roles, .. } = context;
        let Some(dataset) = data.validation.clone() else { return Ok(None) };
        let layout = Arc::new(dataset.layout(&data.budget));
        let without = config.without_augmentation();
        let features = Features::new(&without, layout, state.mel_stats, Purpose::Voice, roles.model)?;
        let resume_from = resumed.then_some(state.step);
        let samples = log_dir.filter(|_| config.training.sample_clips > 0);
        let samples = samples.map(|log_dir| Samples::begin(&dataset, &features, config, data, log_dir, resume_from));
        Ok(Some(Validation {
            hop_samples: dataset.hop_samples(),
            dataset,
            features,
            stats: state.mel_stats,
            rate_hz: config.data.sample_rate,
            device: roles.model,
            samples: samples.transpose()?,
        }))
    }

    /// The mean losses over all held-out clips, and whether everything could be logged.
    pub fn run(
        &mut self,
        voice: &Voice,
        metrics: Option<&mut MetricsWriter>,
        step: u64,
        ranks: Option<&Ranks>,
    ) -> Result<(HeldOutLoss, Result<()>)> {
        let parts = |batch: &Batch| voice.losses(batch).parts().map(|part| part.double_value(&[]));
        let losses = tch::no_grad(|| means_over(&self.features, &self.dataset, ranks, parts))?;
        let held_out = HeldOutLoss { loss: losses.iter().sum(), compared: losses[Losses::FLOW] };
        let Some(metrics) = metrics else { return Ok((held_out, Ok(()))) };
        let names = Losses::NAMES.map(|name| format!("validation/{name}"));
        let mut figures: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(losses).collect();
        figures.push(("validation/loss", held_out.loss));
        let logged = metrics.log(step, &figures).and_then(|()| tch::no_grad(|| self.speak(voice, metrics, step)));
        Ok((held_out, logged))
    }

    /// Speaks all samples into files, and the first clip for TensorBoard too. What is random in speech follows from its
    /// own seed, and in a step from the step's: training goes on as if nothing had been said.
    fn speak(&mut self, voice: &Voice, metrics: &mut MetricsWriter, step: u64) -> Result<()> {
        let Some(mut samples) = self.samples.take() else { return Ok(()) };
        let spoken = self.speak_all(&mut samples, voice, metrics, step);
        self.samples = Some(samples);
        spoken
    }

    fn speak_all(&self, samples: &mut Samples, voice: &Voice, metrics: &mut MetricsWriter, step: u64) -> Result<()> {
        let place = "samples of the voice cannot be written";
        let mut reference = None;
        for (at, clip) in samples.clips.clone().into_iter().enumerate() {
            let (host, batch) = batch_on(&self.features, &self.dataset, &[clip], 0)?;
            let layout = self.features.layout();
            let tokens = &layout.tables(&*host.block)[layout.tokens.clone()];
            let (text, frames) = (host.text_spans[0], host.frame_spans[0]);
            let recorded = batch.mel.narrow(0, 0, frames.len as i64);
            // Its own first half is the reference.
            let prompt = voice.clones().then(|| Prompt::of(&recorded.narrow(0, 0, (frames.len as i64 / 2).max(2))));
            reference = reference.or_else(|| prompt.clone());
            let language = batch.languages.int64_value(&[0]) as usize;
            let (spoken, lasting) = self.spoken(voice, &tokens[text.range()], language, prompt);
            let path = path(voice, &batch, frames.len);
            let mut alignment = self.alignment(&lasting);
            alignment.recorded_frames = counts(&path, text.len);
            let wave = samples.sound(&self.stats.restore(&spoken), self.hop_samples)?;
            samples.folder.write(at, step, &wave, self.rate_hz, &alignment).context(place)?;
            if at == 0 {
                let pictures = [mel_picture(&recorded), mel_picture(&spoken)];
                metrics.image("mel/recorded above, spoken below", step, &Picture::stack(&pictures))?;
                metrics.image("alignment", step, &alignment_picture(&path, text.len, frames.len))?;
                metrics.audio("spoken", step, &wave, self.rate_hz)?;
            }
            if !samples.recordings_written {
                let wave = match self.recording(samples, clip)? {
                    Some(wave) => wave,
                    None => samples.sound(&self.stats.restore(&recorded), self.hop_samples)?,
                };
                samples.folder.write_recording(at, &wave, self.rate_hz).context(place)?;
                if at == 0 {
                    metrics.audio("recorded", step, &wave, self.rate_hz)?;
                }
            }
        }
        if let Some((tokens, language)) = samples.sentence.clone() {
            let (spoken, lasting) = self.spoken(voice, &tokens, language, reference);
            let wave = samples.sound(&self.stats.restore(&spoken), self.hop_samples)?;
            let at = samples.clips.len();
            samples.folder.write(at, step, &wave, self.rate_hz, &self.alignment(&lasting)).context(place)?;
        }
        samples.recordings_written = true;
        samples.folder.prune(samples.clips.len() + 1).context(place)
    }

    fn spoken(&self, voice: &Voice, tokens: &[i32], language: usize, prompt: Option<Prompt>) -> (Tensor, Vec<usize>) {
        synth::speak_tokens(voice, tokens, language, prompt, &synth::Options::default(), self.device)
    }

    fn alignment(&self, lasting: &[usize]) -> Alignment {
        Alignment {
            spoken_frames: lasting.iter().map(|frames| *frames as u32).collect(),
            recorded_frames: Vec::new(),
            frame_seconds: self.hop_samples as f64 / f64::from(self.rate_hz),
        }
    }

    /// A clip as it was recorded, where the cache holds samples.
    fn recording(&self, samples: &Samples, clip: u32) -> Result<Option<Vec<f32>>> {
        if samples.config.data.cache_content != CacheContent::Pcm {
            return Ok(None);
        }
        let layout = Arc::new(self.features.layout().clone());
        let features = Features::new(&samples.config, layout, self.stats, Purpose::Vocoder, Device::Cpu)?;
        let (host, batch) = batch_on(&features, &self.dataset, &[clip], 0)?;
        let many = (host.frame_spans[0].len * self.hop_samples) as i64;
        Ok(batch.samples.map(|wave| floats(&wave.narrow(0, 0, many))))
    }
}

impl Samples {
    fn begin(
        dataset: &Dataset,
        features: &Features,
        config: &Config,
        data: &TrainingData,
        log_dir: &Path,
        resume_from: Option<u64>,
    ) -> Result<Self> {
        let most = LONGEST_S * config.data.sample_rate as usize / dataset.hop_samples();
        let lengths = dataset.lengths();
        let (mut short, long): (Vec<u32>, Vec<u32>) =
            (0..lengths.len() as u32).partition(|clip| lengths.own(*clip as usize).frames <= most);
        short.extend(long);
        short.truncate(config.training.sample_clips);
        // The language that most of the corpus is in.
        let language = data.corpus_facts(config.data.sample_rate).languages.into_iter().next();
        let language = language.map(|(code, _)| code).unwrap_or_default();
        let own = |(code, _): &&(&str, &str)| language.split('-').next() == Some(code);
        let known = SENTENCES.iter().find(own).map(|(_, text)| (*text).to_owned());
        let text = config.training.sample_text.clone().or(known);
        let sentence = text.and_then(|text| {
            let tokens = data.tokenizer.encode(&text, data.tokenizer.language(&text, &language)).ok()?;
            Some((text, tokens))
        });
        let names = data.tokenizer.symbols();
        let symbols = |tokens: &[i32]| -> Vec<String> {
            tokens.iter().map(|token| names.get(*token as usize).cloned().unwrap_or_default()).collect()
        };
        let mut told = Vec::new();
        for clip in &short {
            let (host, _) = batch_on(features, dataset, &[*clip], 0)?;
            let layout = features.layout();
            let tokens = &layout.tables(&*host.block)[layout.tokens.clone()][host.text_spans[0].range()];
            let (id, language) = (dataset.segment_of(*clip as usize).0, dataset.labels(*clip as usize).1);
            let symbols = symbols(tokens);
            // As far as symbols tell it; the corpus' own comes later.
            let text = match data.tokenizer.symbols_of(language) == "characters" {
                true => symbols.iter().filter(|symbol| !symbol.starts_with('<')).map(String::as_str).collect(),
                false => String::new(),
            };
            told.push(SampleClip { id: Some(id.to_owned()), text, language: language.to_owned(), symbols });
        }
        told.extend(sentence.as_ref().map(|(text, tokens)| SampleClip {
            id: None,
            text: text.clone(),
            language: language.clone(),
            symbols: symbols(tokens),
        }));
        let folder = SampleFolder::of(log_dir);
        folder.begin(told, resume_from).context("the folder of samples cannot be made")?;
        let whole = short.iter().map(|clip| *clip as usize).filter(|clip| dataset.is_whole(*clip));
        let ids = whole.map(|clip| dataset.segment_of(clip).0.to_owned()).collect();
        let reader = data.near_texts(&config.data).map(|path| read_texts(path, ids, config, folder.clone()));
        let number = data.tokenizer.languages().iter().position(|known| *known == language).unwrap_or(0);
        let sentence = sentence.map(|(_, tokens)| (tokens, number));
        let config = config.without_augmentation();
        Ok(Samples { folder, clips: short, sentence, vocoder: None, config, recordings_written: false, reader })
    }

    /// Sound by the bundled vocoder, where it takes these frames and memory is not counted; otherwise by Griffin-Lim.
    fn sound(&mut self, log_mel: &Tensor, hop_samples: usize) -> Result<Vec<f32>> {
        if self.vocoder.is_none() {
            let open = |path: Option<&Path>| VocoderBackend::open(path, &self.config, log_mel.device());
            let bundled =
                synth::bundled_vocoder(&self.config).filter(|_| !self.config.training.enable_memory_isolation);
            self.vocoder = Some(match (open(bundled.as_deref()), &bundled) {
                // A run does not end because what it would be listened to with is damaged.
                (Err(error), Some(_)) => {
                    console::complain(format!("warning: samples are spoken by Griffin-Lim: {error}"));
                    open(None)?
                }
                (opened, _) => opened?,
            });
        }
        Ok(self.vocoder.as_ref().expect("opened").waveform(log_mel, hop_samples))
    }
}

/// Reads the texts of clips beside the run, which waits for nothing.
fn read_texts(path: PathBuf, ids: HashSet<String>, config: &Config, folder: SampleFolder) -> JoinHandle<()> {
    let data = config.data.clone();
    // A folder that is gone, or a disk that is full, is told of where samples are written.
    thread::spawn(move || drop(folder.tell_texts(&dataset::texts_of(&path, &ids, &data))))
}

/// A run that ends soon has texts, too.
impl Drop for Samples {
    fn drop(&mut self) {
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

/// `[frames, n_mels]` with time to the right and low bands at the bottom.
pub fn mel_picture(frames: &Tensor) -> Picture {
    let size = frames.size();
    Picture::heatmap(&floats(&frames.transpose(0, 1)), size[1] as usize, size[0] as usize)
}

/// Token of each frame of the first utterance, as the voice aligns it.
fn path(voice: &Voice, batch: &Batch, frames: usize) -> Vec<usize> {
    let path: Vec<i32> = Vec::try_from(voice.align(batch).to_device(Device::Cpu)).expect("an i32 vector");
    path.into_iter().take(frames).map(|token| token as usize).collect()
}

fn counts(path: &[usize], tokens: usize) -> Vec<u32> {
    let mut counts = vec![0; tokens];
    path.iter().for_each(|token| counts[*token] += 1);
    counts
}

fn alignment_picture(path: &[usize], tokens: usize, frames: usize) -> Picture {
    let mut cells = vec![0.0; tokens * frames];
    for (frame, &token) in path.iter().enumerate() {
        cells[token * frames + frame] = 1.0;
    }
    Picture::heatmap(&cells, tokens, frames)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.to_device(Device::Cpu).to_kind(Kind::Float).contiguous().view(-1);
    Vec::try_from(flat).expect("an f32 vector on the CPU")
}
