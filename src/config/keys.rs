//! Every key there is: its section, what it accepts, its other names. Keys are known by name across sections,
//! because configs of older trainers keep `mixed_precision` in `data` or `sample_rate` in `model`.

use super::accept::{Accepts, is_device, is_language_or_auto, is_path, is_pattern};
use std::cmp::Reverse;
use std::ops::Bound::{self, Excluded, Included};

pub(super) struct Key {
    pub name: &'static str,
    pub accepts: Accepts,
    /// Null is a value of its own, mostly "chosen at run time".
    pub nullable: bool,
    pub aliases: &'static [&'static str],
    /// The flag, where it is not `--` and the name with dashes.
    flag: Option<&'static str>,
}

pub(super) const SECTIONS: [(&str, &[Key]); 3] = [("model", MODEL), ("training", TRAINING), ("data", DATA)];

const MODEL: &[Key] = &[
    one_of("size", &["tiny", "small", "normal", "big"]).flag("--model-size"),
    whole("n_mels", 8, 512),
    whole("n_fft", 64, 16_384),
    whole("hop_length", 16, 8_192),
    real("f_min", Included(0.0), Excluded(96_000.0)),
    real("f_max", Excluded(0.0), Included(96_000.0)).or_null(),
    whole("text_dim", 8, 8_192),
    whole("text_layers", 1, 128),
    whole("text_heads", 1, 128),
    whole("decoder_dim", 8, 8_192),
    whole("decoder_layers", 3, 128),
    whole("decoder_heads", 1, 128),
    real("context_share", Included(0.0), Included(0.9)),
    whole("vocoder_dim", 8, 8_192),
    whole("vocoder_layers", 1, 128),
    real("dropout", Included(0.0), Excluded(1.0)),
    real("condition_dropout", Included(0.0), Excluded(1.0)),
    whole("draws_per_item", 1, 64),
    switch("enable_gradient_checkpointing"),
];

const TRAINING: &[Key] = &[
    text("device", is_device, "auto, cpu, cuda or cuda:N"),
    one_of("optimization_level", &["basic", "enhanced", "experimental"]),
    switch("mixed_precision"),
    one_of("precision", &["auto", "bf16", "f16"]),
    switch("deterministic_kernels"),
    switch("enable_xla").alias(&["enable_graphs"]),
    // LibTorch takes seeds as signed 64-bit numbers.
    whole("seed", 0, i64::MAX as u64),
    whole("epochs", 1, 1_000_000_000),
    whole("steps", 1, 1_000_000_000_000).or_null(),
    real("learning_rate", Excluded(0.0), Included(1.0)).alias(&["lr"]).flag("--lr"),
    one_of("schedule", &["cosine", "noam", "constant"]).alias(&["scheduler"]),
    whole("warmup_steps", 0, 10_000_000),
    real("weight_decay", Included(0.0), Included(1.0)),
    real("beta1", Included(0.0), Excluded(1.0)),
    real("beta2", Included(0.0), Excluded(1.0)),
    real("gradient_clip_norm", Excluded(0.0), Included(1_000_000.0)),
    real("ema_decay", Included(0.0), Excluded(1.0)),
    whole("gradient_accumulation_steps", 1, 1_024).alias(&["gradient_accumulation"]).flag("--grad-accum"),
    whole("log_step", 1, 1_000_000_000),
    whole("val_step", 1, 1_000_000_000),
    whole("save_step", 1, 1_000_000_000),
    whole("patience", 1, 1_000_000).or_null(),
    whole("keep_checkpoints", 1, 1_000_000),
    path("checkpoint_dir"),
    path("tensorboard_log_dir").or_null(),
    whole("data_gpu", 0, 63).or_null(),
    whole("model_gpu", 0, 63).or_null(),
    one_of("data_device", &["auto", "cpu"]),
    switch("enable_memory_isolation"),
    whole("data_gpu_memory", 256, 1_048_576).or_null(),
    whole("model_gpu_memory", 256, 1_048_576).or_null(),
    real("model_start_delay", Included(0.0), Included(3_600.0)),
    real("vocoder_learning_rate", Excluded(0.0), Included(1.0)),
    whole("vocoder_segment_frames", 16, 8_192),
    real("vocoder_mel_weight", Excluded(0.0), Included(1_000_000.0)),
];

const DATA: &[Key] = &[
    path("dataset_path").or_null().alias(&["train_data"]).flag("--train-data"),
    path("val_data").or_null(),
    one_of("format", &["auto", "ljspeech", "two-file", "piper", "vctk", "common-voice", "manifest"]),
    text("speaker_pattern", is_pattern, r"a regular expression whose first group is the speaker, such as ^(p\d+)_")
        .or_null(),
    real("train_split", Excluded(0.0), Included(1.0)),
    real("val_split", Included(0.0), Excluded(1.0)),
    text("language", is_language_or_auto, "auto, or a language code such as en or pt-br"),
    one_of("tokenizer", &["auto", "characters", "phonemes"]),
    whole("sample_rate", 8_000, 192_000),
    switch("trim_silence"),
    switch("normalize_audio"),
    real("loudness_lufs", Included(-40.0), Included(-5.0)),
    switch("enable_caching"),
    path("cache_dir").or_null(),
    one_of("cache_content", &["pcm", "mel"]),
    Key::new("max_failures", Accepts::CountOrPercent),
    whole("batch_size", 1, 8_192),
    whole("frame_budget", 64, 10_000_000).or_null(),
    // The language tag takes one place, so a text needs two.
    whole("max_text_length", 2, 100_000),
    whole("max_mel_frames", 16, 100_000),
    one_of("long_clips", &["refuse", "crop", "split"]),
    one_of("durations", &["search", "frozen"]),
    switch("pad_to_fixed_length"),
    real("augment_noise_snr_db", Included(-20.0), Included(100.0)).or_null(),
    real("augment_speed", Included(0.0), Included(0.5)),
    real("augment_pitch_semitones", Included(0.0), Included(12.0)),
    switch("deterministic"),
    whole("num_workers", 1, 256).or_null(),
    switch("use_native_loading").alias(&["use_tf_native_loading"]),
    whole("prefetch_buffer_size", 1, 256).or_null(),
    switch("prefetch_to_gpu"),
    switch("enhanced_gpu_prefetch"),
    whole("pipeline_buffer_size", 1, 64).flag("--buffer-size"),
    switch("optimize_cpu_gpu_overlap"),
];

impl Key {
    const fn new(name: &'static str, accepts: Accepts) -> Self {
        Self { name, accepts, nullable: false, aliases: &[], flag: None }
    }

    const fn or_null(self) -> Self {
        Self { nullable: true, ..self }
    }

    const fn alias(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn flag(self, flag: &'static str) -> Self {
        Self { flag: Some(flag), ..self }
    }

    pub fn flag_name(&self) -> String {
        self.flag.map_or_else(|| format!("--{}", self.name.replace('_', "-")), String::from)
    }

    pub fn describe(&self) -> String {
        self.accepts.describe() + if self.nullable { ", or null" } else { "" }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

const fn switch(name: &'static str) -> Key {
    Key::new(name, Accepts::Switch)
}

const fn whole(name: &'static str, min: u64, max: u64) -> Key {
    Key::new(name, Accepts::Whole(min, max))
}

const fn real(name: &'static str, low: Bound<f64>, high: Bound<f64>) -> Key {
    Key::new(name, Accepts::Real(low, high))
}

const fn one_of(name: &'static str, names: &'static [&'static str]) -> Key {
    Key::new(name, Accepts::OneOf(names))
}

const fn text(name: &'static str, fits: fn(&str) -> bool, what: &'static str) -> Key {
    Key::new(name, Accepts::Text(fits, what))
}

const fn path(name: &'static str) -> Key {
    text(name, is_path, "a path (in quotes, if it looks like a number)")
}

/// The key of this name or alias and the section it lives in.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static Key)> {
    let mut all = SECTIONS.iter().flat_map(|(section, keys)| keys.iter().map(|key| (*section, key)));
    all.find(|(_, key)| key.names().any(|known| known == name))
}

pub(super) fn suggest_key(name: &str) -> String {
    let names = SECTIONS.iter().flat_map(|(_, keys)| keys.iter().flat_map(Key::names));
    suggest(name, names, "key")
}

pub(super) fn suggest_section(name: &str) -> String {
    suggest(name, SECTIONS.iter().map(|(section, _)| *section), "section")
}

/// A question where the spelling is close, a plain fact where it is not.
fn suggest(name: &str, known: impl Iterator<Item = &'static str>, kind: &str) -> String {
    let folded = name.to_lowercase().replace('-', "_");
    let edits = |other: &&str| strsim::damerau_levenshtein(&folded, other);
    let likeness = |other: &str| (strsim::jaro_winkler(&folded, other) * 1e6) as u64;
    let Some(nearest) = known.min_by_key(|other| (edits(other), Reverse(likeness(other)))) else {
        return String::new();
    };
    if edits(&nearest) <= (name.len() / 3).max(2) {
        format!("did you mean `{nearest}`?")
    } else {
        format!("the nearest known {kind} is `{nearest}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_aliases_are_unique_across_sections() {
        let mut seen = HashSet::new();
        for (_, keys) in SECTIONS {
            for name in keys.iter().flat_map(Key::names) {
                assert!(seen.insert(name), "{name} twice");
            }
        }
    }

    #[test]
    fn near_names_are_suggested() {
        assert_eq!(suggest_key("batchsize"), "did you mean `batch_size`?");
        assert_eq!(suggest_key("Batch-Size"), "did you mean `batch_size`?");
        assert_eq!(suggest_key("leraning_rate"), "did you mean `learning_rate`?");
        assert_eq!(suggest_section("trainig"), "did you mean `training`?");
        assert!(suggest_key("quite_another_thing").starts_with("the nearest known key is `"));
    }

    #[test]
    fn flags_are_named_as_the_user_types_them() {
        let flag = |name| find(name).map(|(_, key)| key.flag_name());
        assert_eq!(flag("lr").as_deref(), Some("--lr"));
        assert_eq!(flag("max_mel_frames").as_deref(), Some("--max-mel-frames"));
        assert_eq!(flag("pipeline_buffer_size").as_deref(), Some("--buffer-size"));
    }
}
