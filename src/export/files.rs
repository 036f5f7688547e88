//! The files of a voice: the graph, the settings that Piper reads beside it, and the tokens that sherpa-onnx reads. Each is
//! written under another name first, so that it is whole or not there.

use super::{ExportedVoice, Options};
use anyhow::{Context, Result};
use host::error::{WithHint, hinted};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const TOKENS: &str = "tokens.txt";

/// Where the files of a voice go.
pub struct Files {
    pub graph: PathBuf,
    pub settings: PathBuf,
    pub tokens: PathBuf,
    /// Turns recordings into voices.
    pub reference: PathBuf,
}

impl Files {
    pub fn beside(graph: &Path) -> Self {
        let ending = |ending: &str| graph.with_file_name(format!("{}{ending}", name(graph)));
        Files {
            graph: graph.into(),
            settings: ending(".json"),
            tokens: graph.with_file_name(TOKENS),
            reference: graph.with_extension("reference.onnx"),
        }
    }

    /// Fails before anything is computed where the files could not be put.
    pub fn check(&self, voice: &ExportedVoice) -> Result<()> {
        if fs::read_to_string(&self.tokens).is_ok_and(|there| there != tokens(voice)) {
            let fact = format!("{}: there already, and of another voice", self.tokens.display());
            return Err(hinted(fact, "one folder for each voice: -o other/voice.onnx"));
        }
        Ok(())
    }

    pub fn write(
        &self,
        voice: &ExportedVoice,
        options: &Options,
        graph: &[u8],
        reference: Option<&[u8]>,
    ) -> Result<()> {
        let settings = format!("{:#}\n", settings(voice, options));
        let mut files = vec![(&self.tokens, tokens(voice).into_bytes()), (&self.settings, settings.into_bytes())];
        files.extend(reference.map(|reference| (&self.reference, reference.to_vec())));
        files.iter().try_for_each(|(path, bytes)| write(path, bytes))?;
        write(&self.graph, graph)
    }
}

/// Whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    into_place(path, |partial| Ok(fs::write(partial, bytes)?))
}

/// The same with what writes a file itself.
pub fn into_place(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let failed = || format!("{}: cannot be written", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(|| format!("{}: cannot be created", folder.display()))?;
    }
    if path.is_dir() {
        return Err(hinted(format!("{}: a folder", path.display()), "-o names a file, as voice.onnx"));
    }
    let partial = path.with_file_name(format!(".{}.{}.partial", name(path), std::process::id()));
    let written = write(&partial).and_then(|()| Ok(fs::rename(&partial, path)?));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.hint("is there room on the disk, and may this program write there?").with_context(failed)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What Piper reads beside the graph. `noise_w` says nothing: durations are not drawn.
fn settings(voice: &ExportedVoice, options: &Options) -> Value {
    let config = voice.config();
    let ids: Map<String, Value> = voice.map.ids.iter().map(|(symbol, id)| (symbol.to_string(), json!([id]))).collect();
    let numbered = voice.speakers.iter().enumerate();
    let speakers: Map<String, Value> = numbered.map(|(sid, (name, _))| (name.clone(), json!(sid))).collect();
    json!({
        "audio": { "sample_rate": config.data.sample_rate },
        "espeak": { "voice": voice.map.espeak_voice },
        "language": { "code": voice.language },
        "phoneme_type": "espeak",
        "phoneme_map": {},
        "phoneme_id_map": ids,
        "num_symbols": voice.map.count,
        "num_speakers": voice.speakers.len(),
        "speaker_id_map": if speakers.len() > 1 { speakers } else { Map::new() },
        "inference": { "noise_scale": options.sampling.temperature, "length_scale": 1.0, "noise_w": 0.0 },
        "hop_length": config.model.hop_length,
    })
}

/// What sherpa-onnx reads: a code point and its id a line.
fn tokens(voice: &ExportedVoice) -> String {
    let mut symbols: Vec<(&char, &i64)> = voice.map.ids.iter().collect();
    symbols.sort_by_key(|(_, id)| **id);
    symbols.into_iter().map(|(symbol, id)| format!("{symbol} {id}\n")).collect()
}
