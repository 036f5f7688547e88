//! Voices by name. A name from a request is looked up in this table and goes nowhere else: no path is made of it.

use crate::checkpoint::voice::Prompt;
use crate::synth::Synthesizer;
use anyhow::{Context, Result};
use axum::http::StatusCode;
use host::error::hinted;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use web::error::ApiError;

/// The checkpoint's own voice.
pub const DEFAULT: &str = "default";
/// OpenAI's names, which its clients often have no way to change: each is the default voice where no file has that name.
const OPENAI: [&str; 13] =
    ["alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"];
/// Uploaded voices that are kept; with one more, the oldest goes.
const MOST_UPLOADS: usize = 64;
const RECORDINGS: [&str; 6] = ["wav", "flac", "mp3", "ogg", "oga", "opus"];

/// The voices of a server, by name.
#[derive(Default)]
pub struct Voices {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Voices of the folder, by file name without extension.
    fixed: BTreeMap<String, Prompt>,
    /// Uploaded voices, each known only to whoever sent it; oldest first.
    uploaded: VecDeque<(String, Prompt)>,
}

impl Voices {
    /// Voice files and recordings of a folder, each under its name. `tell` gets what may be wrong with recordings.
    pub fn load(folder: &Path, voice: &Synthesizer, tell: &dyn Fn(&str)) -> Result<Self> {
        let unread = || format!("{}: cannot be read", folder.display());
        let mut fixed = BTreeMap::new();
        for entry in fs::read_dir(folder).with_context(unread)? {
            let path = entry.with_context(unread)?.path();
            let Some((name, prompt)) = open(&path, voice, tell).with_context(|| path.display().to_string())? else {
                continue;
            };
            if name == DEFAULT || fixed.insert(name.clone(), prompt).is_some() {
                let fact = format!("{}: `{name}` is taken", path.display());
                return Err(hinted(fact, "the file's name without extension names the voice"));
            }
        }
        Ok(Voices { table: Mutex::new(Table { fixed, uploaded: VecDeque::new() }) })
    }

    /// Prompt of a voice; none for the checkpoint's own.
    pub fn find(&self, name: &str) -> Result<Option<Prompt>, ApiError> {
        let table = self.lock();
        let uploaded = || table.uploaded.iter().find(|(id, _)| id == name).map(|(_, prompt)| prompt);
        if let Some(prompt) = table.fixed.get(name).or_else(uploaded) {
            return Ok(Some(prompt.clone()));
        }
        if name == DEFAULT || OPENAI.contains(&name) {
            return Ok(None);
        }
        let known = [DEFAULT].into_iter().chain(table.fixed.keys().map(String::as_str)).collect::<Vec<_>>();
        Err(ApiError::bad("voice", "voice_not_found", format!("no such voice; known: {}", known.join(", "))))
    }

    /// Names of the voices that everybody may see.
    pub fn names(&self) -> Vec<String> {
        let table = self.lock();
        [DEFAULT.to_owned()].into_iter().chain(table.fixed.keys().cloned()).collect()
    }

    /// Keeps an uploaded voice under a name that cannot be guessed, so that one client's voice is not another's.
    pub fn keep(&self, prompt: Prompt) -> String {
        // Two hashers, each with keys of its own from the system's randomness.
        let random = || RandomState::new().hash_one(0u8);
        let id = format!("upload-{:016x}{:016x}", random(), random());
        let mut table = self.lock();
        if table.uploaded.len() == MOST_UPLOADS {
            table.uploaded.pop_front();
        }
        table.uploaded.push_back((id.clone(), prompt));
        id
    }

    /// Drops an uploaded voice.
    pub fn forget(&self, name: &str) -> Result<(), ApiError> {
        let mut table = self.lock();
        let at = table.uploaded.iter().position(|(id, _)| id == name);
        let at = at.ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "voice_not_found", "no such uploaded voice"))?;
        table.uploaded.remove(at);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name and prompt of a file; none where it is neither voice nor recording.
fn open(path: &Path, voice: &Synthesizer, tell: &dyn Fn(&str)) -> Result<Option<(String, Prompt)>> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).filter(|name| !name.starts_with('.'));
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    let (Some(name), Some(extension)) = (name, extension) else { return Ok(None) };
    let prompt = match extension.as_str() {
        "safetensors" => voice.voice(path)?,
        other if RECORDINGS.contains(&other) => {
            let heard = voice.hear(&[PathBuf::from(path)])?;
            heard.notes.iter().for_each(|note| tell(note));
            voice.prompt(&heard.voice)
        }
        _ => return Ok(None),
    };
    Ok(Some((name.to_owned(), prompt)))
}
