//! Holds a graph to the network: both speak the same phonemes at noise 0, one in onnxruntime and one in LibTorch.

use super::{ExportedVoice, Options};
use crate::model::Sampling;
use crate::synth::{self, Join, speak_tokens};
use anyhow::{Context, Result, bail};
use host::error::{WithHint, hinted};
use host::rng::Rng;
use serde::Deserialize;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tch::Device;

const SCRIPT: &str = include_str!("verify.py");
/// Phonemes of what is spoken: a word, a sentence, a long one.
const LENGTHS: [usize; 3] = [8, 40, 160];
/// What numerical noise may do to normalised mel frames, and to the sound (dB).
pub const MEL_LIMIT: f64 = 1e-3;
pub const AUDIO_LIMIT_DB: f64 = -60.0;

/// How far a graph is from the network.
#[derive(Clone, Debug)]
pub struct Difference {
    pub onnxruntime: String,
    /// Largest, of normalised mel frames.
    pub mel: f64,
    /// Of the sound, against the sound.
    pub audio_db: f64,
    /// Seconds that onnxruntime computes for a second of speech on one core.
    pub real_time_factor: f64,
}

impl Difference {
    pub fn is_small(&self) -> bool {
        self.mel <= MEL_LIMIT && self.audio_db <= AUDIO_LIMIT_DB
    }
}

struct Case {
    /// As Piper would give them, and as the network takes them.
    ids: Vec<i64>,
    tokens: Vec<i32>,
    speaker: usize,
}

#[derive(Deserialize)]
struct Ran {
    version: String,
    seconds: Vec<f64>,
}

/// Runs the graph by `python`, which must have onnxruntime.
pub fn verify(voice: &ExportedVoice, options: &Options, python: &Path) -> Result<Difference> {
    let folder = Scratch::new()?;
    let cases: Vec<Case> = LENGTHS.iter().enumerate().map(|(at, length)| voice.case(*length, at)).collect();
    let model = folder.0.join("voice.onnx");
    fs::write(&model, voice.graph(options, true)?).context("the scratch folder cannot be written to")?;
    let ran = run(python, &model, &cases, &folder.0)?;
    let (mut mel_error, mut error, mut power, mut spoken) = (0f64, 0.0, 0.0, 0);
    for (at, case) in cases.iter().enumerate() {
        let (mel, wave) = crate::catch(|| tch::no_grad(|| voice.spoken(case, options)))?;
        let read = |what: &str| floats(&folder.0.join(format!("{at}.{what}")));
        let (made_mel, made) = (read("mel")?, read("wave")?);
        if made.len() != wave.len() {
            let (made, wanted) = (made.len(), wave.len());
            bail!("onnxruntime spoke {made} samples, and LibTorch {wanted}: durations differ");
        }
        mel_error = made_mel.iter().zip(&mel).fold(mel_error, |most, (a, b)| most.max(f64::from((a - b).abs())));
        error += made.iter().zip(&wave).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
        power += wave.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
        spoken += wave.len();
    }
    let seconds = spoken as f64 / f64::from(voice.config().data.sample_rate);
    Ok(Difference {
        onnxruntime: ran.version,
        mel: mel_error,
        audio_db: 10.0 * (error / power).log10(),
        real_time_factor: ran.seconds.iter().sum::<f64>() / seconds,
    })
}

impl ExportedVoice {
    /// Phonemes drawn from all that the voice knows, for one speaker after the other.
    fn case(&self, phonemes: usize, number: usize) -> Case {
        let (mut rng, letters) = (Rng::new(&[number as u64]), self.map.letters());
        let drawn: Vec<(char, i64)> = (0..phonemes).map(|_| letters[rng.below(letters.len())]).collect();
        let text: String = drawn.iter().map(|(symbol, _)| symbol).collect();
        let ids = self.map.encode(&text);
        let (tag, blank) = (ids[0], ids[1]);
        let tokens = [tag, blank].into_iter().chain(drawn.iter().flat_map(|(_, id)| [*id, blank]));
        Case { ids, tokens: tokens.map(|id| id as i32).collect(), speaker: number % self.speakers.len() }
    }

    /// Normalised mel frames and samples at noise 0.
    fn spoken(&self, case: &Case, options: &Options) -> (Vec<f32>, Vec<f32>) {
        let sampling = Sampling { temperature: 0.0, ..options.sampling };
        let how = synth::Options { sampling, ..synth::Options::default() };
        let prompt = self.speakers[case.speaker].1.clone();
        let mel = speak_tokens(&self.voice, &case.tokens, self.map.language, prompt, &how, Device::Cpu);
        let mut wave = self.vocoder.waveform(&self.checkpoint.state.mel_stats.restore(&mel));
        Join::new(self.config().data.sample_rate, 1.0).fade(&mut wave);
        (Vec::try_from(mel.contiguous().view(-1)).expect("floats on the CPU"), wave)
    }
}

fn run(python: &Path, model: &Path, cases: &[Case], out: &Path) -> Result<Ran> {
    let missing = || format!("`{}` cannot be started", python.display());
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .hint("--python names one that has onnxruntime")
        .with_context(missing)?;
    let cases: Vec<_> = cases.iter().map(|case| json!({ "ids": case.ids, "sid": case.speaker })).collect();
    let job = json!({ "model": model, "cases": cases, "out": out }).to_string();
    // It may end without having read it; what it says then is below.
    let _ = child.stdin.take().map(|mut input| input.write_all(job.as_bytes()));
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    if complaint.contains("No module named") {
        let fact = format!("{}: {last}", python.display());
        return Err(hinted(fact, "`pip install onnxruntime`, or name a Python that has it with --python"));
    }
    if !output.status.success() {
        bail!("onnxruntime could not run the file: {last}");
    }
    serde_json::from_slice(&output.stdout).context("onnxruntime's answer cannot be read")
}

fn floats(path: &Path) -> Result<Vec<f32>> {
    let bytes = fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("myxtts-export-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("{}: cannot be created", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
