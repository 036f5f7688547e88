//! Built-in values of every key: the ground that files and flags build on.

use super::layer::Layer;
use super::{
    CacheContent, Config, CorpusFormat, Data, DataDevice, Durations, LongClips, MaxFailures, Model, OptimizationLevel,
    Precision, Schedule, Size, TokenizerKind, Training,
};
use serde::de::DeserializeOwned;

/// The preset that the given size and level choose. Heads have 64 channels, which flash attention likes best.
pub(super) fn choose(given: &Layer) -> Config {
    let size = parsed(given, "size").unwrap_or_default();
    let level = parsed(given, "optimization_level").unwrap_or_default();
    Config { model: model(size), training: training(size, level), data: data(given, level) }
}

fn parsed<T: DeserializeOwned>(given: &Layer, name: &str) -> Option<T> {
    given.value(name).and_then(|value| serde_json::from_value(value.clone()).ok())
}

fn model(size: Size) -> Model {
    let (text_dim, text_layers, text_heads, decoder_dim, decoder_layers, decoder_heads) = match size {
        Size::Tiny => (192, 3, 3, 256, 4, 4),
        Size::Small => (256, 4, 4, 320, 7, 5),
        Size::Normal => (320, 6, 5, 512, 6, 8),
        Size::Big => (512, 6, 8, 640, 9, 10),
    };
    let (vocoder_dim, vocoder_layers) = match size {
        Size::Tiny => (256, 6),
        Size::Small | Size::Normal => (384, 8),
        Size::Big => (512, 8),
    };
    Model {
        size,
        n_mels: 80,
        n_fft: 1024,
        hop_length: 256,
        f_min: 0.0,
        f_max: None,
        text_dim,
        text_layers,
        text_heads,
        decoder_dim,
        decoder_layers,
        decoder_heads,
        context_share: 0.7,
        vocoder_dim,
        vocoder_layers,
        dropout: 0.05,
        condition_dropout: 0.1,
        draws_per_item: 1,
        enable_gradient_checkpointing: false,
    }
}

fn training(size: Size, level: OptimizationLevel) -> Training {
    Training {
        device: "auto".into(),
        optimization_level: level,
        mixed_precision: level != OptimizationLevel::Basic,
        precision: Precision::Auto,
        deterministic_kernels: false,
        enable_xla: level != OptimizationLevel::Basic,
        seed: 1234,
        epochs: 1000,
        steps: None,
        learning_rate: match size {
            Size::Tiny => 1e-3,
            Size::Small | Size::Normal => 5e-4,
            Size::Big => 3e-4,
        },
        schedule: Schedule::Cosine,
        warmup_steps: 500,
        weight_decay: 0.01,
        beta1: 0.9,
        beta2: 0.98,
        gradient_clip_norm: 1.0,
        ema_decay: 0.999,
        gradient_accumulation_steps: 1,
        log_step: 10,
        val_step: 500,
        save_step: 1000,
        patience: None,
        keep_checkpoints: 3,
        checkpoint_dir: "./checkpoints".into(),
        tensorboard_log_dir: None,
        data_gpu: None,
        model_gpu: None,
        data_device: DataDevice::Auto,
        enable_memory_isolation: false,
        data_gpu_memory: None,
        model_gpu_memory: None,
        model_start_delay: 2.0,
        vocoder_learning_rate: 5e-4,
        vocoder_segment_frames: 64,
        vocoder_mel_weight: 45.0,
    }
}

fn data(given: &Layer, level: OptimizationLevel) -> Data {
    Data {
        dataset_path: None,
        val_data: None,
        format: CorpusFormat::Auto,
        speaker_pattern: None,
        train_split: share(0.95, parsed(given, "val_split")),
        val_split: share(0.05, parsed(given, "train_split")),
        language: "auto".into(),
        tokenizer: TokenizerKind::Auto,
        sample_rate: 22_050,
        trim_silence: true,
        normalize_audio: true,
        loudness_lufs: -20.0,
        enable_caching: true,
        cache_dir: None,
        cache_content: CacheContent::Pcm,
        max_failures: MaxFailures::Clips(20),
        batch_size: 32,
        frame_budget: None,
        max_text_length: 400,
        max_mel_frames: 800,
        long_clips: LongClips::Refuse,
        durations: Durations::Search,
        pad_to_fixed_length: false,
        augment_noise_snr_db: None,
        augment_speed: 0.0,
        augment_pitch_semitones: 0.0,
        deterministic: level != OptimizationLevel::Experimental,
        num_workers: None,
        use_native_loading: true,
        prefetch_buffer_size: None,
        prefetch_to_gpu: true,
        enhanced_gpu_prefetch: true,
        pipeline_buffer_size: 3,
        optimize_cpu_gpu_overlap: true,
    }
}

/// A split makes room when only the other one is given, rounded so that `1 - 0.9` prints as `0.1`.
fn share(usual: f64, other: Option<f64>) -> f64 {
    let rest = other.map_or(1.0, |other| ((1.0 - other) * 1e9).round() / 1e9);
    usual.min(rest)
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;
    use clap::ValueEnum;
    use std::path::Path;

    fn of(text: &str) -> Config {
        choose(&Layer::parse(text, Path::new("a.yaml"), &mut Vec::new()))
    }

    #[test]
    fn every_size_and_level_is_accepted_and_consistent() {
        for size in Size::value_variants() {
            for level in OptimizationLevel::value_variants() {
                let names = (size.to_possible_value().unwrap(), level.to_possible_value().unwrap());
                let (size_name, level_name) = (names.0.get_name(), names.1.get_name());
                let config =
                    of(&format!("model: {{size: {size_name}}}\ntraining: {{optimization_level: {level_name}}}"));
                assert_eq!((config.model.size, config.training.optimization_level), (*size, *level));
                assert!(check::contradictions(&config, &Layer::default()).is_empty());
            }
        }
    }

    #[test]
    fn levels_set_the_three_switches() {
        let switches = |level: &str| {
            let config = of(&format!("training: {{optimization_level: {level}}}"));
            (config.training.mixed_precision, config.training.enable_xla, config.data.deterministic)
        };
        assert_eq!(switches("basic"), (false, false, true));
        assert_eq!(switches("enhanced"), (true, true, true));
        assert_eq!(switches("experimental"), (true, true, false));
    }

    #[test]
    fn one_split_makes_room_for_the_other() {
        assert_eq!(of("data: {val_split: 0.1}").data.train_split, 0.9);
        assert_eq!(of("data: {train_split: 0.99}").data.val_split, 0.01);
        assert_eq!(of("data: {train_split: 0.5}").data.val_split, 0.05);
    }
}
