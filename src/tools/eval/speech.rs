//! The sentences as spoken: files that are kept, so that an evaluation that was stopped goes on.

use super::Case;
use crate::checkpoint::voice::fingerprint;
use crate::checkpoint::{Checkpoint, weights_file};
use crate::model::Sampling;
use crate::synth::{Options, Request, Synthesizer};
use anyhow::{Context, Result};
use host::audio::{self, Resampler, Waveform, write_wav};
use host::config::Config;
use host::corpus::AudioSource;
use host::error::{WithHint, hinted};
use host::recording;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SETTINGS: &str = "settings.json";
const JOURNAL: &str = "spoken.jsonl";
const REPORT: &str = "report.json";

/// How the files of `spoken` come about.
#[derive(Clone, Copy, Debug)]
pub enum SpeechMode {
    /// From the text.
    Speak(Options),
    /// From the text, each token as long as it is in the recording.
    Along(Options),
    /// From the recording's own mel frames: what the vocoder alone makes of speech.
    Copy,
}

/// Settings that decide how sentences sound, and how fast: all speech in one folder was made with one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeechSettings {
    /// Fingerprint of the weights.
    pub voice: String,
    pub vocoder: Option<String>,
    pub device: String,
    /// How texts are spoken; none: recordings go through the vocoder.
    pub speaking: Option<Speaking>,
}

/// Settings of the flow that make frames of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speaking {
    pub steps: usize,
    pub temperature: f64,
    pub guidance: f64,
    pub speaker_guidance: f64,
    pub seed: u64,
    /// Whether tokens last as they were recorded.
    #[serde(default)]
    pub recorded_durations: bool,
}

impl SpeechSettings {
    pub fn of(voice: &Path, vocoder: Option<&Path>, device: tch::Device, manner: SpeechMode) -> Result<Self> {
        let name = |path: &Path| -> Result<String> {
            let weights = weights_file(Checkpoint::open(path)?.folder(), "model");
            Ok(fingerprint(&weights)?.to_hex()[..16].to_owned())
        };
        let speaking = |options: Options, recorded_durations: bool| {
            let Sampling { steps, temperature, guidance, speaker_guidance } = options.sampling;
            Some(Speaking { steps, temperature, guidance, speaker_guidance, seed: options.seed, recorded_durations })
        };
        let speaking = match manner {
            SpeechMode::Copy => None,
            SpeechMode::Speak(options) => speaking(options, false),
            SpeechMode::Along(options) => speaking(options, true),
        };
        let (voice, vocoder) = (name(voice)?, vocoder.map(name).transpose()?);
        Ok(SpeechSettings { voice, vocoder, device: format!("{device:?}"), speaking })
    }
}

/// The folder that an evaluation writes.
pub struct EvaluationFolder {
    root: PathBuf,
    journal: File,
    /// What was spoken before, by the name of its file.
    before: HashMap<String, JournalLine>,
}

/// A sentence as it was spoken.
pub struct SpokenCase {
    pub case: Case,
    /// Seconds of computing for a second of speech.
    pub real_time_factor: f64,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct JournalLine {
    name: String,
    text: String,
    language: Option<String>,
    reference: Option<PathBuf>,
    real_time_factor: f64,
}

impl EvaluationFolder {
    /// Goes on with what is there, if that was made with the same settings.
    pub fn open(root: &Path, settings: &SpeechSettings) -> Result<Self> {
        let hint = "choose another folder with --output";
        let unusable = || format!("{}: cannot be written to", root.display());
        for part in ["recorded", "spoken", "worst"] {
            fs::create_dir_all(root.join(part)).hint(hint).with_context(unusable)?;
        }
        // Programs are told of files in it, wherever they run.
        let root = root.canonicalize().hint(hint).with_context(unusable)?;
        let path = root.join(SETTINGS);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let other = "holds an evaluation of another voice, or with other settings";
                let there: Option<SpeechSettings> = serde_json::from_str(&text).ok();
                if there.as_ref() != Some(settings) {
                    return Err(hinted(format!("{}: {other}", root.display()), hint));
                }
            }
            Err(_) => fs::write(&path, serde_json::to_string_pretty(settings)?).hint(hint).with_context(unusable)?,
        }
        let path = root.join(JOURNAL);
        let lines = fs::read_to_string(&path).unwrap_or_default();
        // A last line that was cut off is spoken again.
        let line = |line: &str| serde_json::from_str::<JournalLine>(line).ok().map(|line| (line.name.clone(), line));
        let before = lines.lines().filter_map(line).collect();
        let journal = OpenOptions::new().create(true).append(true).open(path).hint(hint).with_context(unusable)?;
        Ok(EvaluationFolder { root, journal, before })
    }

    pub fn recorded(&self, name: &str) -> PathBuf {
        self.root.join("recorded").join(format!("{name}.wav"))
    }

    pub fn spoken(&self, name: &str) -> PathBuf {
        self.root.join("spoken").join(format!("{name}.wav"))
    }

    /// Another recording of the speaker of a case, as training hears it; made where it is not there.
    pub fn reference(&self, case: &Case, config: &Config) -> Result<Option<PathBuf>> {
        let Some(other) = &case.other else { return Ok(None) };
        let path = self.root.join("references").join(format!("{}.wav", case.name));
        if !path.exists() {
            fs::create_dir_all(self.root.join("references"))?;
            let wave = as_trained(other, config)?;
            write_wav(&path, &wave.samples, wave.rate_hz)?;
        }
        Ok(Some(path))
    }

    pub fn report(&self) -> PathBuf {
        self.root.join(REPORT)
    }

    /// An empty folder for pictures.
    pub fn worst(&self) -> Result<PathBuf> {
        let path = self.root.join("worst");
        fs::remove_dir_all(&path)?;
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// What was spoken before, where it is the same sentence in the same voice.
    pub fn kept(&self, case: &Case) -> Option<SpokenCase> {
        let JournalLine { text, language, reference, real_time_factor, .. } = self.before.get(&case.name)?;
        let same =
            (text, language, reference) == (&case.utterance.text, &case.utterance.language, &case.reference_name());
        let there = same && self.spoken(&case.name).exists() && self.recorded(&case.name).exists();
        there.then(|| SpokenCase { case: case.clone(), real_time_factor: *real_time_factor })
    }

    /// Speaks a sentence, and puts its recording beside it, as training hears that.
    pub fn speak(&mut self, case: &Case, voice: &Synthesizer, manner: SpeechMode) -> Result<SpokenCase> {
        let wave = as_trained(&case.utterance.audio, voice.config())?;
        write_wav(&self.recorded(&case.name), &wave.samples, wave.rate_hz)?;
        let (samples, taken_s) = match manner {
            SpeechMode::Speak(options) => timed(case, voice, &options)?,
            SpeechMode::Along(options) => {
                let request = request(case, voice, &options)?;
                clocked(|| voice.speak_along(&request, &wave))?
            }
            SpeechMode::Copy => clocked(|| voice.copy(&wave))?,
        };
        write_wav(&self.spoken(&case.name), &samples, voice.rate_hz())?;
        let real_time_factor = taken_s * f64::from(voice.rate_hz()) / samples.len() as f64;
        let (text, language) = (case.utterance.text.clone(), case.utterance.language.clone());
        let line =
            JournalLine { name: case.name.clone(), text, language, reference: case.reference_name(), real_time_factor };
        let line = serde_json::to_string(&line)? + "\n";
        self.journal.write_all(line.as_bytes()).with_context(|| format!("{JOURNAL}: cannot be written"))?;
        Ok(SpokenCase { case: case.clone(), real_time_factor })
    }
}

/// A recording as training hears it.
fn as_trained(source: &AudioSource, config: &Config) -> Result<Waveform> {
    let data = &config.data;
    let wave = recording::decode(source)?;
    let (trim, loudness) = (data.trim_silence, data.loudness());
    Ok(audio::prepare(wave, &mut Resampler::default(), data.sample_rate, trim, loudness)?)
}

/// Samples, and the seconds that speaking took; hearing the reference is not part of it.
pub fn timed(case: &Case, voice: &Synthesizer, options: &Options) -> Result<(Vec<f32>, f64)> {
    let request = request(case, voice, options)?;
    clocked(|| Ok(voice.speak(&request)?.samples))
}

fn request(case: &Case, voice: &Synthesizer, options: &Options) -> Result<Request> {
    let hear = |source: &AudioSource| match source.file() {
        Some(path) => voice.hear(&[path.to_owned()]),
        None => voice.hear_wave(recording::decode(source)?),
    };
    let heard = case.reference.as_ref().map(hear).transpose()?;
    Ok(Request {
        text: case.utterance.text.clone(),
        language: case.utterance.language.clone(),
        prompt: heard.map(|heard| voice.prompt(&heard.voice)),
        options: *options,
    })
}

fn clocked(work: impl FnOnce() -> Result<Vec<f32>>) -> Result<(Vec<f32>, f64)> {
    let start = Instant::now();
    Ok((work()?, start.elapsed().as_secs_f64()))
}
