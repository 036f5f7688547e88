//! A checkpoint as one safetensors file: the weights under the names that `--init-from` reads, and all else that a program
//! needs to build on them as text in its header.

use super::files::into_place;
use crate::checkpoint::voice::{self, VoiceFile};
use crate::checkpoint::{Checkpoint, RunKind, STATE, TOKENIZER};
use anyhow::{Context, Result, anyhow};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchx::named_parameters;

/// Writes the voice, the vocoder where one is named (under `vocoder.`), and the frames of the checkpoint's own voice (under
/// `voice.`); returns how many tensors.
pub fn write_weights(checkpoint: &Path, vocoder: Option<&Path>, half: bool, path: &Path) -> Result<usize> {
    let checkpoint = Checkpoint::open(checkpoint)?.of_kind(RunKind::Voice)?;
    let (store, _voice) = checkpoint.voice(Device::Cpu, Kind::Float)?;
    let mut tensors = named_parameters(&store);
    let mut texts = texts(&checkpoint, "")?;
    if let Some(vocoder) = vocoder {
        let (store, opened) = opened_vocoder(vocoder, &checkpoint)?;
        tensors.extend(named_parameters(&store).into_iter().map(|(name, weight)| (format!("vocoder.{name}"), weight)));
        texts.extend(self::texts(&opened, "vocoder.")?);
    }
    if half {
        tensors.iter_mut().for_each(|(_, weight)| *weight = weight.to_kind(Kind::Half));
    }
    if checkpoint.config.model.clones() {
        let own = VoiceFile::read(&checkpoint.folder().join(voice::FILE))?;
        let frames = own.references.iter().enumerate();
        tensors.extend(frames.map(|(i, reference)| (format!("voice.mel.{i}"), reference.mel.to_kind(Kind::Half))));
        let shares: Vec<String> = own.references.iter().map(|reference| reference.weight.to_string()).collect();
        texts.insert("voice.weights".into(), shares.join(" "));
    }
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, tensor)| bytes(tensor)).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, tensor), bytes)| {
        let dtype = if tensor.kind() == Kind::Half { Dtype::F16 } else { Dtype::F32 };
        let shape = tensor.size().iter().map(|size| *size as usize).collect();
        let view = TensorView::new(dtype, shape, bytes).map_err(|error| anyhow!("{name}: {error:?}"))?;
        Ok((name.clone(), view))
    });
    let views: Vec<(String, TensorView)> = views.collect::<Result<_>>()?;
    let whole = safetensors::serialize(views, &Some(texts)).map_err(|error| anyhow!("safetensors: {error:?}"))?;
    into_place(path, |partial| Ok(fs::write(partial, &whole)?))?;
    Ok(tensors.len())
}

fn opened_vocoder(path: &Path, voice: &Checkpoint) -> Result<(VarStore, Checkpoint)> {
    use crate::synth::VocoderBackend;
    let backend = VocoderBackend::open(Some(path), &voice.config, Device::Cpu)?;
    let VocoderBackend::Trained { store, .. } = backend else { return Err(anyhow!("a vocoder was named")) };
    Ok((store, Checkpoint::open(path)?))
}

/// The small files of a checkpoint, word for word.
fn texts(checkpoint: &Checkpoint, prefix: &str) -> Result<HashMap<String, String>> {
    let read = |name: &str, path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
        Ok((format!("{prefix}{name}"), text))
    };
    let folder = checkpoint.folder();
    [("config", checkpoint.config_file()), ("tokenizer", folder.join(TOKENIZER)), ("state", folder.join(STATE))]
        .into_iter()
        .map(|(name, path)| read(name, path))
        .collect()
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let tensor = tensor.detach().to_device(Device::Cpu).contiguous();
    let mut bytes = vec![0u8; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}
