//! The checks, each a plain function of the settings and the facts. A check that has nothing to say about a run says
//! nothing.

use super::facts::Facts;
use super::{estimate, problem};
use crate::config::{CacheContent, Config, DataDevice, LongClips, MemoryCap, Precision};
use crate::loader::LimitUse;
use crate::tools::devices::CudaGpu;
use crate::tools::report::{Finding, counted};
use indicatif::HumanBytes;

pub type Check = fn(&Config, &Facts) -> Option<Finding>;

pub const CORPUS: &[Check] = &[corpus, sound_limit, text_limit];
pub const LOADING: &[Check] = &[native_loading, workers, host_prefetch, ring, overlap];
pub const BATCHES: &[Check] = &[batch_size, shapes];
pub const STEP: &[Check] = &[graph, precision, logging];
pub const DEVICES: &[Check] = &[devices, device_order, two_devices, data_on_cpu, caps];
pub const CACHE: &[Check] = &[caching, content, folder, space];

/// Utterances in a batch below which a GPU's kernels are mostly launch: 8 of mean length are some 4,600 frames.
const FEW_UTTERANCES: usize = 8;
/// What a build may need besides the features: tables, and shards that are being replaced.
const SPARE: f64 = 1.2;

fn good(code: &'static str, fact: impl Into<String>) -> Option<Finding> {
    Some(Finding::good(code, fact))
}

/// What it costs was not measured.
fn warning(code: &'static str, fact: impl Into<String>, advice: impl Into<String>) -> Option<Finding> {
    Some(Finding::warning(code, 0.0, fact, advice))
}

fn stops(code: &'static str, fact: impl Into<String>, advice: impl Into<String>) -> Option<Finding> {
    Some(Finding::problem(code, 1.0, fact, advice))
}

fn corpus(config: &Config, facts: &Facts) -> Option<Finding> {
    let speech = match &facts.speech {
        Ok(speech) => speech,
        Err(why) => return Some(problem("corpus", why)),
    };
    let fact = format!("{} clips, {:.2} hours", speech.clips, speech.seconds / 3600.0);
    let how = if speech.planned.is_some() { "counted" } else { "estimated" };
    if speech.left_out == 0 {
        return good("corpus", format!("{fact} ({how})"));
    }
    let path = config.data.dataset_path.as_deref().unwrap_or("DIR".as_ref()).display();
    let fact = format!("{fact} ({how}); {} rows of the metadata cannot be used", speech.left_out);
    warning("corpus-rows", fact, format!("`myxtts check {path}` lists them"))
}

fn sound_limit(config: &Config, facts: &Facts) -> Option<Finding> {
    let speech = facts.speech()?;
    limit("long-clips", &speech.limits[0], config, speech.planned.is_none())
}

fn text_limit(config: &Config, facts: &Facts) -> Option<Finding> {
    limit("long-texts", &facts.speech()?.limits[1], config, false)
}

/// How many clips a limit leaves out, and which value keeps most. `sampled`: some were looked at.
fn limit(code: &'static str, limit: &LimitUse, config: &Config, sampled: bool) -> Option<Finding> {
    let LimitUse { name, limit, clips, above, keeps_most } = *limit;
    let fate = match config.data.long_clips {
        LongClips::Refuse => "left out",
        LongClips::Crop => "cropped",
        LongClips::Split => "split",
    };
    let of = if sampled { format!("{clips} recordings that were tried") } else { counted(clips, "clip") };
    let fact = format!("{above} of {of} are above `{name}` {limit}");
    let share = above as f64 / clips.max(1) as f64;
    match keeps_most > limit {
        false if above == 0 => good(code, format!("none of {of} is above `{name}` {limit}")),
        false => good(code, format!("{fact}, and {fate}")),
        true => {
            let advice = format!("`{name}: {keeps_most}` keeps 99 % of them; `long_clips: split` cuts the rest");
            Some(Finding::warning(code, share, format!("{fact}, and {fate}: {:.1} %", share * 100.0), advice))
        }
    }
}

fn native_loading(config: &Config, _: &Facts) -> Option<Finding> {
    if config.data.use_native_loading {
        return good("native-loading", "batches are assembled ahead, in threads");
    }
    let fact = "`use_native_loading` is off: every batch is assembled in the training thread while the device waits";
    warning("native-loading", fact, "set `use_native_loading: true`")
}

fn workers(config: &Config, facts: &Facts) -> Option<Finding> {
    if !config.data.use_native_loading {
        return None;
    }
    let (workers, cores) = (config.data.workers(), facts.cores);
    let fact = format!("{} on {}", counted(workers, "worker"), counted(cores, "core"));
    if workers > cores {
        let advice =
            format!("set `num_workers` to at most {cores}, or leave it out: the first seconds of a run choose it");
        return warning("workers", fact + ": they take turns, and the training thread waits among them", advice);
    }
    if config.data.num_workers == Some(1) && cores >= 4 {
        return warning("workers", fact + ": one slow clip holds everything up", "leave `num_workers` out");
    }
    let how = if config.data.num_workers.is_none() { "; tuned in the first seconds of a run" } else { "" };
    good("workers", fact + how)
}

fn host_prefetch(config: &Config, _: &Facts) -> Option<Finding> {
    let depth = config.data.prefetch_depth();
    match config.data.use_native_loading {
        false => None,
        true if depth < 2 => {
            let fact = "`prefetch_buffer_size` is 1: the next batch is begun when the last one is taken";
            warning("prefetch", fact, "set it to 2 or more, or leave it out")
        }
        true => good("prefetch", format!("{depth} batches wait in host memory")),
    }
}

fn ring(config: &Config, _: &Facts) -> Option<Finding> {
    let data = &config.data;
    let slots = data.pipeline_buffer_size;
    if !data.prefetch_to_gpu {
        let fact = "`prefetch_to_gpu` is off: features and transfer wait for the step, and it for them";
        return warning("ring", fact, "set `prefetch_to_gpu: true`");
    }
    if !data.enhanced_gpu_prefetch {
        let fact = "`enhanced_gpu_prefetch` is off: one batch waits on the device instead of several";
        return warning("ring", fact, "set `enhanced_gpu_prefetch: true`");
    }
    if slots < 3 {
        let fact = format!("{slots} batches on the device: one trains, and preparing and transfer cannot both go on");
        return warning("ring", fact, "set `pipeline_buffer_size: 3`");
    }
    good("ring", format!("{slots} batches on the model device: one trains, one arrives, the rest are ready"))
}

fn overlap(config: &Config, facts: &Facts) -> Option<Finding> {
    facts.model_gpu()?;
    if config.data.optimize_cpu_gpu_overlap {
        return good("overlap", "copies and features run beside the step, on streams of their own");
    }
    let fact = "`optimize_cpu_gpu_overlap` is off: copies queue behind the step";
    warning("overlap", fact, "set `optimize_cpu_gpu_overlap: true`")
}

fn batch_size(config: &Config, facts: &Facts) -> Option<Finding> {
    let data = &config.data;
    let said = match data.frame_budget {
        Some(frames) => format!("{frames} frames a batch"),
        None => format!("{} utterances of mean length a batch", data.batch_size),
    };
    let clips = facts.speech().map(|speech| (speech.clips as f64 * data.train_split) as usize);
    if let (None, Some(clips)) = (data.frame_budget, clips.filter(|&clips| data.batch_size > clips)) {
        let fact = format!("{said}, and {clips} clips train: one batch holds them all");
        return warning("batch-size", fact, format!("set `batch_size` to at most {}", (clips / 8).max(1)));
    }
    if facts.model_gpu().is_some() && data.frame_budget.is_none() && data.batch_size < FEW_UTTERANCES {
        let advice = "raise `batch_size`; `myxtts configure` finds the largest that pays";
        return warning("batch-size", said + ": too few to fill most GPUs", advice);
    }
    good("batch-size", said)
}

fn shapes(config: &Config, facts: &Facts) -> Option<Finding> {
    if !config.data.pad_to_fixed_length {
        return good(
            "shapes",
            "utterances are packed end to end in batches of one shape: next to no padding, and graphs",
        );
    }
    let fact = format!("every utterance gets {} frames, and tokens for the longest text", config.data.max_mel_frames);
    let advice = "set `pad_to_fixed_length: false`: packed batches have one shape too";
    let planned = facts.speech().and_then(|speech| Some((speech, speech.planned.as_ref()?.padding_share)));
    let (share, ground) = match (planned, facts.speech()) {
        (Some((_, share)), _) => (share, "planned from the cached clips"),
        (None, Some(speech)) => {
            let frames_per_second = f64::from(config.data.sample_rate) / config.model.hop_length as f64;
            let mean = speech.seconds / speech.clips.max(1) as f64 * frames_per_second;
            ((1.0 - mean / config.data.max_mel_frames as f64).clamp(0.0, 1.0), "estimated from some recordings")
        }
        (None, None) => return warning("padding", fact, advice),
    };
    let fact = format!("{fact}: {:.0} % of the frames are padding ({ground})", share * 100.0);
    Some(Finding::warning("padding", share, fact, advice))
}

fn graph(config: &Config, facts: &Facts) -> Option<Finding> {
    facts.model_gpu()?;
    if config.training.enable_xla {
        return good("graph", "the step is captured once as a CUDA graph and replayed");
    }
    let fact =
        "`enable_graphs` is off: a step launches some thousand kernels one by one, and small voices wait for that";
    warning("graph", fact, "set `enable_graphs: true`; `myxtts profile` measures both")
}

fn precision(config: &Config, facts: &Facts) -> Option<Finding> {
    let training = &config.training;
    let Some(gpu) = &facts.placement.as_ref().ok()?.model else {
        return good("precision", "f32: the CPU computes in nothing else, whatever `mixed_precision` says");
    };
    match (training.mixed_precision, training.precision, gpu.has_bf16) {
        (false, _, _) => {
            let fact = "`mixed_precision` is off: f32 moves twice the bytes";
            warning("precision", fact, "set `mixed_precision: true`; weights stay f32")
        }
        (true, Precision::Bf16, false) => stops(
            "precision",
            format!("`precision: bf16`, and {} has no bf16 units", gpu.name),
            "set `precision: auto`, which takes f16 there",
        ),
        (true, Precision::F16, true) => {
            let fact = format!("f16 with a scaled loss, though {} has bf16, which needs no scale", gpu.name);
            warning("precision", fact, "set `precision: auto`")
        }
        (true, _, true) => good("precision", "bf16 activations, f32 weights"),
        (true, _, false) => good("precision", "f16 activations with a scaled loss, f32 weights: this GPU has no bf16"),
    }
}

fn logging(config: &Config, facts: &Facts) -> Option<Finding> {
    facts.model_gpu()?;
    let every = config.training.log_step;
    (every < 5).then(|| {
        let fact = format!("figures are read every {every} steps, and each reading is a copy to the host");
        Finding::warning("log-step", 0.0, fact, "set `log_step: 10`")
    })
}

fn devices(_: &Config, facts: &Facts) -> Option<Finding> {
    let placement = match &facts.placement {
        Ok(placement) => placement,
        Err(why) => return Some(problem("devices", why)),
    };
    let said = |gpu: &Option<CudaGpu>| match gpu {
        Some(gpu) => format!("{gpu}, {}, {} of {} MiB free", gpu.name, gpu.free_mib, gpu.total_mib),
        None => "CPU".into(),
    };
    let (data, model) = (said(&placement.data), said(&placement.model));
    good(
        "devices",
        if data == model { format!("both roles on {data}") } else { format!("data on {data}; model on {model}") },
    )
}

fn device_order(_: &Config, facts: &Facts) -> Option<Finding> {
    let placement = facts.placement.as_ref().ok().filter(|placement| placement.gpus > 1)?;
    let order = placement.other_order.as_ref()?;
    let fact = format!(
        "CUDA_DEVICE_ORDER={order} numbers GPUs in an order that the driver does not tell: others may be meant"
    );
    warning("gpu-order", fact, "unset it: GPUs are then numbered by PCI address, as `myxtts devices` shows them")
}

/// Two GPUs in two roles.
fn two_devices(config: &Config, facts: &Facts) -> Option<Finding> {
    let placement = facts.placement.as_ref().ok()?;
    let (data, model) = (placement.data.as_ref()?, placement.model.as_ref()?);
    if data.index == model.index {
        let spare = placement.gpus.saturating_sub(1);
        let fact =
            format!("{} of this machine stay{} idle", counted(spare, "more GPU"), if spare == 1 { "s" } else { "" });
        return (spare > 0 && config.training.data_gpu.is_none())
            .then(|| Finding::good("idle-gpus", fact + ": `myxtts configure` says whether one would help"));
    }
    match placement.link {
        Some(link) if link.is_slow() => {
            let fact = format!("{data} and {model}: {}", link.meaning());
            warning("gpu-link", fact, "choose two GPUs under one switch (`myxtts devices`), or let one do both")
        }
        Some(link) => good("gpu-link", format!("{data} to {model}: {}", link.meaning())),
        None => None,
    }
}

fn data_on_cpu(config: &Config, facts: &Facts) -> Option<Finding> {
    let gpu =
        facts.model_gpu().filter(|_| config.training.data_device == DataDevice::Cpu && facts.data_gpu().is_none())?;
    let fact = format!("features are made on the CPU, though {} could make them", gpu.name);
    warning("data-on-cpu", fact, "set `data_device: auto`")
}

fn caps(config: &Config, facts: &Facts) -> Option<Finding> {
    let training = &config.training;
    if !training.enable_memory_isolation {
        return None;
    }
    let placement = facts.placement.as_ref().ok()?;
    let (Some(data), Some(model)) = (&placement.data, &placement.model) else {
        return stops("caps", "`enable_memory_isolation` caps GPU memory, and a role runs on the CPU", "leave it out");
    };
    let wanted = |given: Option<MemoryCap>, gpu: &CudaGpu, thirds: u64| {
        given.map_or(gpu.free_mib * thirds / 3, |cap| cap.mib(gpu.total_mib))
    };
    let (data_mib, model_mib) =
        (wanted(training.data_gpu_memory, data, 1), wanted(training.model_gpu_memory, model, 2));
    let asked = match data.index == model.index {
        true => vec![(data, data_mib + model_mib, "data and model")],
        false => vec![(data, data_mib, "data"), (model, model_mib, "model")],
    };
    for &(gpu, mib, role) in &asked {
        let on = format!("the cap of {role}, {mib} MiB, on {}", gpu.name);
        if mib > gpu.total_mib {
            return stops(
                "caps",
                format!("{on}: the card has {} MiB", gpu.total_mib),
                "lower it, or leave it out: a share of what is free",
            );
        }
        if mib > gpu.free_mib {
            let advice = "lower it, or end what else runs there: the cap is a limit and reserves nothing";
            return warning("caps", format!("{on}: only {} MiB are free now", gpu.free_mib), advice);
        }
    }
    good("caps", format!("hard caps: data {data_mib} MiB, model {model_mib} MiB; whether a batch fits, a run shows"))
}

fn caching(config: &Config, facts: &Facts) -> Option<Finding> {
    if config.data.enable_caching {
        return None;
    }
    let clips = facts.speech().map_or("every clip".into(), |speech| format!("all {} clips", speech.clips));
    let fact = format!("`enable_caching` is off: every run turns {clips} into features again before its first step");
    warning("caching", fact, "set `enable_caching: true`")
}

fn content(config: &Config, facts: &Facts) -> Option<Finding> {
    match (config.data.cache_content, facts.data_gpu()) {
        (CacheContent::Pcm, Some(_)) => good("cache-content", "samples: the GPU makes mel frames of them"),
        (CacheContent::Mel, Some(_)) => {
            let fact =
                "mel frames: no noise or pitch augmentation, no vocoder, and another mel setting needs another cache";
            warning("cache-content", fact, "set `cache_content: pcm`: the GPU makes the frames")
        }
        (CacheContent::Mel, None) => {
            good("cache-content", "mel frames: the transform is done once, not by every batch")
        }
        (CacheContent::Pcm, None) if facts.placement.is_ok() => good(
            "cache-content",
            "samples, and the CPU makes mel frames of every batch: `myxtts analyze` measures what `mel` would gain",
        ),
        _ => None,
    }
}

fn folder(_: &Config, facts: &Facts) -> Option<Finding> {
    let dir = facts.room.dir.display();
    match &facts.room.writable {
        Ok(()) => good("cache-folder", format!("{dir} can be written")),
        Err(reason) => stops(
            "cache-folder",
            format!("features cannot be kept: {reason}"),
            "choose another folder with `cache_dir`",
        ),
    }
}

fn space(_: &Config, facts: &Facts) -> Option<Finding> {
    let (speech, free) = (facts.speech()?, facts.room.free_bytes?);
    if speech.planned.is_some() {
        return good("cache-space", format!("features are complete: {}", HumanBytes(speech.bytes)));
    }
    let (needed, fact) =
        ((speech.bytes as f64 * SPARE) as u64, format!("{}; {} are free", estimate(speech), HumanBytes(free)));
    if free < needed {
        return stops("cache-space", fact, "free some space, or choose another disk with `cache_dir`");
    }
    good("cache-space", fact)
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Placement, Planned, Room, Speech};
    use super::super::validate;
    use super::*;
    use crate::error::Explained;
    use crate::tools::devices::LinkPath;
    use crate::tools::report::Grade;
    use std::path::Path;

    fn gpu(index: usize) -> CudaGpu {
        let name = "Some GPU".into();
        CudaGpu { index, driver_index: None, name, total_mib: 24_000, free_mib: 20_000, has_bf16: true }
    }

    /// A machine with two GPUs, and a corpus of an hour whose cache is not built.
    fn facts(data: Option<CudaGpu>, model: Option<CudaGpu>) -> Facts {
        Facts {
            cores: 8,
            placement: Ok(Placement { data, model, gpus: 2, link: Some(LinkPath::Phb), other_order: None }),
            room: Room { dir: "/cache".into(), writable: Ok(()), free_bytes: Some(10 << 30) },
            speech: Ok(Speech {
                speakers: 1,
                clips: 600,
                left_out: 0,
                sampled: 24,
                seconds: 3600.0,
                train_seconds: 3420.0,
                bytes: 160 << 20,
                planned: None,
                limits: limits(&[500; 100]),
            }),
        }
    }

    /// Of clips with so many frames, at the default of 800, and with short texts.
    fn limits(frames: &[u32]) -> [LimitUse; 2] {
        let frames = frames.iter().map(|&frames| frames as usize).collect();
        let texts = [90; 600].into_iter().collect();
        [LimitUse::of("max_mel_frames", 800, &frames), LimitUse::of("max_text_length", 400, &texts)]
    }

    #[test]
    fn limits_tell_how_many_clips_they_leave_out_and_which_value_keeps_most() {
        let mut long = facts(None, None);
        let frames: Vec<u32> = (701..=900).collect();
        long.speech.as_mut().unwrap_or_else(|_| panic!("it is there")).limits = limits(&frames);
        let report = validate(&config(""), &long);
        let finding = report.findings()[0];
        assert_eq!((finding.code, finding.cost), ("long-clips", 0.5));
        assert_eq!(
            finding.fact,
            "100 of 200 recordings that were tried are above `max_mel_frames` 800, and left out: 50.0 %"
        );
        let advice = finding.advice.as_deref().unwrap_or_default();
        assert!(advice.starts_with("`max_mel_frames: 898` keeps 99 %"), "{advice}");
    }

    fn explained(fact: &str, hint: &str) -> Explained {
        Explained { fact: fact.into(), hints: vec![hint.into()] }
    }

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("a.yaml")).unwrap()
    }

    /// Codes of what is wrong, the worst first.
    fn found(text: &str, facts: &Facts) -> Vec<(&'static str, Grade)> {
        validate(&config(text), facts).findings().iter().map(|finding| (finding.code, finding.grade)).collect()
    }

    #[test]
    fn the_defaults_are_clean_on_every_kind_of_machine() {
        for (data, model) in [(None, None), (Some(gpu(0)), Some(gpu(0))), (Some(gpu(0)), Some(gpu(1)))] {
            assert_eq!(found("", &facts(data, model)), []);
        }
    }

    #[test]
    fn each_setting_that_costs_time_is_named() {
        let one = facts(Some(gpu(0)), Some(gpu(0)));
        let cases = [
            ("data: {use_native_loading: false}", "native-loading"),
            ("data: {num_workers: 9}", "workers"),
            ("data: {num_workers: 1}", "workers"),
            ("data: {prefetch_buffer_size: 1}", "prefetch"),
            ("data: {pipeline_buffer_size: 1}", "ring"),
            ("data: {prefetch_to_gpu: false}", "ring"),
            ("data: {enhanced_gpu_prefetch: false}", "ring"),
            ("data: {optimize_cpu_gpu_overlap: false}", "overlap"),
            ("data: {batch_size: 2}", "batch-size"),
            ("data: {batch_size: 1000}", "batch-size"),
            ("data: {pad_to_fixed_length: true}", "padding"),
            ("training: {enable_graphs: false}", "graph"),
            ("training: {mixed_precision: false}", "precision"),
            ("training: {precision: f16}", "precision"),
            ("training: {log_step: 1}", "log-step"),
            ("data: {enable_caching: false}", "caching"),
            ("data: {cache_content: mel}", "cache-content"),
            ("training: {enable_memory_isolation: true, data_gpu_memory: 8000, model_gpu_memory: 14000}", "caps"),
        ];
        for (text, code) in cases {
            assert_eq!(found(text, &one), [(code, Grade::Warning)], "{text}");
        }
        let apart = facts(None, Some(gpu(0)));
        assert_eq!(found("training: {data_device: cpu}", &apart), [("data-on-cpu", Grade::Warning)]);
    }

    #[test]
    fn a_slow_path_between_gpus_and_numbers_of_another_order_are_told() {
        let placed = |change: fn(&mut Placement)| {
            let mut two = facts(Some(gpu(0)), Some(gpu(1)));
            two.placement.as_mut().map(change).unwrap_or_else(|_| panic!("it is there"));
            found("", &two)
        };
        assert_eq!(placed(|placement| placement.link = Some(LinkPath::Pix)), []);
        assert_eq!(placed(|placement| placement.link = Some(LinkPath::Node)), [("gpu-link", Grade::Warning)]);
        assert_eq!(placed(|placement| placement.link = Some(LinkPath::Sys)), [("gpu-link", Grade::Warning)]);
        assert_eq!(
            placed(|placement| placement.other_order = Some("FASTEST_FIRST".into())),
            [("gpu-order", Grade::Warning)]
        );
    }

    #[test]
    fn what_keeps_a_run_from_starting_is_a_problem() {
        let mut full = facts(Some(gpu(0)), Some(gpu(0)));
        full.room.free_bytes = Some(180 << 20);
        assert_eq!(found("", &full), [("cache-space", Grade::Problem)]);
        full.room.writable = Err("/cache: permission denied".into());
        assert_eq!(found("", &full).len(), 2);
        let mut lost = facts(None, None);
        lost.speech = Err(explained("no corpus is named", "set `dataset_path`"));
        lost.placement = Err(explained("model_gpu asks for GPU 1; GPUs that are there: none", "`myxtts devices`"));
        assert_eq!(found("", &lost), [("corpus", Grade::Problem), ("devices", Grade::Problem)]);
        let old = CudaGpu { has_bf16: false, ..gpu(0) };
        let old = facts(Some(old.clone()), Some(old));
        assert_eq!(found("training: {precision: bf16}", &old), [("precision", Grade::Problem)]);
        assert_eq!(found("", &old), []);
        let caps = "training: {enable_memory_isolation: true, data_gpu_memory: 8000, model_gpu_memory: 17000}";
        assert_eq!(found(caps, &facts(Some(gpu(0)), Some(gpu(0)))), [("caps", Grade::Problem)]);
        assert_eq!(found(caps, &facts(Some(gpu(0)), Some(gpu(1)))), [], "each has a card of its own");
        assert_eq!(found(caps, &facts(None, None)), [("caps", Grade::Problem)]);
        let shares = "training: {enable_memory_isolation: true, data_gpu_memory: 0.4, model_gpu_memory: 0.7}";
        assert_eq!(
            found(shares, &facts(Some(gpu(0)), Some(gpu(0)))),
            [("caps", Grade::Problem)],
            "more than all of it"
        );
        assert_eq!(found(shares, &facts(Some(gpu(0)), Some(gpu(1)))), []);
    }

    #[test]
    fn padding_is_ordered_by_its_share_and_says_its_ground() {
        // 600 clips of 6 s are 517 frames each; a slot has 800.
        let one = facts(Some(gpu(0)), Some(gpu(0)));
        let report = validate(&config("data: {pad_to_fixed_length: true}"), &one);
        let finding = report.findings()[0].clone();
        assert!((finding.cost - (1.0 - 6.0 * 22050.0 / 256.0 / 800.0)).abs() < 1e-9, "{finding:?}");
        assert!(finding.fact.contains("35 % of the frames are padding (estimated"), "{finding:?}");
        let mut known = facts(Some(gpu(0)), Some(gpu(0)));
        let planned = Planned { batches: 20, frames: 16_000, padding_share: 0.31, host_bytes: 1 << 24 };
        known.speech.as_mut().unwrap_or_else(|_| panic!("it is there")).planned = Some(planned);
        let text = validate(&config("data: {pad_to_fixed_length: true}"), &known).to_string();
        assert!(
            text.contains("31 % of the frames are padding (planned") && text.contains("20 steps of 171.0 s"),
            "{text}"
        );
    }
}
