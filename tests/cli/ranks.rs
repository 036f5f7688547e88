//! Several ranks, as real processes on this machine: the same numbers as one, and one's end is the end of all.

use super::*;
use std::collections::BTreeSet;
use std::process::Child;

/// Seconds; what ranks are given to notice that one is gone.
const TIMEOUT_S: u64 = 10;

impl Bench {
    /// One of two ranks, as torchrun would start it without serving the store.
    fn rank(&self, rank: usize, port: u16, corpus: &str, more: &[&str]) -> Child {
        started(self.rank_command(rank, port, corpus, more))
    }

    fn rank_command(&self, rank: usize, port: u16, corpus: &str, more: &[&str]) -> Command {
        let mut args = self.train("run", more);
        args[4] = corpus.into();
        let mut command = self.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.args(["--rank-timeout", &TIMEOUT_S.to_string()]);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("WORLD_SIZE", "2").env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command
    }

    fn ranks(&self, corpora: [&str; 2], more: &[&str]) -> [Child; 2] {
        let port = free_port();
        [0, 1].map(|rank| self.rank(rank, port, corpora[rank], more))
    }

    fn wait_for_steps(&self, steps: usize) {
        let path = self.path("run/logs/metrics.jsonl");
        let logged = || fs::read_to_string(&path).is_ok_and(|text| text.lines().count() >= steps);
        let start = Instant::now();
        while !logged() {
            assert!(start.elapsed() < Duration::from_secs(60), "no step was made");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn position(&self, run: &str) -> serde_json::Value {
        newest_state(&self.path(run))["position"].clone()
    }
}

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The same command on a machine of another name: in a namespace that has one of its own.
fn on_machine(name: &str, command: &Command) -> Command {
    let mut there = Command::new("unshare");
    there.args(["--user", "--map-root-user", "--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", name]);
    there.arg(command.get_program()).args(command.get_args());
    there.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.get_current_dir().into_iter().for_each(|dir| _ = there.current_dir(dir));
    there
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn signal(name: &str, process: &Child) {
    assert!(Command::new("kill").args([name, &process.id().to_string()]).status().unwrap().success());
}

/// What a rank said, and with what code it ended, which it must do in time: the callers leave a busy machine some seconds more.
fn ended(process: Child, at_most: Duration) -> (String, Option<i32>) {
    let start = Instant::now();
    let output = process.wait_with_output().unwrap();
    assert!(start.elapsed() < at_most, "after {:?}: {}", start.elapsed(), stderr(&output));
    (stderr(&output), output.status.code())
}

#[test]
fn ranks_end_with_the_weights_of_one_that_accumulates() {
    let bench = Bench::with_corpus();
    for ranks in ["2", "3"] {
        let [alone, together] = ["alone", "together"].map(|name| format!("{name}-{ranks}"));
        bench.train_ok(&alone, &["--grad-accum", ranks]);
        bench.train_ok(&together, &["--ranks", ranks]);
        let weights = |run: &str| bench.weights(&format!("{run}/step-00000008"));
        assert!(weights(&alone) == weights(&together), "{ranks} ranks");
        assert_eq!(bench.position(&alone), bench.position(&together));
        let held_out =
            |run: &str| bench.metrics(run).iter().filter_map(|line| line["validation/loss"].as_f64()).next_back();
        let (one, all) = (held_out(&alone).unwrap(), held_out(&together).unwrap());
        assert!((one - all).abs() < 1e-6 * one, "held out {one} and {all}");
    }
    bench.train_ok("figures", &["--ranks", "2", "--steps", "16"]);
    let figures = bench.metrics("figures");
    assert!(figures.iter().any(|line| line["ranks/exchange_ms"].as_f64().is_some_and(|ms| ms > 0.0)), "{figures:?}");
}

#[test]
fn a_checkpoint_goes_on_with_any_number_of_ranks() {
    let bench = Bench::with_corpus();
    bench.train_ok("straight", &["--grad-accum", "2"]);
    bench.train_ok("run", &["--ranks", "2", "--steps", "4"]);
    fs::create_dir(bench.path("three")).unwrap();
    let copied = Command::new("cp").args(["-r", "run/step-00000004", "three/"]).current_dir(bench.dir.path()).status();
    assert!(copied.unwrap().success());
    bench.train_ok("run", &["--grad-accum", "2", "--resume"]);
    assert!(bench.weights("straight/step-00000008") == bench.weights("run/step-00000008"));
    // From 2 × 4 batches on, three more.
    let batches = |position: serde_json::Value| position["batch"].as_u64().unwrap();
    let epoch = batches(newest_state(&bench.path("three"))["position"].clone());
    bench.train_ok("three", &["--ranks", "3", "--steps", "5", "--resume"]);
    let after = bench.position("three");
    assert!(batches(after.clone()) == epoch + 3 || after["epoch"].as_u64() > Some(0), "{epoch} and {after}");
}

#[test]
fn a_rank_that_is_killed_ends_the_other_with_its_name() {
    let bench = Bench::with_corpus();
    let [first, mut second] = bench.ranks(["corpus"; 2], &["--steps", "1000000"]);
    bench.wait_for_steps(3);
    let killed = second.id();
    second.kill().unwrap();
    let (said, code) = ended(first, Duration::from_secs(TIMEOUT_S + 6));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("error: rank 1 (") && said.contains(&format!("process {killed})")), "{said}");
    assert!(said.contains("hint: the last checkpoint is intact"), "{said}");
    second.wait().unwrap();
    bench.train_ok("run", &["--grad-accum", "2", "--resume", "--steps", "5"]);
}

#[test]
fn a_rank_that_is_stopped_ends_the_other_whichever_it_is() {
    let bench = Bench::with_corpus();
    for (stopped, name) in [(1, "rank 1 ("), (0, "rank 0 (")] {
        let _ = fs::remove_dir_all(bench.path("run"));
        let [first, second] = bench.ranks(["corpus"; 2], &["--steps", "1000000"]);
        bench.wait_for_steps(3);
        let (mut sleeper, other) = if stopped == 0 { (first, second) } else { (second, first) };
        signal("-STOP", &sleeper);
        let (said, code) = ended(other, Duration::from_secs(TIMEOUT_S + 6));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(name) && said.contains("has not answered for"), "{said}");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}

#[test]
fn ranks_that_would_train_on_different_things_do_not_begin() {
    let bench = Bench::with_corpus();
    bench.ok(&["sample-corpus", "other", "--clips", "12", "--voice", "formant"]);
    let both = bench.ranks(["corpus", "other"], &[]).map(|rank| ended(rank, Duration::from_secs(60)));
    for (said, code) in &both {
        assert_eq!(*code, Some(2), "{said}");
        assert!(said.contains("rank 1 (") && said.contains("reads another corpus than rank 0"), "{said}");
    }
    let port = free_port();
    let seeds = [0, 1].map(|rank| bench.rank(rank, port, "corpus", &["--seed", ["5", "6"][rank]]));
    for (said, code) in seeds.map(|rank| ended(rank, Duration::from_secs(60))) {
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("`seed` 6, rank 0 has 5"), "{said}");
    }
    assert!(!bench.path("run/step-00000004").exists());
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let bench = Bench::with_corpus();
    let (said, code) = ended(bench.rank(0, free_port(), "corpus", &[]), Duration::from_secs(TIMEOUT_S + 8));
    assert_eq!(code, Some(2));
    assert!(said.contains("rank 1 of 2 did not come within 10 s"), "{said}");
    let (said, _) = ended(bench.rank(1, free_port(), "corpus", &[]), Duration::from_secs(TIMEOUT_S + 10));
    assert!(said.contains("nobody answered within 10 s") && !said.contains("frame #"), "{said}");
}

#[test]
fn the_launcher_saves_once_and_leaves_nobody_behind() {
    let bench = Bench::with_corpus();
    let args = bench.train("run", &["--ranks", "2", "--steps", "1000000"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let launcher = bench.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bench.wait_for_steps(3);
    signal("-INT", &launcher);
    let output = launcher.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(told.matches("stopped at step").count(), 1, "{told}");
    assert_eq!(stderr(&output).matches("stopping where nothing is lost").count(), 1, "{}", stderr(&output));
    let next = newest_state(&bench.path("run"))["step"].as_u64().unwrap() + 1;
    bench.train_ok("run", &["--ranks", "2", "--steps", &next.to_string(), "--resume"]);
}

/// In a third of an epoch no shard is fetched by both machines; of one machine, both ranks would fetch nearly the same. A run
/// that is resumed begins with the weights of rank 0 on both: that it ends as one that was never stopped shows that both had
/// the same.
#[test]
fn machines_fetch_shards_of_their_own() {
    if !on_machine("a", &Command::new("true")).status().is_ok_and(|status| status.success()) {
        return host::skipped("no namespaces with names of their own");
    }
    let bench = Bench::new();
    bench.ok(&["sample-corpus", "corpus", "--clips", "160", "--voice", "formant"]);
    let config = CONFIG.replace("val_split: 0.1", "val_split: 0.1, shard_size: 50KB, shuffle_shards: 2");
    fs::write(bench.path("config.yaml"), config.replace("save_step: 4", "save_step: 2")).unwrap();
    let bucket = format!("file://{}", bench.path("bucket").display());
    let features = |near: &'static str| ["--cache-dir", &bucket, "--local-cache", near];
    bench.ok(&[&["prepare", "corpus", "--config", "config.yaml"], &features("maker")[..]].concat());
    let train = |near: [&'static str; 2], more: &[&str]| {
        let port = free_port();
        let ranks = [0, 1].map(|rank| {
            let more = [more, &features(near[rank])].concat();
            started(on_machine(near[rank], &bench.rank_command(rank, port, "corpus", &more)))
        });
        for (said, code) in ranks.map(|rank| ended(rank, Duration::from_secs(120))) {
            assert_eq!(code, Some(0), "{said}");
        }
    };
    train(["a", "b"], &["--steps", "4"]);
    let [all, a, b] = ["bucket", "a", "b"].map(|folder| shards(&bench.path(folder)));
    let counts = [&all, &a, &b].map(BTreeSet::len);
    assert!(counts[0] > 100 && counts[1] > 10 && counts[2] > 10 && a.is_disjoint(&b), "{counts:?}");
    let straight = bench.weights("run/step-00000004");
    fs::remove_dir_all(bench.path("run")).unwrap();
    train(["c", "d"], &["--steps", "2"]);
    train(["c", "d"], &["--steps", "4", "--resume"]);
    assert!(bench.weights("run/step-00000004") == straight);
}

/// Names of shards below a folder.
fn shards(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let names = |path: PathBuf| match path.is_dir() {
        true => shards(&path),
        false => path.file_name().map(|name| name.to_string_lossy().into_owned()).into_iter().collect(),
    };
    entries.flat_map(names).filter(|name| name.starts_with("shard-")).collect()
}

#[test]
fn a_vocoder_trains_in_ranks_too() {
    let bench = Bench::with_corpus();
    let train = |folder: &str, more: &[&str]| {
        let fixed = ["train-vocoder", "--config", "config.yaml", "--train-data", "corpus", "--checkpoint-dir", folder];
        bench.ok(&[&fixed[..], &["--steps", "2"], more].concat());
    };
    let small = CONFIG.replace("model: {", "model: {vocoder_dim: 16, vocoder_layers: 1, ");
    fs::write(bench.path("config.yaml"), small).unwrap();
    train("alone", &["--grad-accum", "2"]);
    train("together", &["--ranks", "2"]);
    assert!(bench.weights("alone/step-00000002") == bench.weights("together/step-00000002"));
}

#[test]
fn scaling_is_measured_and_predicted() {
    let bench = Bench::with_corpus();
    let base = ["bench", "scale", "--config", "config.yaml", "--train-data", "corpus", "--num-steps", "10", "--json"];
    for (ranks, more) in [(1, vec![]), (2, vec!["--ranks", "2"])] {
        let report: serde_json::Value = serde_json::from_str(&bench.ok(&[&base[..], &more].concat())).unwrap();
        assert_eq!(report["measured"]["ranks"], ranks);
        assert!(report["measured"]["gradient_bytes"].as_u64().unwrap() > 1000);
        assert_eq!(report["predicted"].as_array().unwrap().len(), 8);
    }
}

/// With a launcher of another project, where it is installed: beside the tests' Python, or in the path.
fn under(launcher: &str, args: &[&str]) {
    let beside = std::env::var_os("MYXTTS_TEST_PYTHON").map(|python| Path::new(&python).with_file_name(launcher));
    let launcher = beside.filter(|path| path.exists()).unwrap_or_else(|| launcher.into());
    if Command::new(&launcher).arg("--help").output().is_err() {
        return host::skipped(&format!("{} is not installed", launcher.display()));
    }
    let bench = Bench::with_corpus();
    bench.train_ok("alone", &["--grad-accum", "2"]);
    let train = bench.train("together", &["--resume"]);
    let mut command = Command::new(&launcher);
    command.args(args).arg(env!("CARGO_BIN_EXE_myxtts")).args(&train).current_dir(bench.dir.path());
    command
        .env("XDG_CACHE_HOME", bench.path("cache"))
        .env("OMP_NUM_THREADS", "1")
        .env("MASTER_PORT", free_port().to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing to resume yet"), "{}", stderr(&output));
    assert!(bench.weights("alone/step-00000008") == bench.weights("together/step-00000008"));
}

#[test]
fn torchrun_starts_ranks() {
    under("torchrun", &["--no-python", "--standalone", "--nproc-per-node", "2"]);
}

#[test]
fn mpirun_starts_ranks() {
    under("mpirun", &["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
}
