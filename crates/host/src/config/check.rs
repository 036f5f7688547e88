//! Rules between keys. The range of a single key stands in its section; whether a GPU and its memory exist is checked
//! where devices are known.

use super::error::{Error, Wrong};
use super::layer::Layer;
use super::training::device_index;
use super::{Config, Durations, Schedule};

/// Multiples of 8 up to 256 are what flash attention takes; rotary positions need an even number anyway.
const HEAD_CHANNELS_STEP: i64 = 8;
const HEAD_CHANNELS_MAX: i64 = 256;

/// A rule that is broken: the keys that it is about, and what is wrong.
type Finding = Option<(&'static [&'static str], Wrong)>;

const RULES: [fn(&Config) -> Finding; 12] =
    [text_heads, decoder_heads, hop, bands, band_edges, splits, durations, warmup, roles, device, ranks, caps];

/// Every rule that is broken, but those about keys whose values were refused already.
pub(super) fn contradictions(config: &Config, given: &Layer) -> Vec<Error> {
    // Of a key that is wrong already, nothing more can be said.
    let mut blamed = Vec::new();
    let mut errors = Vec::new();
    for (names, wrong) in RULES.iter().filter_map(|rule| rule(config)) {
        if !names.iter().any(|name| given.is_refused(name) || blamed.contains(name)) {
            errors.push(Error::invalid(given.blame(names), wrong));
        }
        blamed.extend(names);
    }
    errors
}

fn text_heads(config: &Config) -> Finding {
    Some((&["text_dim", "text_heads"], heads("text", config.model.text_dim, config.model.text_heads)?))
}

fn decoder_heads(config: &Config) -> Finding {
    Some((&["decoder_dim", "decoder_heads"], heads("decoder", config.model.decoder_dim, config.model.decoder_heads)?))
}

fn heads(part: &str, dim: i64, heads: i64) -> Option<Wrong> {
    let channels = dim / heads;
    let fits = dim % heads == 0 && channels % HEAD_CHANNELS_STEP == 0 && channels <= HEAD_CHANNELS_MAX;
    let fact = format!("`{part}_dim` {dim} does not suit `{part}_heads` {heads}");
    let accepted = format!("a multiple of {HEAD_CHANNELS_STEP} up to {HEAD_CHANNELS_MAX} per head");
    (!fits).then(|| Wrong::accepted(fact, accepted))
}

fn hop(config: &Config) -> Finding {
    let (hop, n_fft) = (config.model.hop_length, config.model.n_fft);
    // Half a window must end inside the gap between packed utterances.
    let (low, high) = (n_fft / (2 * super::GAP as i64), n_fft / 2);
    let fits = n_fft % hop == 0 && (low..=high).contains(&hop);
    let fact = format!("`hop_length` {hop} does not suit `n_fft` {n_fft}");
    let wrong = || Wrong::accepted(fact, format!("a power of two from {low} to {high}"));
    (!fits).then(|| (&["hop_length", "n_fft"][..], wrong()))
}

fn bands(config: &Config) -> Finding {
    let (n_mels, n_fft) = (config.model.n_mels, config.model.n_fft);
    let fact = format!("`n_mels` {n_mels} is more than `n_fft` {n_fft} can resolve");
    let wrong = || Wrong::accepted(fact, format!("at most {}", n_fft / 2));
    (n_mels > n_fft / 2).then(|| (&["n_mels", "n_fft"][..], wrong()))
}

fn band_edges(config: &Config) -> Finding {
    let nyquist = f64::from(config.data.sample_rate) / 2.0;
    let (low, high) = (config.model.f_min, config.model.f_max.unwrap_or(nyquist));
    if high > nyquist {
        let fact = format!("`f_max` {high} is above half the sample rate");
        return Some((&["f_max", "sample_rate"], Wrong::accepted(fact, format!("at most {nyquist}, or null"))));
    }
    let wrong = || Wrong::accepted(format!("`f_min` {low} leaves no band"), format!("below {high}"));
    (low >= high).then(|| (&["f_min", "f_max", "sample_rate"][..], wrong()))
}

fn splits(config: &Config) -> Finding {
    let (train, val) = (config.data.train_split, config.data.val_split);
    let fact = format!("`train_split` {train} and `val_split` {val} together exceed 1");
    // 0.7 + 0.3 may exceed 1 by a rounding error.
    (train + val > 1.0 + 1e-9).then(|| (&["train_split", "val_split"][..], fact.into()))
}

fn durations(config: &Config) -> Finding {
    let homeless = config.data.durations == Durations::Frozen && !config.data.enable_caching;
    let fact = "`durations: frozen` are kept in the cache, and `enable_caching` is false";
    homeless.then(|| (&["durations", "enable_caching"][..], fact.to_owned().into()))
}

fn warmup(config: &Config) -> Finding {
    let missing = config.training.schedule == Schedule::Noam && config.training.warmup() == 0;
    let fact = "`schedule: noam` is defined by its warm-up, and `warmup_steps` is 0";
    missing.then(|| (&["schedule", "warmup_steps"][..], Wrong::accepted(fact, "at least 1")))
}

fn roles(config: &Config) -> Finding {
    let alone = config.training.data_gpu.is_some() && config.training.model_gpu.is_none();
    let fact = "`data_gpu` is set without `model_gpu`";
    let wrong = || Wrong::hinted(fact, "both may name the same GPU; for one GPU, use `device`");
    alone.then(|| (&["data_gpu", "model_gpu"][..], wrong()))
}

fn device(config: &Config) -> Finding {
    let device = config.training.device.as_str();
    let gpus = config.training.model_gpu.as_ref()?;
    let contradicts = device == "cpu" || device_index(device).is_some_and(|index| gpus.iter().any(|gpu| gpu != index));
    let named = gpus.iter().map(|gpu| gpu.to_string()).collect::<Vec<_>>().join(",");
    let fact = format!("`device` is {device}, but `model_gpu` is {named}");
    let accepted = if gpus.iter().len() == 1 { format!("auto, cuda or cuda:{named}") } else { "auto or cuda".into() };
    contradicts.then(|| (&["device", "model_gpu"][..], Wrong::accepted(fact, accepted)))
}

fn ranks(config: &Config) -> Finding {
    let (ranks, gpus) = (config.training.ranks?, config.training.model_gpu.as_ref()?.iter().len());
    let fact = format!("`ranks` is {ranks}, but `model_gpu` names {gpus} GPUs");
    let wrong = || Wrong::hinted(fact, "one GPU for each rank; leave out `ranks`");
    (ranks != gpus).then(|| (&["ranks", "model_gpu"][..], wrong()))
}

fn caps(config: &Config) -> Finding {
    let training = &config.training;
    let capped = training.data_gpu_memory.is_some() || training.model_gpu_memory.is_some();
    let fact = "a memory cap is set, but memory isolation is off";
    let hint = "set `enable_memory_isolation: true`, or remove `data_gpu_memory` and `model_gpu_memory`";
    let names = &["data_gpu_memory", "model_gpu_memory", "enable_memory_isolation"][..];
    (capped && !training.enable_memory_isolation).then(|| (names, Wrong::hinted(fact, hint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explained;
    use std::path::Path;

    fn message(text: &str) -> String {
        let error = Config::parse(text, Path::new("a.yaml")).err();
        error.map(|error| Explained::of(&error).to_string()).unwrap_or_default()
    }

    #[test]
    fn contradictions_name_the_line_and_the_way_out() {
        let cases = [
            ("model:\n  text_heads: 7\n", "a.yaml:2: `text_dim` 256 does not suit `text_heads` 7"),
            ("model:\n  text_dim: 60\n  text_heads: 3\n", "a.yaml:3: `text_dim` 60 does not suit `text_heads` 3"),
            ("model: {decoder_heads: 1}", "accepted: a multiple of 8 up to 256 per head"),
            ("model: {n_fft: 1000}", "`n_fft` is 1000; accepted: a power of two"),
            (
                "model: {hop_length: 300}",
                "`hop_length` 300 does not suit `n_fft` 1024; accepted: a power of two from 128 to 512",
            ),
            ("model: {hop_length: 1024}", "accepted: a power of two from 128 to 512"),
            ("model: {n_fft: 256, hop_length: 64, n_mels: 200}", "accepted: at most 128"),
            ("model: {f_max: 12000}", "accepted: at most 11025, or null"),
            ("model: {f_min: 8000, f_max: 7600}", "`f_min` 8000 leaves no band; accepted: below 7600"),
            ("data: {durations: frozen, enable_caching: false}", "`durations: frozen` are kept in the cache"),
            ("data: {train_split: 0.9, val_split: 0.2}", "`train_split` 0.9 and `val_split` 0.2 together exceed 1"),
            ("training: {schedule: noam, warmup_steps: 0}", "`warmup_steps` is 0"),
            ("training:\n  data_gpu: 0\n", "a.yaml:2: `data_gpu` is set without `model_gpu`"),
            ("training: {ranks: 3, model_gpu: [0, 1]}", "`ranks` is 3, but `model_gpu` names 2 GPUs"),
            ("training: {device: 'cuda:0', model_gpu: [0, 1]}", "`model_gpu` is 0,1; accepted: auto or cuda"),
            ("training: {device: cpu, data_gpu: 0, model_gpu: 1}", "accepted: auto, cuda or cuda:1"),
            ("training: {device: 'cuda:0', data_gpu: 0, model_gpu: 1}", "accepted: auto, cuda or cuda:1"),
            (
                "training:\n  model_gpu_memory: 4096\n",
                "a.yaml:2: a memory cap is set, but memory isolation is off\nhint:",
            ),
        ];
        for (text, expected) in cases {
            let found = message(text);
            assert!(found.contains(expected), "{text:?} gave {found:?}");
        }
    }

    #[test]
    fn borderline_values_pass() {
        for text in [
            "data: {train_split: 0.7, val_split: 0.3}",
            "data: {train_split: 1, val_split: 0}",
            "model: {hop_length: 512}",
            "model: {f_max: 11025}",
            "model: {decoder_heads: 2}",
            "training: {device: 'cuda:1', data_gpu: 0, model_gpu: 1}",
            "training: {enable_memory_isolation: true, model_gpu_memory: 256}",
            "training: {data_gpu: 0, model_gpu: 0}",
        ] {
            assert_eq!(message(text), "", "{text}");
        }
    }
}
