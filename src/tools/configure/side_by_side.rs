//! All GPUs side by side, tried as they would train: by ranks of this program, in processes of their own.

use crate::tools::bench_scale::ScaleFigures;
use anyhow::{Context, Result, bail};
use host::config::{Config, GpuList};
use std::process::{Command, Stdio};

/// Speech a second of these settings with a rank for each of `gpus`; or on the CPU, with so many ranks, for tests.
pub fn side_by_side(config: &Config, gpus: Option<GpuList>, ranks: usize, steps: u64) -> Result<ScaleFigures> {
    let mut config = config.clone();
    (config.training.data_gpu, config.training.model_gpu) = (None, gpus);
    config.training.ranks = Some(ranks);
    let settings = std::env::temp_dir().join(format!("myxtts-side-by-side-{}.yaml", std::process::id()));
    std::fs::write(&settings, config.to_yaml()).with_context(|| settings.display().to_string())?;
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(program);
    command.args(["bench", "scale", "--json", "--num-steps", &steps.to_string(), "--config"]).arg(&settings);
    let output = command.stdin(Stdio::null()).output();
    let _ = std::fs::remove_file(&settings);
    let output = output.context("ranks cannot be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.lines().find(|line| line.starts_with("error: ")).unwrap_or("the ranks ended without a word"));
    }
    ScaleFigures::parse(&String::from_utf8_lossy(&output.stdout))
}
