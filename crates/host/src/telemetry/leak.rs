//! Does memory grow without end? A leak is small against what a step takes and gives back, so only the floor counts:
//! the least that was in use in each window of steps.
//!
//! The floor must rise in every one of the last ten windows, evenly, by enough in all, and no slower than it did before.
//! So a plateau that rises once (validation), a sawtooth, and caches that fill up are no leaks. The same test runs on
//! windows of twice, four times … the length: slow leaks, noisy ones, and those in rare lumps, show there.
//!
//! Its limits: a rise that settles with a time constant of more than some 30 of the shortest windows, and a single tooth
//! longer than ten of them, look like a leak until they end.

use super::median;
use std::fmt;

const MIB: f64 = (1u64 << 20) as f64;
/// Windows that must all rise: 1 in 10! for noise.
const RISING: usize = 10;
/// Windows kept at each length, to see whether the rise slows down, and how many there must be.
const KEPT: usize = 20;
const LEAST: usize = 15;
/// How far a rise may lie from the usual one, as a share of it.
const EVEN: f64 = 0.5;
/// A leak does not tire: the later half of its rises is at least this share of the earlier.
const STEADY: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeakSettings {
    /// From the first observed step on; not looked at.
    pub warm_up_steps: u64,
    /// The shortest window.
    pub window_steps: u64,
    /// A rise over ten windows that is worth a word.
    pub min_rise_bytes: u64,
}

impl LeakSettings {
    /// Settings for the caching allocator's allocated bytes, which are exact.
    pub const DEVICE: LeakSettings = LeakSettings { warm_up_steps: 50, window_steps: 20, min_rise_bytes: 8 << 20 };
    /// For [`host_bytes`]: the C library's heap gives memory back late and in pieces.
    pub const HOST: LeakSettings = LeakSettings { min_rise_bytes: 32 << 20, ..LeakSettings::DEVICE };
}

/// Watches the memory of one role.
#[derive(Debug)]
pub struct LeakDetector {
    role: &'static str,
    limit_bytes: Option<u64>,
    settings: LeakSettings,
    first_step: Option<u64>,
    /// The window that is being filled: (number, floor).
    open: Option<Floor>,
    /// Windows of `window_steps`, of twice that, and so on.
    levels: Vec<Level>,
    /// Windows that may stay quiet before growth counts as new; 0 when none was reported.
    reported: usize,
}

#[derive(Clone, Copy, Debug)]
struct Floor {
    window: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Level {
    floors: Vec<Floor>,
    /// Half of a window of the next level.
    half: Option<Floor>,
    growth: Option<Growth>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Growth {
    bytes_per_step: f64,
    steps: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MemoryGrowth {
    pub role: &'static str,
    pub step: u64,
    pub mib_per_1000_steps: f64,
    /// What the finding rests on.
    pub over_steps: u64,
    pub used_bytes: u64,
    pub limit_bytes: Option<u64>,
    /// At this pace.
    pub full_in_steps: Option<u64>,
}

impl LeakDetector {
    /// `limit_bytes`: the role's memory cap, or what the card has.
    pub fn new(role: &'static str, limit_bytes: Option<u64>, settings: LeakSettings) -> Self {
        let (first_step, open, levels, reported) = Default::default();
        LeakDetector { role, limit_bytes, settings, first_step, open, levels, reported }
    }

    /// What is in use after `step`; every step, or every few, as long as a window sees several. A finding comes once,
    /// and again only after the growth has stopped in between.
    pub fn observe(&mut self, step: u64, bytes: u64) -> Option<MemoryGrowth> {
        let since_start = step.saturating_sub(*self.first_step.get_or_insert(step));
        let window = since_start.checked_sub(self.settings.warm_up_steps)? / self.settings.window_steps.max(1);
        match &mut self.open {
            Some(open) if open.window == window => open.bytes = open.bytes.min(bytes),
            open => {
                let closed = open.replace(Floor { window, bytes })?;
                self.close(0, closed);
                return self.judge(step, bytes);
            }
        }
        None
    }

    /// Adds a finished window, and with every second one a window of the next level.
    fn close(&mut self, level: usize, floor: Floor) {
        if self.levels.len() == level {
            self.levels.push(Level::default());
        }
        let window_steps = self.settings.window_steps << level;
        let this = &mut self.levels[level];
        this.floors.push(floor);
        if this.floors.len() > KEPT {
            this.floors.remove(0);
        }
        this.growth = growth(&this.floors, window_steps, self.settings.min_rise_bytes);
        let pair = Floor { window: floor.window / 2, ..floor };
        match this.half.take() {
            Some(half) if half.window == pair.window => {
                self.close(level + 1, Floor { bytes: half.bytes.min(pair.bytes), ..pair });
            }
            _ => this.half = Some(pair),
        }
    }

    fn judge(&mut self, step: u64, used_bytes: u64) -> Option<MemoryGrowth> {
        let growth = self.levels.iter().find_map(|level| level.growth);
        let memory = if growth.is_some() { KEPT } else { self.reported.saturating_sub(1) };
        let was_reported = std::mem::replace(&mut self.reported, memory) > 0;
        let growth = growth.filter(|_| !was_reported)?;
        let left = self.limit_bytes.map(|limit| limit.saturating_sub(used_bytes) as f64);
        Some(MemoryGrowth {
            role: self.role,
            step,
            mib_per_1000_steps: growth.bytes_per_step * 1e3 / MIB,
            over_steps: growth.steps,
            used_bytes,
            limit_bytes: self.limit_bytes,
            full_in_steps: left.map(|bytes| (bytes / growth.bytes_per_step) as u64),
        })
    }
}

/// The pace of a rise that looks like a leak.
fn growth(floors: &[Floor], window_steps: u64, min_rise_bytes: u64) -> Option<Growth> {
    if floors.len() < LEAST {
        return None;
    }
    let recent = &floors[floors.len() - RISING..];
    let rises: Vec<f64> = floors.windows(2).map(|pair| pair[1].bytes as f64 - pair[0].bytes as f64).collect();
    let recent_rises = &rises[rises.len() + 1 - RISING..];
    let enough = recent_rises.iter().sum::<f64>() >= min_rise_bytes as f64;
    (enough && is_even(recent_rises) && is_steady(recent_rises) && is_steady(&rises)).then(|| Growth {
        bytes_per_step: theil_sen(recent) / window_steps as f64,
        steps: (recent[RISING - 1].window - recent[0].window) * window_steps,
    })
}

/// No jumps and no pauses. Where noise makes a leak uneven, longer windows show it.
fn is_even(rises: &[f64]) -> bool {
    let usual = median(rises);
    rises.iter().all(|rise| (rise - usual).abs() <= EVEN * usual)
}

fn is_steady(rises: &[f64]) -> bool {
    let half = rises.len() / 2;
    let [earlier, later] = [&rises[..half], &rises[rises.len() - half..]].map(|half| half.iter().sum::<f64>());
    later >= STEADY * earlier
}

/// Bytes per window: the median slope over all pairs (Theil 1950, Sen 1968).
fn theil_sen(floors: &[Floor]) -> f64 {
    let pairs = floors.iter().enumerate().flat_map(|(i, a)| floors[i + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.map(|(a, b)| (b.bytes as f64 - a.bytes as f64) / (b.window - a.window) as f64);
    median(&slopes.collect::<Vec<f64>>())
}

impl fmt::Display for MemoryGrowth {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{} memory grows by {:.1} MiB per 1,000 steps (seen over {} steps, {:.0} MiB now)",
            self.role,
            self.mib_per_1000_steps,
            self.over_steps,
            self.used_bytes as f64 / MIB
        )?;
        match (self.limit_bytes, self.full_in_steps) {
            (Some(limit), Some(steps)) => write!(f, "; {:.0} MiB are full in {steps} steps", limit as f64 / MIB),
            _ => Ok(()),
        }
    }
}

/// This process's own memory. Without the pages of mapped files, which come and go as the kernel likes; `None` where
/// the system does not tell.
pub fn host_bytes() -> Option<u64> {
    anonymous_bytes(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn anonymous_bytes(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const GIB: f64 = 1024.0 * MIB;

    /// The first finding over `steps` steps of a series.
    fn first(settings: LeakSettings, steps: u64, mut series: impl FnMut(u64) -> f64) -> Option<MemoryGrowth> {
        let mut detector = LeakDetector::new("model", Some(80 << 30), settings);
        (1..=steps).find_map(|step| detector.observe(step, series(step) as u64))
    }

    fn noise(rng: &mut Rng, amplitude: f64) -> f64 {
        rng.next_u64() as f64 / u64::MAX as f64 * amplitude
    }

    #[test]
    fn the_planted_leak_is_found_within_fifteen_windows() {
        let found = first(LeakSettings::DEVICE, 2000, |step| 4.0 * GIB + (step / 10) as f64 * MIB).unwrap();
        assert!(found.step <= 50 + 15 * 20 + 1, "{found:?}");
        assert!((found.mib_per_1000_steps - 100.0).abs() < 3.0, "{found:?}");
        let left_mib = (80.0 - 4.0) * 1024.0;
        assert!((found.full_in_steps.unwrap() as f64 / (left_mib * 10.0) - 1.0).abs() < 0.05, "{found:?}");
        let text = found.to_string();
        assert!(text.starts_with("model memory grows by 100.0 MiB per 1,000 steps (seen over 180 steps, "), "{text}");
        assert!(text.contains("; 81920 MiB are full in 7"), "{text}");
    }

    const LEAK_KIB: &str = "MYXTTS_TEST_LEAK_KIB";

    /// Real memory of a process of its own: other tests would allocate beside it.
    #[test]
    fn a_leak_of_real_memory_is_found_and_a_clean_run_is_not_blamed() {
        for (leak_kib, told) in [("0", "quiet"), ("96", "host memory grows by")] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "telemetry::leak::tests::a_process_that_may_leak", "--ignored", "--nocapture"]);
            let output = child.env(LEAK_KIB, leak_kib).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains(told), "{leak_kib} KiB a step: {text}");
        }
    }

    #[test]
    #[ignore = "a part of the test above, which runs it"]
    fn a_process_that_may_leak() {
        let leak_kib: usize = std::env::var(LEAK_KIB).map_or(0, |kib| kib.parse().unwrap());
        let (mut detector, mut kept) = (LeakDetector::new("host", None, LeakSettings::HOST), Vec::new());
        let finding = (1..=1500).find_map(|step| {
            let work = vec![1u8; (1 + step as usize % 3) << 20]; // what a step takes and gives back
            kept.push(vec![1u8; leak_kib << 10]);
            std::hint::black_box(&work);
            detector.observe(step, host_bytes()?)
        });
        println!("{}", finding.map_or("quiet".into(), |finding| finding.to_string()));
    }

    #[test]
    fn one_finding_per_stretch() {
        let mut detector = LeakDetector::new("data", None, LeakSettings::DEVICE);
        let leaking = |step: u64| (step.min(2000) + step.saturating_sub(12_000)) << 17;
        let found: Vec<u64> =
            (1..14_000).filter_map(|step| detector.observe(step, leaking(step))).map(|found| found.step).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0] < 400 && (12_000..12_800).contains(&found[1]), "{found:?}");
    }

    /// A kilobyte a step: invisible in a short window, eight MiB after 8,000 steps.
    #[test]
    fn slow_leaks_and_leaks_in_rare_lumps_are_found_in_longer_windows() {
        let slow = first(LeakSettings::DEVICE, 100_000, |step| GIB + step as f64 * 1024.0).unwrap();
        assert!((8_000..25_000).contains(&slow.step), "{slow:?}");
        assert!((slow.mib_per_1000_steps - 0.977).abs() < 0.05, "{slow:?}");
        let lumps = first(LeakSettings::DEVICE, 20_000, |step| GIB + (step / 250) as f64 * 20.0 * MIB).unwrap();
        assert!(lumps.step < 10_000, "{lumps:?}");
        assert!((lumps.mib_per_1000_steps - 80.0).abs() < 20.0, "{lumps:?}");
    }

    /// The loop logs, and so observes, every tenth step; and it goes on from a checkpoint.
    #[test]
    fn sparse_observations_of_a_resumed_run() {
        let mut detector = LeakDetector::new("model", None, LeakSettings::DEVICE);
        let mut steps = (50_000..51_000).step_by(10);
        let found = steps.find_map(|step| detector.observe(step, 3 << 30 | step << 17)).unwrap();
        assert!(found.step <= 50_000 + 370 && found.full_in_steps.is_none(), "{found:?}");
        assert!((found.mib_per_1000_steps - 125.0).abs() < 3.0, "{found:?}");
    }

    /// Caches that fill: each kind of batch takes its workspace once (the coupon collector), then nothing grows.
    #[test]
    fn workspaces_by_batch_shape_are_no_leak() {
        let mut rng = Rng::new(&[7]);
        let mut seen = std::collections::HashSet::new();
        let series = |_| {
            seen.insert(rng.below(300));
            6.0 * GIB + seen.len() as f64 * 3.0 * MIB
        };
        assert_eq!(first(LeakSettings::DEVICE, 20_000, series), None);
    }

    #[test]
    fn a_host_heap_that_settles_is_quiet_and_one_that_grows_is_not() {
        // Arenas: a mean-reverting walk in pages of 128 KiB, around a plateau that is reached slowly.
        let heap = |leak_per_step: f64| {
            let (mut rng, mut walk) = (Rng::new(&[3]), 0.0);
            move |step: u64| {
                walk = 0.98 * walk + (noise(&mut rng, 2.0) - 1.0) * 4.0 * MIB;
                let settled = 2.0 * GIB * (1.0 - (-(step as f64) / 400.0).exp());
                ((8.0 * GIB + settled + walk + leak_per_step * step as f64) / 131_072.0).round() * 131_072.0
            }
        };
        assert_eq!(first(LeakSettings::HOST, 50_000, heap(0.0)), None);
        let found = first(LeakSettings::HOST, 50_000, heap(0.1 * MIB)).unwrap();
        assert!((found.mib_per_1000_steps - 100.0).abs() < 40.0, "{found:?}");
        let noisy = first(LeakSettings::HOST, 200_000, heap(0.01 * MIB)).unwrap();
        assert!((noisy.mib_per_1000_steps - 10.0).abs() < 5.0, "{noisy:?}");
    }

    #[test]
    fn anonymous_memory_is_read_by_name() {
        assert_eq!(anonymous_bytes("VmRSS:\t 900 kB\nRssAnon:\t     512 kB\nRssFile:\t 388 kB\n"), Some(512 * 1024));
        assert_eq!(anonymous_bytes("VmRSS:\t 900 kB\n"), None);
        assert!(host_bytes().is_none_or(|bytes| bytes > 0));
    }

    /// What a healthy run may do to memory, all at once.
    #[derive(Clone, Debug)]
    struct Clean {
        seed: u64,
        noise: f64,
        tooth: f64,
        tooth_steps: u64,
        jumps: Vec<(u64, f64)>,
        settling: f64,
        settling_steps: f64,
    }

    impl Clean {
        fn bytes(&self, rng: &mut Rng, step: u64) -> f64 {
            let jumps: f64 = self.jumps.iter().filter(|(at, _)| *at <= step).map(|(_, height)| height).sum();
            let settled = self.settling * (1.0 - (-(step as f64) / self.settling_steps).exp());
            let tooth = self.tooth * (step % self.tooth_steps) as f64 / self.tooth_steps as f64;
            GIB + noise(rng, self.noise) + tooth + jumps + settled
        }
    }

    fn clean() -> impl Strategy<Value = Clean> {
        let amplitude = |most: f64| prop_oneof![Just(0.0), 0.0..most];
        let jumps = prop::collection::vec((0..4000u64, -0.3 * GIB..4.0 * GIB), 0..4);
        let tooth = (amplitude(GIB), 1..60u64);
        (any::<u64>(), amplitude(2.0 * GIB), tooth, jumps, amplitude(2.0 * GIB), 1.0..400.0).prop_map(
            |(seed, noise, (tooth, tooth_steps), jumps, settling, settling_steps)| Clean {
                seed,
                noise,
                tooth,
                tooth_steps,
                jumps,
                settling,
                settling_steps,
            },
        )
    }

    proptest! {
        // One seed: of random healthy runs, about 1 in 10,000 fools any test that must answer within 15 windows.
        #![proptest_config(ProptestConfig { cases: 1000, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn healthy_runs_are_quiet(clean in clean()) {
            let mut rng = Rng::new(&[clean.seed]);
            prop_assert_eq!(first(LeakSettings::DEVICE, 6000, |step| clean.bytes(&mut rng, step)), None);
        }

        /// Any pace from the planted one up, from any step on, over noise and teeth of up to 64 MiB.
        #[test]
        fn leaks_are_found_and_measured(
            seed in any::<u64>(),
            pace in 0.1..10.0f64,
            start in 0..3000u64,
            noise_mib in 0.0..64.0f64,
            tooth_steps in 1..20u64,
        ) {
            let mut rng = Rng::new(&[seed]);
            let series = |step: u64| {
                let leaked = step.saturating_sub(start) as f64 * pace * MIB;
                GIB + leaked + (step % tooth_steps) as f64 * MIB + noise(&mut rng, noise_mib * MIB)
            };
            let found = first(LeakSettings::DEVICE, start + 6000, series);
            prop_assert!(found.is_some());
            let found = found.unwrap();
            prop_assert!((found.mib_per_1000_steps / (pace * 1e3) - 1.0).abs() < 0.5, "{found:?}");
            prop_assert!(found.step > start && found.step < start.max(100) + 5000, "{found:?}");
        }
    }
}
