//! `myxtts export`

use super::{speaking, voice};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::export::{ExportedVoice, Files, OWN, Options, Verified, require_distinct, verify, write_weights};
use crate::model::graph::Precision;
use crate::synth::bundled_vocoder;
use anyhow::{Result, bail};
use cli::export::{Args, Format};
use cli::flags::checkpoint_or_bundled;
use cli::{print_line, say};
use host::error::hinted;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    let checkpoint = checkpoint_or_bundled(args.checkpoint.as_deref())?;
    let config = Checkpoint::open(&checkpoint)?.of_kind(RunKind::Voice)?.config;
    let vocoder = args.vocoder.clone().or_else(|| bundled_vocoder(&config));
    match args.format {
        Format::Onnx => {
            let vocoder = vocoder.ok_or_else(|| {
                let fact = "the bundled vocoder takes other frames than this voice makes";
                hinted(fact, "--vocoder DIR names one; `myxtts train-vocoder` trains it")
            })?;
            write_graph(args, &checkpoint, &vocoder)
        }
        Format::Safetensors => write_tensors(args, &checkpoint, vocoder.as_deref()),
    }
}

fn write_graph(args: &Args, checkpoint: &Path, vocoder: &Path) -> Result<ExitCode> {
    let voices = chosen(&args.voices)?;
    let named: Vec<(String, Option<&Path>)> =
        voices.iter().map(|(name, file)| (name.clone(), file.as_deref())).collect();
    let exported = ExportedVoice::open(checkpoint, vocoder, args.language.as_deref(), &named)?;
    let precision = match (args.fp16, args.int8) {
        (true, _) => Precision::Half,
        (_, true) => Precision::Int8,
        _ => Precision::Full,
    };
    let (sampling, reference_encoder) = (speaking::sampling(&args.sampling), args.reference_encoder);
    let options = Options { sampling, precision, reference_encoder };
    let files = Files::beside(args.output.as_deref().unwrap_or(Path::new("voice.onnx")));
    files.check(&exported)?;
    let graph = exported.graph(&options, false)?.bytes;
    let reference = reference_encoder.then(|| exported.reference_graph()).transpose()?;
    files.write(&exported, &options, &graph, reference.as_deref())?;
    let verified = args.verify.then(|| verify(&exported, &options, &args.python)).transpose()?;
    let names: Vec<&str> = voices.iter().map(|(name, _)| name.as_str()).collect();
    let made =
        Made { files: &files, exported: &exported, voices: &names, bytes: graph.len(), verified: verified.as_ref() };
    print_line(if args.json { made.json() } else { made.text() })?;
    let differs = verified.and_then(|verified| verified.difference).is_some_and(|difference| !difference.is_small());
    if differs {
        say("the file does not speak as the voice does: a fault of this program, please report it");
    }
    Ok(ExitCode::from(u8::from(differs)))
}

fn write_tensors(args: &Args, checkpoint: &Path, vocoder: Option<&Path>) -> Result<ExitCode> {
    let speaks = [
        (!args.voices.is_empty(), "--voices"),
        (args.int8, "--int8"),
        (args.verify, "--verify"),
        (args.reference_encoder, "--reference-encoder"),
        (args.language.is_some(), "--language"),
    ];
    if let Some((_, flag)) = speaks.iter().find(|(given, _)| *given) {
        bail!("{flag} is for files that speak: --format onnx");
    }
    let path = args.output.as_deref().unwrap_or(Path::new("voice.safetensors"));
    let tensors = write_weights(checkpoint, vocoder, args.fp16, path)?;
    let megabytes = std::fs::metadata(path)?.len() as f64 / 1e6;
    print_line(match args.json {
        true => format!("{:#}", json!({ "output": path, "tensors": tensors, "megabytes": megabytes })),
        false => format!("{}: {megabytes:.1} MB, {tensors} tensors", path.display()),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Names and files of the voices that were asked for; a folder stands for those in it.
fn chosen(asked: &[PathBuf]) -> Result<Vec<(String, Option<PathBuf>)>> {
    if asked.is_empty() {
        return Ok(vec![(OWN.into(), None)]);
    }
    let mut chosen = Vec::new();
    for name in asked {
        if name.as_os_str() == OWN {
            chosen.push((OWN.into(), None));
            continue;
        }
        let files = if name.is_dir() { voice::files(name)? } else { vec![voice::find(name)] };
        if files.is_empty() {
            return Err(hinted(format!("{}: no voices in it", name.display()), "`myxtts voice make` makes them"));
        }
        let called = |file: PathBuf| (file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), Some(file));
        chosen.extend(files.into_iter().map(called));
    }
    require_distinct(&chosen.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())?;
    Ok(chosen)
}

/// What was written, to be told.
struct Made<'a> {
    files: &'a Files,
    exported: &'a ExportedVoice,
    voices: &'a [&'a str],
    bytes: usize,
    verified: Option<&'a Verified>,
}

impl Made<'_> {
    fn text(&self) -> String {
        let mut text = format!(
            "{}: {:.1} MB, {:.1} M weights, {} ({})",
            self.files.graph.display(),
            self.bytes as f64 / 1e6,
            self.exported.parameters() as f64 / 1e6,
            match self.voices {
                [_] => "one voice".to_owned(),
                many => format!("{} voices: {}", many.len(), many.join(", ")),
            },
            self.exported.language(),
        );
        if let Some(found) = self.verified {
            let compared = match found.difference {
                Some(difference) => {
                    let verdict = if difference.is_small() { "as the voice speaks" } else { "not as the voice speaks" };
                    format!(
                        "{verdict}: mel frames within {:.1e}, sound within {:.0} dB",
                        difference.mel, difference.audio_db
                    )
                }
                None => "it runs; products of 8 bits are not compared sample by sample".to_owned(),
            };
            let (version, factor) = (&found.onnxruntime, found.real_time_factor);
            text += &format!("\nonnxruntime {version}: {compared}; real-time factor {factor:.3} on one core");
        }
        text
    }

    fn json(&self) -> String {
        let verified = self.verified.map(|found| {
            json!({
                "onnxruntime": found.onnxruntime,
                "mel": found.difference.map(|difference| difference.mel),
                "audio_db": found.difference.map(|difference| difference.audio_db),
                "same": found.difference.map(|difference| difference.is_small()),
                "real_time_factor": found.real_time_factor,
            })
        });
        let made = json!({
            "output": self.files.graph, "settings": self.files.settings, "tokens": self.files.tokens, "bytes": self.bytes,
            "parameters": self.exported.parameters(), "voices": self.voices, "language": self.exported.language(),
            "verified": verified,
        });
        format!("{made:#}")
    }
}
