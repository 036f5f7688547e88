//! Settings for this machine and corpus, each chosen by trying: sizes of batches until memory is full, precision, graphs,
//! what the cache keeps, workers, depths, and where features are made.

mod dry_run;
mod page;
mod search;
mod side_by_side;
mod trials;
mod two_gpus;
mod write;

pub use dry_run::{HostLimit, SAME, Trial};
pub use page::head;
pub use search::SizeSearch;
pub use two_gpus::{BatchTimes, Predicted};
pub use write::{ChosenSetting, yaml};

use crate::run::RunContext;
use anyhow::Result;
use host::config::{Config, MemoryCap};
use host::corpus::Utterances;
use host::error::hinted;
use host::loader::Budget;
use serde::Serialize;
use trials::Trials;

/// A worker that is at work for more of its time has no reserve for a slow batch.
const BUSY: f64 = 0.7;
/// Above what was seen: kernels that validation alone runs, fragments.
const HEADROOM: f64 = 1.25;
const LEAST_CAP_MIB: u64 = 256;

/// How long settings are searched for.
#[derive(Clone, Copy, Debug)]
pub struct TuneOptions {
    /// Seconds of all trials together, about.
    pub seconds: f64,
    /// Seconds of each trial, once it is warm.
    pub trial_seconds: f64,
    /// Sizes of batches that are tried at most.
    pub trials: usize,
    /// Whether the settings as they were are run too, and compared.
    pub verify: bool,
    /// Memory for a trial on a CPU, which has no caps of its own.
    pub host_limit: Option<HostLimit>,
}

/// Settings that were found, and what they were chosen by.
pub struct Tuned {
    pub config: Config,
    pub choices: Vec<ChosenSetting>,
    pub found: SizeSearch,
    pub chosen: Trial,
    pub tried: Vec<SettingComparison>,
    pub gpus: TwoGpus,
    /// Before and after, each with speech a second; before is absent where it did not fit.
    pub verified: Option<(Option<Trial>, Trial)>,
    on_gpu: bool,
    asked_frames: usize,
    seconds: f64,
}

/// Two ways of one setting, at the same size of batch.
#[derive(Clone, Debug, Serialize)]
pub struct SettingComparison {
    pub setting: String,
    /// (value, seconds of speech a second), what is kept first.
    pub kept: (String, f64),
    pub left: (String, f64),
}

/// What is known about using two GPUs.
#[derive(Clone, Debug, Serialize)]
pub struct TwoGpus {
    pub count: usize,
    /// What two would bring, from the times measured on one; absent on a CPU.
    pub predicted: Option<Predicted>,
    /// Seconds of speech a second with a GPU for each role; absent where there is one.
    pub producer_consumer: Option<f64>,
    /// The same with all GPUs side by side, or why that did not run; absent where there is one.
    pub side_by_side: Option<Result<f64, String>>,
}

/// `utterances`: of the whole corpus.
pub fn configure(context: &RunContext, utterances: &Utterances, options: TuneOptions) -> Result<Tuned> {
    let trials = Trials::new(context, options);
    let mut config = without_brakes(context.config);
    let mut choices = unbraked(context.config, &config);
    let asked_frames = asked(context);
    let found = trials.sizes(&config, asked_frames)?;
    let Some(knee) = found.knee(asked_frames).cloned() else {
        let (frames, why) = found.too_large.clone().unwrap_or((asked_frames, "no size was tried".into()));
        let ways =
            "a smaller `size`, `enable_gradient_checkpointing: true`, shorter clips (`max_mel_frames`) or larger caps";
        return Err(hinted(format!("not even {frames} frames a batch fit: {why}"), ways));
    };
    config.data.frame_budget = Some(knee.frames);
    choices.push(ChosenSetting::new("data.frame_budget", knee.frames, size_reason(&found, &knee, asked_frames)));
    let mut chosen = knee;
    let mut tried = trials.step_settings(&mut config, &mut chosen, &mut choices)?;
    tried.extend(trials.content(&mut config, &chosen, utterances, &mut choices)?);
    trials.depths(&mut config, &mut chosen, &mut choices)?;
    choices.push(workers(&mut config, &chosen));
    let gpus = trials.gpus(&mut config, &mut chosen, &mut choices)?;
    caps(&mut config, context, &chosen, &mut choices);
    let verified = if options.verify { Some(trials.verify(&config)?) } else { None };
    let on_gpu = context.roles.model.is_cuda();
    let seconds = trials.began.elapsed().as_secs_f64();
    Ok(Tuned { config, choices, found, chosen, tried, gpus, verified, on_gpu, asked_frames, seconds })
}

/// Frames a batch as it was asked for; of a padded one, without the padding.
fn asked(context: &RunContext) -> usize {
    let (data, batch_size) = (context.data, context.config.data.batch_size);
    if data.budget.padded { Budget::packed(data.train.lengths(), batch_size).frames } else { data.budget.frames }
}

/// Switches that no measurement needs to decide: off, the device waits for what could be done beside it.
fn without_brakes(config: &Config) -> Config {
    let mut config = config.clone();
    let data = &mut config.data;
    (data.use_native_loading, data.prefetch_to_gpu, data.enhanced_gpu_prefetch) = (true, true, true);
    (data.optimize_cpu_gpu_overlap, data.pad_to_fixed_length) = (true, false);
    data.pipeline_buffer_size = data.pipeline_buffer_size.max(3);
    config
}

fn unbraked(before: &Config, after: &Config) -> Vec<ChosenSetting> {
    let reason = "as in every trial: packed batches, made beside the step";
    let switches = [
        ("data.use_native_loading", before.data.use_native_loading, after.data.use_native_loading),
        ("data.prefetch_to_gpu", before.data.prefetch_to_gpu, after.data.prefetch_to_gpu),
        ("data.enhanced_gpu_prefetch", before.data.enhanced_gpu_prefetch, after.data.enhanced_gpu_prefetch),
        ("data.optimize_cpu_gpu_overlap", before.data.optimize_cpu_gpu_overlap, after.data.optimize_cpu_gpu_overlap),
        ("data.pad_to_fixed_length", before.data.pad_to_fixed_length, after.data.pad_to_fixed_length),
    ];
    switches
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(key, _, new)| ChosenSetting::new(key, new, reason))
        .collect()
}

fn size_reason(found: &SizeSearch, knee: &Trial, asked: usize) -> String {
    let rate = knee.audio_seconds_per_second;
    let (fastest, largest) = (found.fastest().unwrap_or(knee), found.trials.last().unwrap_or(knee));
    let memory = knee.peak_mib.map_or(String::new(), |mib| format!(", {mib:.0} MiB at most"));
    let beyond = match (largest.frames > knee.frames, fastest.frames == knee.frames) {
        (true, _) => {
            let gain = (largest.audio_seconds_per_second / rate - 1.0) * 100.0;
            format!("; {} frames fit too and give {gain:+.0} %", largest.frames)
        }
        (false, true) => "; the largest that was tried is the fastest".into(),
        (false, false) => format!("; {} frames are no faster by more than {:.0} %", fastest.frames, SAME * 100.0),
    };
    let before = if knee.asked < asked { format!("; {asked} were asked for") } else { String::new() };
    format!("{rate:.0} s of speech a second at {:.1} ms a step{memory}{beyond}{before}", knee.step_ms)
}

/// Chooses as many workers as leave each some reserve.
fn workers(config: &mut Config, chosen: &Trial) -> ChosenSetting {
    let cores = host::machine::cores();
    let batch_ms = chosen.step_ms / config.training.gradient_accumulation_steps as f64;
    let share = chosen.load_ms / batch_ms.max(1e-6);
    let number = ((share / BUSY).ceil() as usize).clamp(1, cores);
    config.data.num_workers = Some(number);
    let reason = format!(
        "a worker lays a batch in {:.2} ms, training takes one every {batch_ms:.1} ms: {} at work {:.1} % of the time",
        chosen.load_ms,
        if number == 1 { "one is".into() } else { format!("each of {number} is") },
        share / number as f64 * 100.0
    );
    ChosenSetting::new("data.num_workers", number, reason)
}

/// Chooses caps that the trial would have kept to, where they were left to the program; one that was given stays.
fn caps(config: &mut Config, context: &RunContext, chosen: &Trial, choices: &mut Vec<ChosenSetting>) {
    let (Some(peak), true) = (chosen.peak_mib, context.caps.proposed) else { return };
    let asked = &context.config.training;
    let given = [asked.data_gpu_memory.and(context.caps.data_mib), asked.model_gpu_memory.and(context.caps.model_mib)];
    let [data, model] = caps_of(given, peak, chosen.data_peak_mib);
    let reasons = match chosen.data_peak_mib {
        Some(data_peak) => [data_peak, peak].map(|peak| format!("the role took {peak:.0} MiB, and a quarter more")),
        None => [(); 2].map(|()| format!("both roles together took {peak:.0} MiB, and a quarter more")),
    };
    let training = &mut config.training;
    let keep = |given: Option<MemoryCap>, mib| given.or(Some(MemoryCap::Mib(mib)));
    training.data_gpu_memory = keep(training.data_gpu_memory, data);
    training.model_gpu_memory = keep(training.model_gpu_memory, model);
    let keys = ["training.data_gpu_memory", "training.model_gpu_memory"];
    let all = keys.into_iter().zip([data, model]).zip(reasons).zip(given);
    let own = all.filter(|(_, given)| given.is_none());
    choices.extend(own.map(|(((key, mib), reason), _)| ChosenSetting::new(key, mib, reason)));
}

/// Caps of the data and the model role, MiB. `peak`: of the model's GPU; without `data_peak`, of both roles on it, whose sum
/// is what holds.
fn caps_of(given: [Option<u64>; 2], peak: f64, data_peak: Option<f64>) -> [u64; 2] {
    let with_room = |mib: f64| ((mib * HEADROOM) as u64).max(LEAST_CAP_MIB).next_multiple_of(64);
    let rest = |of: u64| with_room(peak).saturating_sub(of).max(LEAST_CAP_MIB);
    match (given, data_peak) {
        ([Some(data), Some(model)], _) => [data, model],
        ([data, model], Some(data_peak)) => {
            [data.unwrap_or_else(|| with_room(data_peak)), model.unwrap_or_else(|| with_room(peak))]
        }
        ([None, None], None) => [LEAST_CAP_MIB, with_room(peak)],
        ([Some(data), None], None) => [data, rest(data)],
        ([None, Some(model)], None) => [rest(model), model],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Caps, Roles};
    use host::corpus;
    use host::dataset::KnownTokenizer;
    use host::simulate::Hook;
    use host::tools::sample_corpus;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;
    use tch::Device;

    const TINY: &str = "
model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, decoder_heads: 2}
training: {device: cpu}
data: {batch_size: 4, num_workers: 1, enable_caching: false, tokenizer: characters}
";

    #[test]
    fn caps_that_were_given_stay_and_the_others_hold_what_was_seen() {
        // Both roles on one card took 1,000 MiB: 1,250 in steps of 64 are 1,280, and the sum holds.
        assert_eq!(caps_of([None, None], 1_000.0, None), [256, 1_280]);
        assert_eq!(caps_of([Some(512), None], 1_000.0, None), [512, 768]);
        assert_eq!(caps_of([None, Some(900)], 1_000.0, None), [380, 900]);
        assert_eq!(caps_of([None, Some(4_000)], 1_000.0, None), [256, 4_000]);
        // A card each: 400 MiB of data become 500, in steps of 64 512.
        assert_eq!(caps_of([None, None], 1_000.0, Some(400.0)), [512, 1_280]);
        assert_eq!(caps_of([Some(300), None], 1_000.0, Some(400.0)), [300, 1_280]);
        assert_eq!(caps_of([None, Some(8_000)], 1_000.0, Some(10.0)), [256, 8_000]);
    }

    /// Every size takes more than there is: each is tried, stepped back from, and the last word says what to do.
    #[test]
    fn a_limit_that_nothing_fits_into_is_stepped_back_from_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let corpus_dir = dir.path().join("corpus");
        let options = sample_corpus::SampleCorpusOptions {
            clips: 8,
            voice: sample_corpus::SampleVoice::Formant,
            ..sample_corpus::SampleCorpusOptions::default()
        };
        sample_corpus::write(&corpus_dir, &options, &|_| std::ops::ControlFlow::Continue(())).unwrap();
        let mut config = Config::parse(TINY, Path::new("a.yaml")).unwrap();
        config.data.dataset_path = Some(corpus_dir.clone());
        let (stop, bar) = (AtomicBool::new(false), indicatif::ProgressBar::hidden());
        let data = host::dataset::prepare(&config, KnownTokenizer::Nothing, &|_| (), &stop, &Hook::NONE).unwrap();
        let (roles, caps) = (Roles { data: Device::Cpu, model: Device::Cpu }, Caps::default());
        let began = Instant::now();
        let context = RunContext::new(&config, &data, (roles, caps), &bar, &stop, began);
        let host_limit = Some(HostLimit { mib: 1.0 });
        let options = TuneOptions { seconds: 60.0, trial_seconds: 0.01, trials: 12, verify: false, host_limit };
        let utterances = corpus::read(&corpus_dir, &corpus::ReadOptions::default()).unwrap().utterances;
        let error = configure(&context, &utterances, options).err().expect("nothing fits");
        let error = host::error::Explained::of(error.as_ref()).to_string();
        assert!(error.starts_with("not even ") && error.contains("MiB, and 1 are there"), "{error}");
        assert!(error.contains("enable_gradient_checkpointing"), "{error}");
    }
}
