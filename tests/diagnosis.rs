//! Is the diagnosis right? Problems are planted in the real pipeline, one after the other, and each must be the first
//! that the verdict names; a run without one must report none. `--nocapture` shows the table.
//!
//! Delays are multiples of this machine's own step, so that they stand out on a slow or busy one too. What other
//! programs do to its cores is true of the machine and not of the run: `cpu-contended` counts only where it is planted.

use host::config::{Config, DataDevice, MaxFailures, MemoryCap, Overrides, Size};
use host::dataset::{self, KnownTokenizer};
use host::simulate::{Delay, Delays};
use host::tools::report::Finding;
use indicatif::ProgressBar;
use myxtts::internal::{Caps, Roles, RunContext, RunMeasurement, delaying, measure, of_error, verdict};
use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tempfile::TempDir;

/// Trains in hundredths of a second.
const CONFIG: &str = "
model: {text_dim: 64, text_layers: 1, text_heads: 2, decoder_dim: 64, decoder_layers: 4, decoder_heads: 2}
training: {device: cpu, model_start_delay: 1}
data: {batch_size: 3, num_workers: 2, prefetch_buffer_size: 8, val_split: 0.1, language: en, tokenizer: characters}
";
const CLIPS: &str = "48";
/// What the test machine does to any run.
const OF_THE_MACHINE: [&str; 2] = ["cpu-contended", "cpu-stolen"];
/// Tests of time do not run beside each other.
static ALONE: Mutex<()> = Mutex::new(());
/// On a machine whose speed changes while it is tested.
const ATTEMPTS: usize = 3;

struct Plant {
    problem: &'static str,
    /// What must be named first; none: nothing may be.
    code: Option<&'static str>,
    /// Delays, in steps of a clean run.
    slow: &'static [(&'static str, f64)],
    change: fn(&mut Config),
    steps: u64,
    cores: usize,
}

/// More than buffers hold: what is wanting shows when they are empty.
const LONG: u64 = 24;
const NOTHING: Plant = Plant { problem: "", code: None, slow: &[], change: |_| (), steps: 12, cores: 2 };

/// What goes wrong on a CPU and on a GPU alike.
const TOO_FEW_WORKERS: Plant = Plant {
    problem: "too few workers",
    code: Some("few-workers"),
    slow: &[("load", 3.0)],
    change: |config| config.data.num_workers = Some(1),
    steps: LONG,
    cores: 16,
};
const ONE_LOCK: Plant = Plant {
    problem: "starved by one lock",
    code: Some("lock-bound"),
    slow: &[("lock", 3.0)],
    change: |config| config.data.num_workers = Some(4),
    ..NOTHING
};
const PADDING: Plant = Plant {
    problem: "padding waste",
    code: Some("padding-waste"),
    change: |config| {
        config.data.pad_to_fixed_length = true;
        config.data.max_mel_frames = 500;
    },
    ..NOTHING
};

/// On a CPU, so anywhere.
const PLANTS: &[Plant] = &[
    Plant { problem: "slow decoding", code: Some("slow-decode"), slow: &[("decode", 3.0)], steps: LONG, ..NOTHING },
    Plant {
        problem: "slow assembling of batches",
        code: Some("slow-decode"),
        slow: &[("load", 10.0)],
        steps: LONG,
        ..NOTHING
    },
    Plant { problem: "slow disk", code: Some("slow-disk"), slow: &[("disk", 2.0)], ..NOTHING },
    TOO_FEW_WORKERS,
    ONE_LOCK,
    Plant {
        problem: "prefetch of 1",
        code: Some("shallow-prefetch"),
        slow: &[("hiccup", 20.0)],
        change: |config| {
            config.data.prefetch_buffer_size = Some(1);
            config.data.pipeline_buffer_size = 1;
        },
        steps: 20,
        ..NOTHING
    },
    Plant {
        problem: "no prefetching",
        code: Some("no-prefetch"),
        slow: &[("features", 0.1)],
        change: |config| config.data.prefetch_to_gpu = false,
        ..NOTHING
    },
    Plant {
        problem: "no workers",
        code: Some("no-workers"),
        slow: &[("disk", 1.0)],
        change: |config| config.data.use_native_loading = false,
        ..NOTHING
    },
    Plant {
        problem: "data device saturated",
        code: Some("data-device-saturated"),
        slow: &[("features", 3.0)],
        ..NOTHING
    },
    Plant { problem: "slow transfer", code: Some("slow-transfer"), slow: &[("transfer", 3.0)], ..NOTHING },
    Plant {
        problem: "slow features, slower transfer",
        code: Some("slow-transfer"),
        slow: &[("features", 1.0), ("transfer", 3.0)],
        ..NOTHING
    },
    Plant {
        problem: "slow transfer, slower disk",
        code: Some("slow-disk"),
        slow: &[("transfer", 1.0), ("disk", 4.0)],
        ..NOTHING
    },
    Plant { problem: "idle between steps", code: Some("host-gaps"), slow: &[("gap", 2.0)], ..NOTHING },
    Plant {
        problem: "jittery steps",
        code: Some("jittery-steps"),
        slow: &[("step-jitter", 1.0)],
        steps: 24,
        ..NOTHING
    },
    PADDING,
    Plant {
        problem: "wrong limit: clips left out",
        code: Some("clips-left-out"),
        change: |config| config.data.max_mel_frames = 170,
        ..NOTHING
    },
    Plant {
        problem: "nothing held out",
        code: Some("nothing-held-out"),
        change: |config| (config.data.val_split, config.data.train_split) = (0.0, 1.0),
        ..NOTHING
    },
    Plant { problem: "cold cache", code: Some("cold-cache"), change: elsewhere, ..NOTHING },
    Plant {
        problem: "cold cache, slow text",
        code: Some("slow-text"),
        slow: &[("text", 3.0)],
        change: elsewhere,
        ..NOTHING
    },
    Plant {
        problem: "cold cache, slow decoding",
        code: Some("slow-decode"),
        slow: &[("decode", 3.0)],
        steps: LONG,
        change: elsewhere,
        ..NOTHING
    },
    Plant { problem: "damaged clips", code: Some("damaged-clips"), change: damaged, ..NOTHING },
    Plant { problem: "CPU hog beside it", code: Some("cpu-contended"), change: hog, ..NOTHING },
    Plant { problem: "none: late batches, deep buffers", slow: &[("hiccup", 4.0)], steps: 20, ..NOTHING },
    Plant { problem: "none: a slower step", slow: &[("step", 2.0)], ..NOTHING },
    Plant { problem: "none: a slower transfer that is hidden", slow: &[("transfer", 0.2)], ..NOTHING },
    NOTHING,
    NOTHING,
];

/// Marks for the bench, which knows folders.
fn elsewhere(config: &mut Config) {
    config.data.cache_dir = Some("elsewhere".into());
}

fn damaged(config: &mut Config) {
    config.data.dataset_path = Some("damaged".into());
}

fn hog(config: &mut Config) {
    config.training.checkpoint_dir = "hog".into();
}

struct Bench {
    dir: TempDir,
    base: Config,
    /// Milliseconds of a clean step, and of the work in it: they differ where others have the cores.
    step_ms: f64,
    work_ms: f64,
}

/// Starts this process again as `myxtts` starts where other programs want the cores, which the planted work of its workers is:
/// threads of a step that wait for each other sleep. OpenMP reads that before `main`.
fn sleep_while_waiting() {
    const POLICY: &str = "OMP_WAIT_POLICY";
    if env::var_os(POLICY).is_none() {
        let own = env::current_exe().unwrap();
        panic!("{}", Command::new(own).args(env::args_os().skip(1)).env(POLICY, "PASSIVE").exec());
    }
}

impl Bench {
    fn new(text: &str) -> Self {
        sleep_while_waiting();
        let dir = tempfile::tempdir().unwrap();
        let (corpus, file) = (dir.path().join("corpus"), dir.path().join("config.yaml"));
        let args = ["sample-corpus", corpus.to_str().unwrap(), "--clips", CLIPS, "--voice", "formant"];
        assert!(Command::new(env!("CARGO_BIN_EXE_myxtts")).args(args).status().unwrap().success());
        damage(&corpus, &dir.path().join("damaged"));
        fs::write(&file, text).unwrap();
        let mut base = Config::resolve(Some(&file), Overrides::default()).unwrap();
        base.data.dataset_path = Some(corpus);
        base.data.cache_dir = Some(dir.path().join("cache"));
        let mut bench = Bench { dir, base, step_ms: 1.0, work_ms: 1.0 };
        bench.run(&NOTHING).unwrap(); // fills the cache
        bench.calibrate();
        bench
    }

    fn calibrate(&mut self) {
        let measured = self.run(&NOTHING).unwrap();
        self.step_ms = measured.step_ms.mean.clamp(2.0, 400.0);
        self.work_ms = measured.own_step.ms.mean.clamp(2.0, 400.0);
    }

    fn delays(&self, plant: &Plant) -> Delays {
        let delay = |(stage, steps): &(&str, f64)| -> Delay {
            let text = match *stage {
                "step-jitter" => format!("{stage}={}%", steps * 100.0),
                "text" => format!("text={}ms", steps * 10.0),
                "decode" | "load" | "step" => format!("{stage}={:.3}ms", steps * self.work_ms),
                _ => format!("{stage}={:.3}ms", steps * self.step_ms),
            };
            text.parse().unwrap()
        };
        Delays::of(&plant.slow.iter().map(delay).collect::<Vec<_>>()).unwrap()
    }

    fn config(&self, plant: &Plant) -> (Config, Vec<Hog>) {
        let mut config = self.base.clone();
        (plant.change)(&mut config);
        let inside = |path: &Option<PathBuf>| path.as_ref().map(|path| self.dir.path().join(path));
        (config.data.dataset_path, config.data.cache_dir) =
            (inside(&config.data.dataset_path), inside(&config.data.cache_dir));
        if config.data.cache_dir.as_ref().is_some_and(|dir| dir.ends_with("elsewhere")) {
            let _ = fs::remove_dir_all(config.data.cache_dir.as_ref().unwrap());
        }
        config.data.max_failures = MaxFailures::Percent(50.0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let hogs = if config.training.checkpoint_dir == Path::new("hog") { cores * 2 } else { 0 };
        (config, (0..hogs).map(|_| Hog::start()).collect())
    }

    /// The run, or the finding that ended it.
    fn run(&self, plant: &Plant) -> Result<RunMeasurement, Finding> {
        let began = Instant::now();
        let (config, _hogs) = self.config(plant);
        let (delays, stop, bar) = (self.delays(plant), AtomicBool::new(false), ProgressBar::hidden());
        let roles = Roles::resolve(&config.training).unwrap();
        let caps = Caps::apply(&config.training, roles).unwrap();
        let hook = delaying(delays, roles.model).unwrap();
        let data = dataset::prepare(&config, KnownTokenizer::Nothing, &|_| (), &stop, &hook).unwrap();
        let plain = RunContext::new(&config, &data, (roles, caps), &bar, &stop, began);
        let context = RunContext { hook: &hook, ..plain };
        let measured = measure(&context, plant.steps);
        measured.map_err(|error| of_error(&error).unwrap())
    }

    fn findings(&self, plant: &Plant) -> Vec<Finding> {
        match self.run(plant) {
            Ok(mut measured) => {
                measured.host.iter_mut().for_each(|host| host.cores = plant.cores);
                verdict(&measured)
            }
            Err(finding) => vec![finding],
        }
    }

    /// A line of the table, and whether it is right. Where the machine's speed changed meanwhile, the delays no longer fit
    /// its steps: what is missed is tried again with new ones, and the table says so.
    fn judge(&mut self, plant: &Plant) -> (String, bool) {
        let began = Instant::now();
        let of_the_machine = |finding: &Finding| OF_THE_MACHINE.contains(&finding.code);
        let expected = |finding: &&Finding| plant.code == Some(finding.code) || !of_the_machine(finding);
        let mut found = self.findings(plant);
        let is_right = |found: &[Finding]| found.iter().find(expected).map(|finding| finding.code) == plant.code;
        let mut tries = 1;
        while tries < ATTEMPTS {
            if is_right(&found) {
                break;
            }
            self.calibrate();
            found = self.findings(plant);
            tries += 1;
        }
        let (first, right) = (found.iter().find(expected), is_right(&found));
        let name = |finding: &Finding| format!("{} {:.0} %", finding.code, finding.cost * 100.0);
        let rest = found.iter().filter(|finding| first != Some(finding)).map(name).collect::<Vec<_>>().join(", ");
        let problem = if plant.problem.is_empty() { "none" } else { plant.problem };
        let (wanted, mark) = (plant.code.unwrap_or("–"), if right { "yes" } else { "NO" });
        let mark = if tries > 1 { format!("{mark}, try {tries}") } else { mark.to_owned() };
        let line = format!("| {problem} | {wanted} | {} | {mark} | {rest} |", first.map_or("–".into(), name));
        println!("{line}  <!-- {:.1} s -->", began.elapsed().as_secs_f64());
        found.iter().filter(|_| !right).for_each(|finding| println!("     {}", finding.fact));
        (line, right)
    }

    fn judge_all(&mut self, plants: &[Plant]) {
        println!("one clean step takes {:.1} ms, its work {:.1} ms", self.step_ms, self.work_ms);
        println!("| planted | expected | first finding | right | besides |");
        println!("|---|---|---|---|---|");
        let judged: Vec<(String, bool)> = plants.iter().map(|plant| self.judge(plant)).collect();
        let wrong: Vec<&str> = judged.iter().filter(|(_, right)| !right).map(|(line, _)| line.as_str()).collect();
        println!("{} of {} right", plants.len() - wrong.len(), plants.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// A copy of the corpus, of which three recordings end after their header.
fn damage(corpus: &Path, into: &Path) {
    assert!(Command::new("cp").arg("-r").args([corpus, into]).status().unwrap().success());
    let mut recordings: Vec<PathBuf> =
        fs::read_dir(into.join("wavs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    recordings.sort();
    for path in &recordings[..3] {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..20]).unwrap();
    }
}

/// Another program that takes a core.
struct Hog(Child);

impl Hog {
    fn start() -> Self {
        let mut command = Command::new("sh");
        Hog(command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn planted_problems_are_named_first_and_clean_runs_report_none() {
    let _alone = ALONE.lock().unwrap();
    Bench::new(CONFIG).judge_all(PLANTS);
}

/// `MYXTTS_CLEAN_RUNS=20 cargo test --release --test diagnosis clean_runs -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn clean_runs_raise_no_alarm() {
    let _alone = ALONE.lock().unwrap();
    let runs = std::env::var("MYXTTS_CLEAN_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(20);
    Bench::new(CONFIG).judge_all(&(0..runs).map(|_| NOTHING).collect::<Vec<_>>());
}

/// A voice large enough to keep a GPU busy, on a corpus that is small enough to be made in seconds.
const GPU_CONFIG: &str = "
model: {size: tiny}
training: {device: cuda, model_start_delay: 2}
data: {batch_size: 24, num_workers: 2, prefetch_buffer_size: 8, val_split: 0.1, language: en, tokenizer: characters}
";

const GPU: Plant = Plant { steps: 60, ..NOTHING };
const GPU_PLANTS: &[Plant] = &[
    GPU,
    Plant { problem: "slow decoding", code: Some("slow-decode"), slow: &[("decode", 2.0)], ..GPU },
    Plant { problem: "slow disk", code: Some("slow-disk"), slow: &[("disk", 2.0)], ..GPU },
    Plant { steps: GPU.steps, ..TOO_FEW_WORKERS },
    Plant { steps: GPU.steps, ..ONE_LOCK },
    Plant { problem: "slow copy to the GPU", code: Some("slow-copy"), slow: &[("copy", 3.0)], ..GPU },
    Plant { problem: "data device saturated", code: Some("data-device-saturated"), slow: &[("features", 3.0)], ..GPU },
    Plant { problem: "slow transfer", code: Some("slow-transfer"), slow: &[("transfer", 3.0)], ..GPU },
    Plant {
        problem: "features on the CPU",
        code: Some("cpu-features"),
        slow: &[("features", 3.0)],
        change: |config| config.training.data_device = DataDevice::Cpu,
        ..GPU
    },
    Plant { problem: "idle between steps", code: Some("host-gaps"), slow: &[("gap", 2.0)], ..GPU },
    Plant { problem: "jittery steps", code: Some("jittery-steps"), slow: &[("step-jitter", 1.0)], ..GPU },
    Plant {
        problem: "launch-bound: tiny batches, graphs off",
        code: Some("launch-bound"),
        change: |config| (config.training.enable_xla, config.data.batch_size) = (false, 2),
        ..GPU
    },
    Plant {
        problem: "no prefetching",
        code: Some("no-prefetch"),
        slow: &[("features", 0.6)],
        change: |config| config.data.prefetch_to_gpu = false,
        ..GPU
    },
    Plant { steps: GPU.steps, ..PADDING },
    GPU,
    // Last: a cap holds for the process.
    Plant {
        problem: "cap too small",
        code: Some("cap-too-small"),
        change: |config| {
            config.model.size = Size::Tiny;
            config.training.enable_memory_isolation = true;
            config.training.data_gpu_memory = Some(MemoryCap::Mib(64));
            config.training.model_gpu_memory = Some(MemoryCap::Mib(128));
        },
        ..GPU
    },
];

#[test]
#[ignore = "needs a GPU"]
fn planted_problems_are_named_on_a_gpu() {
    let _alone = ALONE.lock().unwrap();
    Bench::new(GPU_CONFIG).judge_all(GPU_PLANTS);
}
