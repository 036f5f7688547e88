//! Commands that several processes may run together: one of them, all of them, or the launcher of them.

use super::stop_flag;
use crate::feed::{self, Roles};
use crate::ranks::{self, Ranks};
use anyhow::{Context, Result};
use host::config::Config;
use host::dataset::TrainingData;
use host::error::hinted;
use host::ranks::Membership;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Keys that may differ from rank to rank: where things are, and how fast they are got. What the corpus comes to is compared
/// by itself.
const OWN: [&str; 28] = [
    "device",
    "data_gpu",
    "model_gpu",
    "ranks",
    "rank_timeout",
    "data_device",
    "data_gpu_memory",
    "model_gpu_memory",
    "enable_memory_isolation",
    "model_start_delay",
    "checkpoint_dir",
    "log_every",
    "log_file",
    "tensorboard_log_dir",
    "dataset_path",
    "val_data",
    "format",
    "speaker_pattern",
    "enable_caching",
    "cache_dir",
    "local_cache",
    "local_cache_size",
    "num_workers",
    "use_native_loading",
    "prefetch_buffer_size",
    "prefetch_to_gpu",
    "enhanced_gpu_prefetch",
    "pipeline_buffer_size",
];

/// Runs `work` alone, as the rank that this process is, or in processes of its own, one for each rank.
pub fn in_ranks(
    config: Config,
    work: impl FnOnce(Config, Option<&Arc<Ranks>>) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let timeout = Duration::from_secs_f64(config.training.rank_timeout);
    let size = config.training.local_ranks();
    match Membership::of_process()? {
        None if size == 1 => work(config, None),
        None => {
            (0..size).try_for_each(|rank| Roles::resolve(&of_rank(config.clone(), rank, size)?.training).map(drop))?;
            ranks::launch(size, timeout, &stop_flag()?)
        }
        Some(me) => {
            if me.rank > 0 {
                cli::be_quiet();
            }
            let ranks = Arc::new(Ranks::join(me, timeout)?);
            let done = same_settings(&ranks, &config)
                .and_then(|()| of_rank(config, ranks.me.local_rank, ranks.neighbours().count()))
                .and_then(|config| work(config, Some(&ranks)))
                .map_err(|error| error.context(ranks.name(ranks.me.rank)));
            match &done {
                Ok(_) => ranks.leave()?,
                Err(error) => ranks.fail(error),
            }
            done
        }
    }
}

/// The settings of one of `size` ranks on this machine: its own GPU, and its share of the caps.
fn of_rank(mut config: Config, local_rank: usize, size: usize) -> Result<Config> {
    let training = &mut config.training;
    match &training.model_gpu {
        Some(gpus) => {
            let count = gpus.iter().len();
            let absent = || {
                let fact = format!("rank {local_rank} of this machine has no GPU: `model_gpu` names {count}");
                hinted(fact, "name one for each rank, as in --model-gpu 0,1")
            };
            let sharers = |gpu| gpus.iter().filter(|other| *other == gpu).count() as u64;
            let gpu = gpus.of_rank(local_rank).ok_or_else(absent)?;
            training.model_gpu_memory = training.model_gpu_memory.map(|cap| cap.among(sharers(gpu)));
            training.model_gpu = Some(gpu.into());
        }
        None if size > 1 && matches!(&*training.device, "auto" | "cuda") => {
            let gpu = feed::gpu_of_local_rank(local_rank, training.device == "auto");
            training.model_gpu = gpu.with_context(|| format!("rank {local_rank} of this machine"))?.map(Into::into);
        }
        None => {}
    }
    training.ranks = None;
    if training.data_gpu.is_some() {
        training.data_gpu_memory = training.data_gpu_memory.map(|cap| cap.among(size as u64));
    }
    Ok(config)
}

fn same_settings(ranks: &Ranks, config: &Config) -> Result<()> {
    let all = serde_json::to_value(config)?;
    let sections = all.as_object().into_iter().flat_map(|sections| sections.values());
    let keys = sections.filter_map(Value::as_object).flatten();
    let own: BTreeMap<String, Value> =
        keys.filter(|(key, _)| !OWN.contains(&&***key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    ranks.same("settings", &own, |first| {
        let differs = |(key, value): (&String, &Value)| {
            let other = first.get(key).filter(|other| *other != value)?;
            Some(format!("`{key}` {value}, rank 0 has {other}"))
        };
        format!("has {}", own.iter().filter_map(differs).collect::<Vec<_>>().join("; "))
    })
}

/// An error where ranks would train on different speech.
pub fn same_data(ranks: &Ranks, data: &TrainingData) -> Result<()> {
    let held_out = data.validation.as_ref();
    let mine = (
        [data.train.lengths().len(), held_out.map_or(0, |set| set.lengths().len())],
        [data.train.fingerprint(), held_out.map_or(0, |set| set.fingerprint())],
        data.tokenizer.fingerprint(),
        [data.budget.frames, data.budget.tokens],
    );
    ranks.same("corpus", &mine, |first| {
        let ([train, held_out], [first_train, first_held_out]) = (mine.0, first.0);
        match (train, held_out) == (first_train, first_held_out) {
            true => "reads another corpus than rank 0: as many clips, and not the same".into(),
            false => format!(
                "reads another corpus than rank 0: {train} clips and {held_out} held out, against {first_train} and \
                 {first_held_out}"
            ),
        }
    })
}
