//! `myxtts diagnose`

use super::bench_setup::{BenchSetup, with_some_corpus};
use crate::feed::Roles;
use crate::run::choose_kernels;
use crate::tools::diagnose::{self, DiskSpeed, MachineSurvey};
use crate::tools::measure::{self, RunMeasurement};
use crate::tools::verdict::of_error;
use anyhow::Result;
use cli::diagnose::Args;
use cli::finish;
use host::config::{Config, Overrides, devices};
use host::corpus::{self, UtteranceRef};
use host::simulate::Delays;
use host::tools::report::{Finding, FindingsReport, Section};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tch::Device;

pub fn run(args: &Args) -> Result<ExitCode> {
    let report = examine(args.run.resolve(Overrides::default())?, args.simulate.delays()?, args.num_steps)?;
    finish(&report, args.json)
}

/// The machine, then a short run on it.
pub fn examine(config: Config, delays: Delays, steps: u64) -> Result<FindingsReport> {
    // Before anything of this program is on a GPU or a core.
    let before = MachineSurvey::look();
    let host = diagnose::look_at_host(&before.survey.cpu);
    let training = &config.training;
    choose_kernels(training)?;
    let asked_for = training.device.starts_with("cuda") || training.data_gpu.is_some();
    // Nobody who asks for the CPU wants to hear why a GPU cannot be used.
    let on_cpu = training.device == "cpu" && training.data_gpu.is_none();
    let usable = if on_cpu { Ok(()) } else { torchx::cuda::load().map_err(|error| error.to_string()) };
    let roles = Roles::resolve(training);
    let wanted = roles.as_ref().map_or(vec![], |roles| gpus(roles, &before));
    let mut sections = diagnose::look_at_gpus(&before, &wanted, asked_for, usable);
    sections.push(host);
    let (mut disk, mut measured) = (None, None);
    match roles {
        // No GPU at all is told already.
        Err(_) if before.survey.reason.is_some() => {}
        Err(error) => sections.push(ended(error)?),
        Ok(_) => {
            let config = with_some_corpus(config)?;
            disk = disk_speed(&config)?;
            match short_run(config, delays, steps) {
                Ok(run) => measured = Some(run),
                Err(error) => sections.push(ended(error)?),
            }
        }
    }
    Ok(diagnose::report(sections, disk, measured.as_ref(), json!({ "machine": before })))
}

fn short_run(config: Config, delays: Delays, steps: u64) -> Result<RunMeasurement> {
    let stand = BenchSetup::with_config(config, delays)?;
    stand.bar.set_length(steps * 3 / 2);
    let measured = measure::run(&stand.context(), steps);
    stand.bar.finish_and_clear();
    measured
}

/// Want of memory and absent GPUs are findings; the rest are errors of this command.
fn ended(error: anyhow::Error) -> Result<Section> {
    let no_gpu = error.downcast_ref::<devices::Error>().filter(|error| error.is_no_gpu());
    let no_run = |error: &devices::Error| {
        Finding::problem("no-run", 1.0, error.to_string(), "`myxtts devices` shows what is there")
    };
    match of_error(&error).or_else(|| no_gpu.map(no_run)) {
        Some(finding) => Ok(Section { findings: vec![finding], ..Section::new("The run") }),
        None => Err(error),
    }
}

/// GPUs of the run under the driver's numbers, the model's first. CUDA may number them otherwise; addresses agree.
fn gpus(roles: &Roles, before: &MachineSurvey) -> Vec<u32> {
    let index = |device: Device| {
        let address = torchx::cuda::facts(device).ok()?.pci_bus_id.to_lowercase();
        before
            .survey
            .gpus
            .iter()
            .find(|gpu| gpu.pci.as_deref().is_some_and(|pci| is_same(pci, &address)))
            .map(|gpu| gpu.index)
    };
    let mut gpus: Vec<u32> = [roles.model, roles.data].into_iter().filter_map(index).collect();
    gpus.dedup();
    gpus
}

/// Some write the domain with four digits, some with eight.
fn is_same(a: &str, b: &str) -> bool {
    a.ends_with(b) || b.ends_with(a)
}

fn disk_speed(config: &Config) -> Result<Option<DiskSpeed>> {
    let Some(path) = &config.data.dataset_path else { return Ok(None) };
    let corpus = corpus::read(path, &corpus::ReadOptions::of(&config.data)?)?;
    let file = |utterance: UtteranceRef| utterance.audio.file().map(Path::to_owned);
    let recordings: Vec<PathBuf> = corpus.utterances.iter().filter_map(file).collect();
    Ok(diagnose::look_at_disk(&recordings))
}
