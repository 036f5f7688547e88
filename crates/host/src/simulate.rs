//! Stages of the real pipeline slowed down on purpose, to see what a bottleneck looks like: `--simulate stage=delay`.
//!
//! Stages know of no delay. Each has a [`Hook`], which does nothing unless somebody asks for it, and calls it at the
//! [`Moment`]s below; [`Delays::hook`] makes one that waits there, tests make their own.

use crate::error::hinted;
use crate::machine::ThreadClock;
use crate::rng::Rng;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A longer delay is a typing error: nobody wants to wait for it.
const LONGEST: Duration = Duration::from_secs(60);
/// Above it no mixture of short and long steps varies so much.
const MOST_JITTER: f64 = 1.5;
/// One step in so many is a long one.
const LONG_STEP_EVERY: f64 = 4.0;
/// One batch in so many is late.
const HICCUP_EVERY: u64 = 8;

/// A point of the pipeline at which its hook is called, on the thread that does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The cache builder is about to read a recording.
    ReadRecording,
    /// The cache builder is about to decode a recording, which it has in memory.
    DecodeRecording,
    /// The cache builder is about to turn a text into tokens.
    EncodeText,
    /// A worker of the loader is about to make the batch of this number, counted from the start of the run.
    MakeBatch(u64),
    /// A worker of the loader holds the lock on the plan of batches, which all workers share.
    PlanLocked,
    /// A worker of the loader has just released that lock.
    PlanReleased,
    /// A worker of the loader is about to lay a batch: seed, epoch, batch in the epoch.
    LayBatch([u64; 3]),
    /// A worker of the loader is about to open a clip, as an utterance or as a reference, by its index in the cache.
    OpenClip(usize),
    /// A worker of the loader has opened a clip and is about to lay it into the batch as an utterance.
    LayClip,
    /// The feed copies a batch to the data device, between the two events of the copy.
    CopyToData,
    /// The feed makes features, between their two events.
    MakeFeatures,
    /// The feed takes a batch to the model device, between the two events of the transfer.
    TransferToModel,
    /// A step is about to ask for its first batch.
    BeforeStep,
    /// A step has its first batch; its first event has been recorded.
    StepBegins,
    /// Everything of a step is queued on its device; its last event has yet to be recorded.
    StepEnds { seed: u64, number: u64 },
}

/// What is called at every [`Moment`] of the stages that it is given to; nothing by default. A panic in it is a panic of
/// the stage.
#[derive(Clone, Default)]
pub struct Hook(Option<Arc<dyn Fn(Moment) + Send + Sync>>);

impl Hook {
    pub const NONE: Hook = Hook(None);

    pub fn new(call: impl Fn(Moment) + Send + Sync + 'static) -> Self {
        Hook(Some(Arc::new(call)))
    }

    pub fn at(&self, moment: Moment) {
        if let Some(call) = &self.0 {
            call(moment);
        }
    }
}

/// What each stage takes besides its own work; nothing unless it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delays {
    /// Work of a core for each clip: when the cache is built, and when a worker lays it into a batch.
    pub decode: Duration,
    /// The wait of each clip for its bytes, in the same two places.
    pub disk: Duration,
    /// Work of a core for each text, when the cache is built.
    pub text: Duration,
    /// Work of a core for each batch, in a worker.
    pub load: Duration,
    /// Each batch holds a lock that all workers share.
    pub lock: Duration,
    /// One batch in [`HICCUP_EVERY`] comes late.
    pub hiccup: Duration,
    /// From host memory to the data device.
    pub copy: Duration,
    pub features: Duration,
    /// From the data device to the model device.
    pub transfer: Duration,
    pub step: Duration,
    /// Between steps, while the model device has nothing to do and batches are there.
    pub gap: Duration,
    /// Coefficient of variation that steps get on top of their own.
    pub step_jitter: f64,
}

/// A stage's name, what its delay is, and where it is kept.
type Stage = (&'static str, &'static str, fn(&mut Delays) -> &mut Duration);

const STAGES: [Stage; 11] = [
    ("decode", "a core's work for each clip", |delays| &mut delays.decode),
    ("disk", "each clip waits for its bytes", |delays| &mut delays.disk),
    ("text", "a core's work for each text, when the cache is built", |delays| &mut delays.text),
    ("load", "a worker's work for each batch", |delays| &mut delays.load),
    ("lock", "each batch holds a lock that all workers share", |delays| &mut delays.lock),
    ("hiccup", "one batch in eight comes late", |delays| &mut delays.hiccup),
    ("copy", "host memory to the data device", |delays| &mut delays.copy),
    ("features", "on the data device", |delays| &mut delays.features),
    ("transfer", "data device to model device", |delays| &mut delays.transfer),
    ("step", "each training step", |delays| &mut delays.step),
    ("gap", "between steps", |delays| &mut delays.gap),
];
const JITTER: &str = "step-jitter";

/// One `stage=delay`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    stage: &'static str,
    amount: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Time(Duration),
    Share(f64),
}

impl Delays {
    /// Delays of all stages that were asked for; an error where one is asked for twice.
    pub fn of(asked: &[Delay]) -> anyhow::Result<Delays> {
        let mut delays = Delays::default();
        for (index, Delay { stage, amount }) in asked.iter().enumerate() {
            if asked[..index].iter().any(|before| before.stage == *stage) {
                return Err(hinted(format!("--simulate {stage} is given twice"), "give each stage one delay"));
            }
            match (*amount, STAGES.iter().find(|(name, ..)| name == stage)) {
                (Amount::Time(time), Some((.., place))) => *place(&mut delays) = time,
                (Amount::Share(share), _) => delays.step_jitter = share,
                (Amount::Time(_), None) => unreachable!("parsed from the same table"),
            }
        }
        Ok(delays)
    }

    /// A hook that takes these delays. The step is timed by the host's clock, as a step on the CPU is.
    pub fn hook(self) -> Hook {
        if self == Delays::default() {
            return Hook::default();
        }
        let step_began = Mutex::new(Instant::now());
        Hook::new(move |moment| match moment {
            Moment::StepBegins => *step_began.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now(),
            Moment::StepEnds { seed, number } => {
                let took = step_began.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
                work(self.longer_step(took, seed, number));
            }
            other => self.take(other),
        })
    }

    /// What a moment takes, but for those of a step.
    fn take(&self, moment: Moment) {
        match moment {
            Moment::ReadRecording => wait(self.disk),
            Moment::DecodeRecording => work(self.decode),
            Moment::LayClip => {
                wait(self.disk);
                work(self.decode);
            }
            Moment::EncodeText => work(self.text),
            Moment::MakeBatch(number) => {
                wait(if number % HICCUP_EVERY == HICCUP_EVERY - 1 { self.hiccup } else { Duration::ZERO });
                work(self.load);
            }
            Moment::PlanLocked => wait(self.lock),
            Moment::PlanReleased => hand_over(self.lock),
            Moment::CopyToData => wait(self.copy),
            Moment::MakeFeatures => wait(self.features),
            Moment::TransferToModel => wait(self.transfer),
            Moment::BeforeStep => wait(self.gap),
            Moment::LayBatch(_) | Moment::OpenClip(_) | Moment::StepBegins | Moment::StepEnds { .. } => {}
        }
    }

    /// Whether steps take longer than their own work.
    pub fn slows_steps(&self) -> bool {
        !self.step.is_zero() || self.step_jitter > 0.0
    }

    /// How much longer the step of this number takes, whose own work took `took`.
    pub fn longer_step(&self, took: Duration, seed: u64, number: u64) -> Duration {
        self.longer(took, Rng::new(&[seed, number, u64::MAX]).unit())
    }

    /// `draw` is from 0 up to 1.
    ///
    /// One step in four is 1 + k times as long. Then the mean is 1 + k/4 and the deviation k·√3/4, so a coefficient of
    /// variation c takes k = c ÷ (√3/4 − c/4).
    fn longer(&self, took: Duration, draw: f64) -> Duration {
        let is_long = draw < 1.0 / LONG_STEP_EVERY;
        let k = self.step_jitter * LONG_STEP_EVERY / (3f64.sqrt() - self.step_jitter);
        self.step + if is_long { (took + self.step).mul_f64(k) } else { Duration::ZERO }
    }

    /// What `--help` says.
    pub fn help() -> String {
        let stages = STAGES.map(|(name, meaning, _)| format!("{name} ({meaning})")).join(", ");
        format!(
            "Slow a stage down on purpose, such as decode=30ms or {JITTER}=40%; may be given several times: {stages}"
        )
    }
}

impl fmt::Display for Delays {
    /// As it is asked for: "decode=30ms, step-jitter=40%".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = *self;
        let times = STAGES.map(|(name, _, place)| (name, *place(&mut all)));
        let times = times.iter().filter(|(_, time)| !time.is_zero()).map(|(name, time)| format!("{name}={time:?}"));
        let jitter = (self.step_jitter > 0.0).then(|| format!("{JITTER}={}%", self.step_jitter * 100.0));
        f.write_str(&times.chain(jitter).collect::<Vec<_>>().join(", "))
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, amount) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` has no `=`; a delay looks like decode=30ms or {JITTER}=40%"))?;
        let (name, amount) = (name.trim(), amount.trim());
        if name == JITTER {
            return Ok(Delay { stage: JITTER, amount: Amount::Share(share(amount)?) });
        }
        let known = || STAGES.iter().map(|(name, ..)| *name).chain([JITTER]);
        match STAGES.iter().find(|(stage, ..)| *stage == name) {
            Some((stage, ..)) => Ok(Delay { stage, amount: Amount::Time(time(amount)?) }),
            None => {
                let nearest = known().min_by_key(|stage| strsim::damerau_levenshtein(stage, name)).unwrap_or_default();
                let all: Vec<_> = known().collect();
                Err(format!("no stage is called `{name}`; did you mean `{nearest}`? There are {}", all.join(", ")))
            }
        }
    }
}

/// "30ms", "1.5s", "200us"; µs may be written as people write it.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit_s = match &text[digits.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" | "μs" => 1e-6,
        "ns" => 1e-9,
        _ => return Err(format!("`{text}` has no unit; write it like 30ms, 1.5s or 200us")),
    };
    let seconds = digits.trim().parse::<f64>().map_err(|_| format!("`{digits}` in `{text}` is no number"))? * unit_s;
    if !(0.0..=LONGEST.as_secs_f64()).contains(&seconds) {
        return Err(format!("`{text}` is not between 0 and {} s", LONGEST.as_secs()));
    }
    // To the nanosecond: 0.3 ms is not 299.999 µs.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

fn share(text: &str) -> Result<f64, String> {
    let digits = text.strip_suffix('%').ok_or_else(|| format!("`{text}` is no share; write it like 40%"))?;
    let percent: f64 = digits.trim().parse().map_err(|_| format!("`{digits}` in `{text}` is no number"))?;
    let most = MOST_JITTER * 100.0;
    (0.0..=most)
        .contains(&percent)
        .then_some(percent / 100.0)
        .ok_or_else(|| format!("`{text}` is not between 0% and {most}%"))
}

/// Waits as a disk or a bus makes one wait: the core is free for others.
fn wait(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay);
    }
}

/// Leaves a lock that was held on purpose to whoever waits for it: the standard lock is not fair, and one worker that
/// comes back at once would keep it from the others.
fn hand_over(held: Duration) {
    if !held.is_zero() {
        sleep(Duration::from_millis(1));
    }
}

/// Works as a decoder works: a core is taken for so long, however long it takes to get one.
fn work(delay: Duration) {
    if delay.is_zero() {
        return;
    }
    let (clock, start) = (ThreadClock::open(), Instant::now());
    let before = clock.read();
    while clock.since(before).map_or_else(|| start.elapsed(), |ran| ran.ran) < delay {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::telemetry::Spread;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Delay, String> {
        text.parse()
    }

    #[test]
    fn stages_and_units() {
        let asked = ["decode=30ms", "disk=1.5s", "transfer=200us", "text = 7 ns", "step-jitter=40%"];
        let delays = Delays::of(&asked.map(|text| parse(text).unwrap())).unwrap();
        let nanos = [delays.decode, delays.disk, delays.transfer, delays.text].map(|time| time.as_nanos());
        assert_eq!((nanos, delays.step_jitter), ([30_000_000, 1_500_000_000, 200_000, 7], 0.4));
        assert_eq!(delays.to_string(), "decode=30ms, disk=1.5s, text=7ns, transfer=200µs, step-jitter=40%");
        assert_eq!(Delays::default().to_string(), "");
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_is_right() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("decode").contains("no `=`"));
        assert!(error("decoder=3ms").contains("did you mean `decode`"));
        assert!(error("decode=30").contains("no unit"));
        assert!(error("decode=ms").contains("no number"));
        assert!(error("decode=-3ms").contains("between 0 and 60 s"));
        assert!(error("decode=2h").contains("no unit"));
        assert!(error("decode=NaNs").contains("no"));
        assert!(error("step-jitter=3ms").contains("like 40%"));
        assert!(error("step-jitter=400%").contains("between 0% and 150%"));
        let twice = Delays::of(&[parse("disk=1ms").unwrap(), parse("disk=2ms").unwrap()]).unwrap_err();
        assert!(twice.to_string().contains("disk is given twice"));
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_asked_for(times in prop::collection::vec(0u64..60_000_000_000, 11), percent in 0u32..=150) {
            let mut delays = Delays { step_jitter: f64::from(percent) / 100.0, ..Delays::default() };
            STAGES.iter().zip(&times).for_each(|((.., place), nanos)| *place(&mut delays) = Duration::from_nanos(*nanos));
            let shown = delays.to_string();
            let asked: Vec<Delay> = shown.split(", ").filter(|text| !text.is_empty()).map(|text| parse(text).unwrap()).collect();
            let again = Delays::of(&asked).unwrap();
            prop_assert!((again.step_jitter - delays.step_jitter).abs() < 1e-12);
            prop_assert_eq!(Delays { step_jitter: 0.0, ..again }, Delays { step_jitter: 0.0, ..delays });
        }

        #[test]
        fn any_text_is_taken_or_explained(text in "\\PC{0,20}") {
            if let Err(why) = parse(&text) {
                prop_assert!(!why.is_empty());
            }
        }

        /// Against the deviation of many drawn steps.
        #[test]
        fn steps_vary_as_much_as_was_asked(percent in 10u32..=150, seed: u64) {
            let delays = Delays { step_jitter: f64::from(percent) / 100.0, step: Duration::from_millis(3), ..Delays::default() };
            let mut rng = Rng::new(&[seed]);
            let took = Duration::from_millis(7);
            let steps: Spread = (0..4_000).map(|_| (took + delays.longer(took, rng.unit())).as_secs_f64()).collect();
            prop_assert!((steps.cv() / delays.step_jitter - 1.0).abs() < 0.12, "{} {}", steps.cv(), delays.step_jitter);
        }
    }
}
