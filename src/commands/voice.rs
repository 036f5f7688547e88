//! `myxtts voice`: voices by example, in files.

use crate::checkpoint::voice::VoiceFile;
use crate::feed::Roles;
use crate::synth::{Precision, Synthesizer};
use anyhow::{Context, Result};
use cli::flags::checkpoint_or_bundled;
use cli::voice::{Args, FOLDER, What};
use cli::{print_line, say};
use host::bundled;
use host::error::{WithHint, hinted};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXTENSION: &str = "safetensors";

pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Make { checkpoint, recordings, output, device, json, .. } => {
            let path =
                output.map_or_else(|| named(recordings[0].file_stem().unwrap_or_default().as_ref()), |p| place(&p));
            let checkpoint = checkpoint_or_bundled(checkpoint.as_deref())?;
            let synthesizer = Synthesizer::load(&checkpoint, None, Roles::named(&device)?, Precision::Light)?;
            let heard = synthesizer.hear(&recordings)?;
            heard.notes.iter().for_each(|note| say(format!("note: {note}")));
            write(&heard.voice, &path)?;
            print(&path, &heard.voice, json)?;
        }
        What::List { folder, json } => list(folder.as_deref(), json)?,
        What::Info { voice, json } => {
            let path = find(&voice);
            print(&path, &VoiceFile::read(&path)?, json)?;
        }
        What::Mix { a, b, weight, output, json } => {
            let (a_path, b_path) = (find(&a), find(&b));
            let (a, b) = (VoiceFile::read(&a_path)?, VoiceFile::read(&b_path)?);
            if a.features != b.features {
                let (one, other) = (a_path.display(), b_path.display());
                let fact = format!("{one} is a voice of {}, {other} of {}", a.features, b.features);
                return Err(hinted(fact, "only voices of equal frames can be mixed"));
            }
            let path = place(&output);
            let mixed = a.mixed(&b, weight)?;
            write(&mixed, &path)?;
            print(&path, &mixed, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A voice by its path, by its name in `voices/`, or by that of a bundled speaker.
pub fn find(name: &Path) -> PathBuf {
    let own = || Some(place(name)).filter(|path| path.exists());
    let speaker = || Some(bundled::find()?.speaker(name.to_str()?)).filter(|path| path.exists());
    if name.exists() { name.into() } else { own().or_else(speaker).unwrap_or(name.into()) }
}

/// A bare name is one in `voices/`.
fn place(name: &Path) -> PathBuf {
    if name.components().count() == 1 && name.extension().is_none() { named(name) } else { name.into() }
}

fn named(name: &Path) -> PathBuf {
    Path::new(FOLDER).join(format!("{}.{EXTENSION}", name.display()))
}

/// Under a temporary name first: a voice is either whole or not there.
fn write(voice: &VoiceFile, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be created", folder.display()))?;
    let partial = folder.join(format!(".voice.{}.partial", std::process::id()));
    voice.write(&partial)?;
    fs::rename(&partial, path).with_context(|| format!("{}: cannot be written", path.display()))
}

fn print(path: &Path, voice: &VoiceFile, json: bool) -> Result<()> {
    Ok(print_line(if json { format!("{:#}", as_json(path, voice)) } else { as_text(path, voice) })?)
}

fn as_text(path: &Path, voice: &VoiceFile) -> String {
    let seconds = voice.seconds();
    let mixed = match voice.references.as_slice() {
        [_] => String::new(),
        many => {
            let shares: Vec<String> = many.iter().map(|one| format!("{:.0} %", 100.0 * one.weight)).collect();
            format!(", mixed of {}", shares.join(" and "))
        }
    };
    format!("{}: {seconds:.1} s of speech{mixed}, {}", path.display(), voice.features)
}

fn as_json(path: &Path, voice: &VoiceFile) -> serde_json::Value {
    let weights: Vec<f64> = voice.references.iter().map(|one| one.weight).collect();
    json!({
        "voice": path, "seconds": voice.seconds(), "weights": weights, "sample_rate": voice.features.sample_rate,
        "bands": voice.features.n_mels,
    })
}

fn list(folder: Option<&Path>, json: bool) -> Result<()> {
    let files = match folder {
        Some(folder) => files(folder)?,
        None => {
            let speakers = bundled::find().map(|bundled| bundled.speakers());
            let there = [Some(FOLDER.into()), speakers].into_iter().flatten().filter(|folder| folder.is_dir());
            there.map(|folder| files(&folder)).collect::<Result<Vec<_>>>()?.concat()
        }
    };
    let voices: Vec<(PathBuf, Result<VoiceFile>)> =
        files.into_iter().map(|path| (path.clone(), VoiceFile::read(&path))).collect();
    if json {
        let all: Vec<_> = voices.iter().filter_map(|(path, v)| v.as_ref().ok().map(|v| as_json(path, v))).collect();
        return Ok(print_line(format!("{:#}", json!({ "voices": all })))?);
    }
    for (path, voice) in &voices {
        print_line(match voice {
            Ok(voice) => as_text(path, voice),
            Err(error) => error.to_string(),
        })?;
    }
    if voices.is_empty() {
        say(format!("{}: no voices in it", folder.unwrap_or(Path::new(FOLDER)).display()));
    }
    Ok(())
}

/// The voice files of a folder, by name.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let missing = || format!("{}: no such folder", folder.display());
    let entries = fs::read_dir(folder).hint("`myxtts voice make` makes voices").with_context(missing)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    files.sort();
    Ok(files)
}
