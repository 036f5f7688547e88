//! The config as its users meet it: layers, shipped files, files of older trainers, and what a checkpoint keeps.

use super::*;
use clap::ValueEnum;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn parse(text: &str) -> Config {
    Config::parse(text, Path::new("a.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name)
}

#[test]
fn the_key_table_lists_exactly_the_fields_of_the_structs() {
    let tree = serde_json::to_value(Config::default()).unwrap();
    for (section, table) in keys::SECTIONS.iter() {
        let fields: BTreeSet<&str> = tree[section].as_object().unwrap().keys().map(String::as_str).collect();
        let listed: BTreeSet<&str> = table.iter().map(|key| key.name).collect();
        assert_eq!(listed, fields, "{section}");
        for key in table {
            let value = &tree[section][key.name];
            assert_eq!(key.take(value).as_ref(), Some(value), "the default {value} of {} is not accepted", key.name);
        }
    }
}

#[test]
fn nothing_given_is_the_default() {
    assert_eq!(Config::resolve(None, Overrides::default()).unwrap(), Config::default());
    assert_eq!(parse(""), Config::default());
}

#[test]
fn flag_over_file_over_preset() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    std::fs::write(&file, "model: {size: big, text_layers: 3}\ntraining: {lr: 2e-4, epochs: 5}\n").unwrap();
    let from_file = Config::resolve(Some(&file), Overrides::default()).unwrap();
    assert_eq!((from_file.model.text_dim, from_file.model.text_layers), (512, 3));

    let mut flags = Overrides::default();
    flags.set("model.size", Some(Size::Tiny)).set("training.epochs", Some(7)).set("data.batch_size", None::<usize>);
    let config = Config::resolve(Some(&file), flags).unwrap();
    // The flag chooses the preset, the file still wins over it, and the flag over the file.
    assert_eq!((config.model.size, config.model.text_dim, config.model.text_layers), (Size::Tiny, 192, 3));
    assert_eq!((config.training.learning_rate, config.training.epochs), (Some(2e-4), Some(7)));
    assert_eq!(config.data.batch_size, 32);
}

#[test]
fn all_that_is_wrong_is_listed_and_nothing_follows_from_a_refused_value() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    let text =
        "model: {n_fft: 1000}\ntraining: {model_gpu: 1, data_gpu: no, lrr: 3}\ndata:\n  batch_size: 0\nstray: 1\n";
    std::fs::write(&file, text).unwrap();
    let wrong = Config::resolve_or_list(Some(&file), Overrides::default()).unwrap_err();
    let said: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let expected =
        ["unknown section `stray`", "`data_gpu` is", "unknown key `lrr`", "`batch_size` is 0", "`n_fft` is 1000"];
    assert!(expected.iter().all(|part| said.iter().any(|line| line.contains(part))), "{said:#?}");
    assert!(!said.iter().any(|line| line.contains("is set without")), "{said:#?}");
}

#[test]
fn a_flag_that_breaks_a_rule_is_named() {
    let mut flags = Overrides::default();
    flags.set("training.data_gpu", Some(0));
    let error = Config::resolve(None, flags).unwrap_err().to_string();
    assert!(error.starts_with("--data-gpu: `data_gpu` is set without `model_gpu`"), "{error}");
}

#[test]
fn every_size_and_level_is_accepted_and_consistent() {
    for size in Size::value_variants() {
        for level in OptimizationLevel::value_variants() {
            let names = (size.to_possible_value().unwrap(), level.to_possible_value().unwrap());
            let (size_name, level_name) = (names.0.get_name(), names.1.get_name());
            let config =
                parse(&format!("model: {{size: {size_name}}}\ntraining: {{optimization_level: {level_name}}}"));
            assert_eq!((config.model.size, config.training.optimization_level), (*size, *level));
            assert!(check::contradictions(&config, &Layer::default()).is_empty());
        }
    }
}

#[test]
fn levels_set_the_three_switches() {
    let switches = |level: &str| {
        let config = parse(&format!("training: {{optimization_level: {level}}}"));
        (config.training.mixed_precision, config.training.enable_xla, config.data.deterministic)
    };
    assert_eq!(switches("basic"), (false, false, true));
    assert_eq!(switches("enhanced"), (true, true, true));
    assert_eq!(switches("experimental"), (true, true, false));
}

#[test]
fn one_split_makes_room_for_the_other() {
    assert_eq!(parse("data: {val_split: 0.1}").data.train_split, 0.9);
    assert_eq!(parse("data: {train_split: 0.99}").data.val_split, 0.01);
    assert_eq!(parse("data: {train_split: 0.5}").data.val_split, 0.05);
}

#[test]
fn held_out_speech_is_never_augmented() {
    let all = keys::SECTIONS.iter().flat_map(|(_, table)| table).filter(|key| key.name.starts_with("augment_"));
    let text: String = all.map(|key| format!("  {}: 0.25\n", key.name)).collect();
    let config = parse(&format!("data:\n{text}"));
    assert_ne!(config, Config::default(), "{text}");
    assert_eq!(config.without_augmentation(), Config::default(), "{text}");
}

/// The keys that configs of older trainers use, in the sections where those keep them.
const OLDER: &str = "
model:
  sample_rate: 22050
  n_mels: 80
  max_text_length: 200
  enable_gradient_checkpointing: true
  size: base
data:
  enable_parallel_batch: true
  enable_map_fusion: true
  batch_size: 56
  num_workers: 18
  prefetch_buffer_size: 12
  pipeline_buffer_size: 100
  use_tf_native_loading: true
  prefetch_to_gpu: true
  enhanced_gpu_prefetch: true
  optimize_cpu_gpu_overlap: true
  pad_to_fixed_length: true
  max_mel_frames: 700
  enable_caching: true
  mixed_precision: false
  enable_graphs: true
  data_gpu: 0
  model_gpu: 1
  sample_rate: 22050
  language: en
  trim_silence: false
  normalize_audio: true
  train_split: 0.9
  val_split: 0.1
training:
  model_start_delay: 1.5
  learning_rate: 1e-4
  epochs: 500
  save_step: 5000
  val_step: 1000
  checkpoint_dir: ./checkpointsmain
";

#[test]
fn a_config_of_an_older_trainer_loads_unchanged() {
    for text in [OLDER, &OLDER.replace("use_tf_native", "use_native").replace("enable_graphs", "enable_xla")] {
        let Config { model, training, data } = parse(text);
        assert!(model.enable_gradient_checkpointing && model.size == Size::Normal);
        assert_eq!((training.mixed_precision, training.enable_xla), (false, true));
        assert_eq!((training.data_gpu, training.model_start_delay), (Some(0), 1.5));
        assert_eq!(training.model_gpu, Some(1.into()));
        assert_eq!((training.learning_rate, training.epochs), (Some(1e-4), Some(500)));
        assert_eq!((training.save_step, training.val_step), (5000, Some(1000)));
        assert_eq!(training.checkpoint_dir, Path::new("./checkpointsmain"));
        assert_eq!((data.batch_size, data.num_workers, data.prefetch_buffer_size), (56, Some(18), Some(12)));
        assert_eq!((data.pipeline_buffer_size, data.max_text_length, data.max_mel_frames), (100, 200, 700));
        assert!(data.use_native_loading && data.pad_to_fixed_length && !data.trim_silence);
    }
}

#[test]
fn default_yaml_explains_every_key_and_equals_the_presets() {
    let path = shipped("default.yaml");
    assert_eq!(Config::load_resolved(&path).unwrap(), Config::default());
    let text = std::fs::read_to_string(path).unwrap();
    for key in keys::SECTIONS.iter().flat_map(|(_, table)| table.iter()) {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{}:", key.name)));
        let line = line.unwrap_or_else(|| panic!("default.yaml lacks {}", key.name));
        assert!(line.contains(" # "), "default.yaml does not explain {}", key.name);
    }
}

#[test]
fn every_shipped_config_loads() {
    for entry in std::fs::read_dir(shipped("")).unwrap() {
        let path = entry.unwrap().path();
        Config::load_resolved(&path).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn some_config() -> impl Strategy<Value = Config> {
    let numbers =
        (prop::option::of(1e-12..1.0f64), prop::option::of(0.0..0.999f64), 0.0..3600.0f64, 0..=i64::MAX as u64);
    let words = ("[a-z]{2,3}(-[A-Za-z0-9]{1,8})?", any::<String>(), prop::option::of(any::<String>()));
    (numbers, words, prop::option::of(1usize..=256), any::<bool>()).prop_map(|(numbers, words, workers, switch)| {
        let path = |text: String| PathBuf::from(format!("p{}", text.replace('\0', "")));
        let mut config = Config::default();
        (
            config.training.learning_rate,
            config.model.dropout,
            config.training.model_start_delay,
            config.training.seed,
        ) = numbers;
        config.data.language = words.0;
        config.training.checkpoint_dir = path(words.1);
        config.data.dataset_path = words.2.map(path);
        config.data.num_workers = workers;
        config.training.mixed_precision = switch;
        config
    })
}

proptest! {
    #[test]
    fn what_is_saved_loads_to_an_equal_config(config in some_config()) {
        prop_assert_eq!(parse(&config.to_yaml()), config);
    }
}
