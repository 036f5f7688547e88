//! A trained voice as files that run without this program: one ONNX graph from phonemes to sound, with the interface of
//! Piper's voices and the metadata of sherpa-onnx, or one safetensors file with all that a checkpoint holds.
//!
//! The networks write themselves into the graph (`model::graph`); here is what lies around them.

mod files;
mod ids;
mod reference;
mod regulator;
mod speakers;
#[cfg(test)]
mod tests;
mod verify;
mod weights;

pub use files::Files;
pub use verify::{Verified, verify};
pub use weights::write_weights;

use crate::checkpoint::voice::{self, Geometry, Prompt, VoiceFile};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::feed::MelStats;
use crate::model::graph::{GraphWriter, Precision};
use crate::model::{Sampling, Voice};
use crate::synth::{FADE_S, VocoderBackend};
use crate::vocoder::Vocoder;
use anyhow::{Result, bail, ensure};
use host::config::Config;
use host::config::speaking::DEFAULT_LOUDNESS;
use host::error::hinted;
use host::onnx::{Kind, Port, Value};
use host::text::phoneme_map::PhonemeMap;
use speakers::Speakers;
use std::path::Path;
use tch::nn::VarStore;
use tch::{Device, Tensor};
use torchx::named_parameters;

/// What a file shall be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Steps and guidance are part of the file; `temperature` is what it is asked for where nobody says otherwise.
    pub sampling: Sampling,
    pub precision: Precision,
    /// Whether it also speaks as frames say that it is given, which a second file makes of recordings.
    pub reference_encoder: bool,
}

/// A voice with all that its file needs.
pub struct ExportedVoice {
    voice: Voice,
    store: VarStore,
    vocoder: Box<Vocoder>,
    vocoder_store: VarStore,
    config: Config,
    stats: MelStats,
    map: PhonemeMap,
    language: String,
    /// Whose voices the file has, by name; one without a prompt where the voice does not clone.
    speakers: Vec<(String, Option<Prompt>)>,
}

/// A graph as it is written.
pub struct ExportedGraph {
    pub bytes: Vec<u8>,
    /// Weights that it keeps in half precision.
    halved: Vec<Tensor>,
}

/// Name of the checkpoint's own voice.
pub const OWN: &str = "default";

impl ExportedVoice {
    /// `voices`: names with files of voices, none for the checkpoint's own.
    pub fn open(
        checkpoint: &Path,
        vocoder: &Path,
        language: Option<&str>,
        voices: &[(String, Option<&Path>)],
    ) -> Result<Self> {
        let checkpoint = Checkpoint::open(checkpoint)?.of_kind(RunKind::Voice)?;
        let language = chosen_language(&checkpoint, language)?;
        let map = PhonemeMap::new(&checkpoint.tokenizer, &language)?;
        let (store, voice) = checkpoint.voice(Device::Cpu, tch::Kind::Float)?;
        let backend = VocoderBackend::open(Some(vocoder), &checkpoint.config, Device::Cpu)?;
        let VocoderBackend::Trained { vocoder, store: vocoder_store } = backend else {
            bail!("a vocoder was named and another opened");
        };
        let speakers = voices.iter().map(|(name, file)| Ok((name.clone(), prompt(&checkpoint, name, *file)?)));
        let speakers = speakers.collect::<Result<_>>()?;
        let (config, stats) = (checkpoint.config, checkpoint.state.mel_stats);
        Ok(ExportedVoice { voice, store, vocoder, vocoder_store, config, stats, map, language, speakers })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn language(&self) -> &str {
        &self.language
    }

    /// Number of weights, the vocoder's included.
    pub fn parameters(&self) -> usize {
        let count = |store: &VarStore| store.variables().values().map(Tensor::numel).sum::<usize>();
        count(&self.store) + count(&self.vocoder_store)
    }

    /// As loud as `synth` is, if nobody asks for another loudness.
    fn gain(&self) -> f32 {
        self.config.data.gain_to(Some(DEFAULT_LOUDNESS))
    }

    /// `with_mel`: whether it also puts out the mel frames, to be looked at.
    pub fn graph(&self, options: &Options, with_mel: bool) -> Result<ExportedGraph> {
        ensure!(
            !options.reference_encoder || self.voice.clones(),
            "this voice was trained without `context_share`, so it takes no other's sound"
        );
        // What is folded into constants is computed here.
        crate::catch(|| tch::no_grad(|| self.graph_or_panic(options, with_mel)))?
    }

    fn graph_or_panic(&self, options: &Options, with_mel: bool) -> Result<ExportedGraph> {
        let Config { model, data, .. } = self.config();
        let vocoder = named_parameters(&self.vocoder_store).into_iter();
        let mut weights = named_parameters(&self.store);
        weights.extend(vocoder.map(|(name, weight)| (format!("vocoder.{name}"), weight)));
        let mut g = GraphWriter::new(options.precision, &weights);

        let [input, lengths, scales] = ["input", "input_lengths", "scales"].map(Value::named);
        let mut inputs = vec![
            Port::new(&input, Kind::I64, ["batch".into(), "phonemes".into()]),
            Port::new(&lengths, Kind::I64, ["batch".into()]),
            Port::new(&scales, Kind::F32, [3.into()]),
        ];
        let speakers = Speakers::new(&self.speakers, &options.sampling, model.n_mels as usize);
        let branches = speakers.graph(options.reference_encoder, &mut inputs, &mut g);
        let [noise_scale, length_scale] = [0, 1].map(|place| {
            let place = g.int(place);
            g.gather(&scales, &place)
        });

        let tokens = ids::graph(&self.map, &input, &lengths, &mut g);
        let (expected, content) = self.voice.graph_plan(&tokens.tokens, self.map.language as i64, &mut g);
        let lasting = regulator::graph(&expected, &length_scale, &mut g);
        let content = g.gather(&content, &lasting.token_of_frame);
        let bands = g.ints(&[model.n_mels]);
        let shape = g.concat(&[&lasting.total, &bands], 0);
        let zeros = g.zeros(&shape);
        let noise = g.op("RandomNormalLike", &[&zeros], vec![]);
        let noise = g.mul(&noise, &noise_scale);
        let mel = self.voice.graph_decode(&content, &noise, options.sampling.steps, &branches, &mut g);
        let log_mel = self.stats.graph_restore(&mel, &mut g);
        let wave = self.vocoder.graph(&log_mel, &mut g);
        let gain = g.float(self.gain().into());
        let wave = g.mul(&wave, &gain);
        let fade = (FADE_S * f64::from(data.sample_rate)) as i64;
        let wave = regulator::faded(&wave, fade, &mut g);

        let (output, frames) = (g.name(&wave, "output"), tokens.spread(&lasting.frames, &mut g));
        let durations = g.name(&frames, "durations");
        let mut outputs = vec![
            Port::new(&output, Kind::F32, ["batch".into(), 1.into(), "samples".into()]),
            Port::new(&durations, Kind::F32, ["phonemes".into()]),
        ];
        if with_mel {
            outputs.push(Port::new(&g.name(&mel, "mel"), Kind::F32, ["frames".into(), model.n_mels.into()]));
        }
        let (graph, halved) = g.finish()?;
        Ok(ExportedGraph { bytes: graph.finish("voice", inputs, outputs, &self.metadata()), halved })
    }

    /// What sherpa-onnx looks for.
    fn metadata(&self) -> Vec<(&'static str, String)> {
        vec![
            ("model_type", "vits".into()),
            ("comment", "piper".into()),
            ("language", self.language.clone()),
            ("voice", self.map.espeak_voice.clone()),
            ("has_espeak", "1".into()),
            ("n_speakers", self.speakers.len().to_string()),
            ("sample_rate", self.config().data.sample_rate.to_string()),
        ]
    }
}

/// The language that was asked for, or the voice's own.
fn chosen_language(checkpoint: &Checkpoint, asked: Option<&str>) -> Result<String> {
    let tokenizer = &checkpoint.tokenizer;
    let language = match asked.unwrap_or(&checkpoint.config.data.language) {
        // Nothing to detect it from: the corpus's most frequent.
        "auto" => tokenizer.language("", ""),
        named => tokenizer.language("", named),
    };
    let spoken = tokenizer.languages();
    if !spoken.iter().any(|known| known == language) {
        let hint = format!("it speaks {}", spoken.join(", "));
        return Err(hinted(format!("the voice does not speak `{language}`"), hint));
    }
    Ok(language.to_owned())
}

fn prompt(checkpoint: &Checkpoint, name: &str, file: Option<&Path>) -> Result<Option<Prompt>> {
    let own = checkpoint.folder().join(voice::FILE);
    let path = file.unwrap_or(&own);
    if !checkpoint.config.model.clones() {
        ensure!(file.is_none(), "{name}: the voice was trained without `context_share`, so it speaks as nobody else");
        return Ok(None);
    }
    let read = VoiceFile::read(path)?;
    read.fits(Geometry::of(&checkpoint.config), path)?;
    Ok(Some(read.prompt(&checkpoint.state.mel_stats)))
}

/// Names of all voices must differ, for programs choose by them.
pub fn require_distinct(names: &[String]) -> Result<()> {
    for (at, name) in names.iter().enumerate() {
        ensure!(!names[..at].contains(name), "two voices are called `{name}`");
    }
    Ok(())
}
