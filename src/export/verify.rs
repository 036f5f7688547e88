//! Holds a graph to the network: both speak the same phonemes at noise 0, one in onnxruntime and one in LibTorch.

use super::{ExportedVoice, Options};
use crate::checkpoint::voice::{Prompt, VoiceFile};
use crate::feed::{MelExtractor, stft};
use crate::model::Sampling;
use crate::model::graph::Precision;
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
use std::sync::atomic::{AtomicUsize, Ordering};
use tch::{Device, Kind, Tensor};

const SCRIPT: &str = include_str!("verify.py");
/// Phonemes of what is spoken: a word, a sentence, a long one.
const LENGTHS: [usize; 3] = [8, 40, 160];
/// What numerical noise may do to normalised mel frames, and to the sound (dB): that of f32 is at -64 dB over ten seconds, a pitch
/// that is off by half a percent at -15.
const MEL_LIMIT: f64 = 1e-3;
const AUDIO_LIMIT_DB: f64 = -50.0;
/// Window and hop of the spectra that sounds are compared by.
const WINDOW: i64 = 1024;
const HOP: i64 = 256;

/// What onnxruntime made of a file.
#[derive(Clone, Debug)]
pub struct Verified {
    pub onnxruntime: String,
    /// None where products are of 8 bits: their durations are others, and so every sample is.
    pub difference: Option<Difference>,
    /// Seconds that onnxruntime computes for a second of speech on one core.
    pub real_time_factor: f64,
}

/// How far a graph is from the network.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Largest, of normalised mel frames.
    pub mel: f64,
    /// Of the magnitudes of the sound's spectra, against those of the sound that LibTorch makes of the graph's own frames.
    /// Neither frames nor waves are the same to the last digit: phases add up over an utterance what the pitch is off by,
    /// which nobody hears.
    pub audio_db: f64,
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
    sid: usize,
    prompt: Option<Prompt>,
    /// A file of samples whose voice it takes.
    recording: Option<PathBuf>,
}

/// Mel frames (normalised) and samples at noise 0.
struct Spoken {
    mel: Vec<f32>,
    wave: Vec<f32>,
}

#[derive(Deserialize)]
struct Ran {
    version: String,
    seconds: Vec<f64>,
}

/// Runs the graph by `python`, which must have onnxruntime. Weights that the graph keeps in half precision are rounded in
/// this program, too: what is compared is the computation.
pub fn verify(voice: &ExportedVoice, options: &Options, python: &Path) -> Result<Verified> {
    let folder = Scratch::new()?;
    let graph = voice.graph(options, true)?;
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        fs::write(&path, bytes).with_context(|| format!("{}: cannot be written", path.display()))?;
        anyhow::Ok(path)
    };
    let model = put("voice.onnx", &graph.bytes)?;
    graph.halved.iter().for_each(round_to_half);
    let mut cases: Vec<Case> = LENGTHS.iter().enumerate().map(|(at, length)| voice.case(*length, at)).collect();
    let speak = |case: &Case| Ok(crate::catch(|| tch::no_grad(|| voice.mel(case, options)))?);
    let sound = |mel: &[f32]| crate::catch(|| tch::no_grad(|| voice.sound(mel)));
    let mut wanted: Vec<Vec<f32>> = cases.iter().map(speak).collect::<Result<_>>()?;
    let mut reference = None;
    if options.reference_encoder {
        reference = Some(put("reference.onnx", &voice.reference_graph()?)?);
        let recording = sound(wanted.last().expect("several"))?;
        let prompt = crate::catch(|| tch::no_grad(|| voice.heard(&recording)))?;
        let path = put("recording", &host::onnx::bytes(&recording, f32::to_le_bytes))?;
        cases.push(Case { prompt: Some(prompt), recording: Some(path), ..voice.case(LENGTHS[1], 0) });
        wanted.push(speak(cases.last().expect("just pushed"))?);
    }
    let ran = run(python, &model, reference.as_deref(), &cases, &folder.0)?;
    let made: Vec<Spoken> = (0..cases.len()).map(|at| Spoken::read(&folder.0, at)).collect::<Result<_>>()?;
    let samples: usize = made.iter().map(|made| made.wave.len()).sum();
    let seconds = samples as f64 / f64::from(voice.config().data.sample_rate);
    let compare = || {
        let of_made = |(made, mel): (&Spoken, Vec<f32>)| Ok(Spoken { mel, wave: sound(&made.mel)? });
        difference(&made, &made.iter().zip(wanted).map(of_made).collect::<Result<Vec<_>>>()?)
    };
    let compared = options.precision != Precision::Int8;
    Ok(Verified {
        onnxruntime: ran.version,
        difference: compared.then(compare).transpose()?,
        real_time_factor: ran.seconds.iter().sum::<f64>() / seconds,
    })
}

fn difference(made: &[Spoken], wanted: &[Spoken]) -> Result<Difference> {
    let (mut mel, mut error, mut power) = (0f64, 0.0, 0.0);
    for (made, wanted) in made.iter().zip(wanted) {
        let (found, expected) = (made.mel.len(), wanted.mel.len());
        if found != expected {
            bail!("onnxruntime spoke {found} values of mel frames, and LibTorch {expected}: durations differ");
        }
        let (found, expected) = (made.wave.len(), wanted.wave.len());
        if found != expected {
            bail!("onnxruntime made {found} samples of the frames of which LibTorch makes {expected}");
        }
        let off = |(a, b): (&f32, &f32)| f64::from((a - b).abs());
        mel = made.mel.iter().zip(&wanted.mel).map(off).fold(mel, f64::max);
        let [made, wanted] = [made, wanted].map(|spoken| magnitudes(&spoken.wave));
        let energy = |x: Tensor| x.square().sum(Kind::Double).double_value(&[]);
        error += energy(made - &wanted);
        power += energy(wanted);
    }
    Ok(Difference { mel, audio_db: 10.0 * (error / power).log10() })
}

fn magnitudes(wave: &[f32]) -> Tensor {
    stft(&Tensor::from_slice(wave), &Tensor::hann_window(WINDOW, (Kind::Float, Device::Cpu)), HOP).abs()
}

fn round_to_half(weight: &Tensor) {
    tch::no_grad(|| weight.shallow_clone().copy_(&weight.to_kind(Kind::Half)));
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
        let tokens = tokens.map(|id| id as i32).collect();
        let sid = number % self.speakers.len();
        Case { ids, tokens, sid, prompt: self.speakers[sid].1.clone(), recording: None }
    }

    /// Normalised mel frames.
    fn mel(&self, case: &Case, options: &Options) -> Vec<f32> {
        let sampling = Sampling { temperature: 0.0, ..options.sampling };
        let how = synth::Options { sampling, ..synth::Options::default() };
        let prompt = case.prompt.clone();
        let (mel, _) = speak_tokens(&self.voice, &case.tokens, self.map.language, prompt, &how, Device::Cpu);
        Vec::try_from(mel.contiguous().view(-1)).expect("floats on the CPU")
    }

    /// The sound of such frames.
    fn sound(&self, mel: &[f32]) -> Vec<f32> {
        let mel = Tensor::from_slice(mel).view([-1, self.config().model.n_mels]);
        let mut wave = self.vocoder.waveform(&self.stats.restore(&mel));
        wave.iter_mut().for_each(|sample| *sample *= self.gain());
        Join::new(self.config().data.sample_rate, 1.0).fade(&mut wave);
        wave
    }

    /// The voice of a recording as it is, neither trimmed nor made louder.
    fn heard(&self, samples: &[f32]) -> Prompt {
        let config = self.config();
        let extractor = MelExtractor::new(&config.model, config.data.sample_rate, Device::Cpu);
        VoiceFile::of(&extractor.log_mel(&Tensor::from_slice(samples)), config).prompt(&self.stats)
    }
}

impl Spoken {
    /// What the script left.
    fn read(folder: &Path, number: usize) -> Result<Self> {
        let floats = |what: &str| {
            let path = folder.join(format!("{number}.{what}"));
            let bytes = fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
            let number = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
            anyhow::Ok(bytes.chunks_exact(4).map(number).collect())
        };
        Ok(Spoken { mel: floats("mel")?, wave: floats("wave")? })
    }
}

fn run(python: &Path, model: &Path, reference: Option<&Path>, cases: &[Case], out: &Path) -> Result<Ran> {
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .hint("--python names one that has onnxruntime")
        .with_context(|| format!("`{}` cannot be started", python.display()))?;
    let told = |case: &Case| json!({ "ids": case.ids, "sid": case.sid, "recording": case.recording });
    let cases: Vec<_> = cases.iter().map(told).collect();
    let job = json!({ "model": model, "reference": reference, "cases": cases, "out": out }).to_string();
    // It may end without having read it; what it says then is below.
    let _ = child.stdin.take().map(|mut input| input.write_all(job.as_bytes()));
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    if complaint.contains("ModuleNotFoundError") {
        let fact = format!("{}: {last}", python.display());
        return Err(hinted(fact, "`pip install onnxruntime`, or name a Python that has it with --python"));
    }
    if !output.status.success() {
        bail!("onnxruntime could not run the file: {last}");
    }
    serde_json::from_slice(&output.stdout).context("onnxruntime's answer cannot be read")
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("myxtts-export-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("{}: cannot be created", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
