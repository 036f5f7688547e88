//! Where the time goes: every stage counts how long its threads worked and waited, every queue how full it was.
//!
//! Threads share these clocks without a lock, and a wait that has not ended yet counts already: a pipeline that stands
//! still shows what it stands on. Two snapshots and their difference give shares of the time between them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

/// The unit of all sums, so that they last: 64 threads or queued items may wait for a year. Times are rounded down at
/// both ends of an interval, which averages out.
const TICK_NS: u64 = 256;

/// Ticks since the process first asked.
fn now_ticks() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    (START.get_or_init(Instant::now).elapsed().as_nanos() as u64 / TICK_NS) as i64
}

/// How many are inside, and the time they have spent there, both in one word so that they are always read together.
///
/// `enter` at tick t adds 2⁵⁴ − t, `leave` takes away 2⁵⁴ − t. With `n` inside the word is n · (2⁵⁴ − now) + the time
/// spent by all until now; the time is far below 2⁵³, so a division tells them apart. Additions commute: threads may
/// come in any order. Up to 511 may be inside at once.
#[derive(Debug, Default)]
struct Meter(AtomicI64);

const INSIDE: i64 = 1 << 54;

impl Meter {
    /// How many were inside before.
    fn enter(&self, now: i64) -> i64 {
        split(self.0.fetch_add(INSIDE - now, Relaxed), now).0
    }

    fn leave(&self, now: i64) -> i64 {
        split(self.0.fetch_sub(INSIDE - now, Relaxed), now).0
    }

    /// (inside, ticks spent). `now` is asked for after the word is read, so no `enter` in it is later.
    fn read(&self, now: impl FnOnce() -> i64) -> (i64, i64) {
        let word = self.0.load(Relaxed);
        split(word, now())
    }
}

/// Rounds to the nearest count, so that two threads whose clocks were read in the other order do no harm.
fn split(word: i64, now: i64) -> (i64, i64) {
    let unit = INSIDE - now;
    let inside = (word + unit / 2).div_euclid(unit);
    (inside, word - inside * unit)
}

/// One step of the pipeline, such as "read" or "host-to-device", which several threads may work at.
#[derive(Debug)]
pub struct Stage {
    name: &'static str,
    busy: Meter,
    blocked_full: Meter,
    blocked_empty: Meter,
    items: AtomicU64,
}

impl Stage {
    pub fn new(name: &'static str) -> Self {
        let (busy, blocked_full, blocked_empty) = Default::default();
        Stage { name, busy, blocked_full, blocked_empty, items: AtomicU64::new(0) }
    }

    /// Until the timer is dropped, this thread works.
    pub fn busy(&self) -> Timer<'_> {
        Timer::start(&self.busy)
    }

    /// Until the timer is dropped, this thread waits for room in the queue behind the stage.
    pub fn blocked_full(&self) -> Timer<'_> {
        Timer::start(&self.blocked_full)
    }

    /// Until the timer is dropped, this thread waits for something to work on.
    pub fn blocked_empty(&self) -> Timer<'_> {
        Timer::start(&self.blocked_empty)
    }

    /// Items that the stage has finished.
    pub fn done(&self, items: u64) {
        self.items.fetch_add(items, Relaxed);
    }

    fn read(&self, now: impl Fn() -> i64) -> StageReading {
        let ns = |meter: &Meter| meter.read(&now).1.max(0) as u64 * TICK_NS;
        StageReading {
            name: self.name,
            busy_ns: ns(&self.busy),
            blocked_full_ns: ns(&self.blocked_full),
            blocked_empty_ns: ns(&self.blocked_empty),
            items: self.items.load(Relaxed),
        }
    }
}

/// Costs two reads of the clock and two atomic additions.
#[must_use = "the time counts until the timer is dropped"]
pub struct Timer<'a>(&'a Meter);

impl<'a> Timer<'a> {
    fn start(meter: &'a Meter) -> Self {
        meter.enter(now_ticks());
        Timer(meter)
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.0.leave(now_ticks());
    }
}

/// How full a queue is over time.
#[derive(Debug)]
pub struct Queue {
    name: &'static str,
    capacity: usize,
    /// Items in the queue; their waiting times add up to occupancy × time.
    waiting: Meter,
    /// One inside whenever nothing waits.
    empty: Meter,
}

impl Queue {
    /// Starts empty.
    pub fn new(name: &'static str, capacity: usize) -> Self {
        Self::new_at(name, capacity, now_ticks())
    }

    fn new_at(name: &'static str, capacity: usize, now: i64) -> Self {
        let queue = Queue { name, capacity, waiting: Meter::default(), empty: Meter::default() };
        queue.empty.enter(now);
        queue
    }

    /// After the item was handed over. The receiver may be faster than this call; the sums come out right.
    pub fn push(&self) {
        self.push_at(now_ticks());
    }

    /// After an item was taken.
    pub fn pop(&self) {
        self.pop_at(now_ticks());
    }

    pub fn len(&self) -> usize {
        self.waiting.read(now_ticks).0.max(0) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push_at(&self, now: i64) {
        if self.waiting.enter(now) == 0 {
            self.empty.leave(now);
        }
    }

    fn pop_at(&self, now: i64) {
        if self.waiting.leave(now) == 1 {
            self.empty.enter(now);
        }
    }

    fn read(&self, now: impl Fn() -> i64) -> QueueReading {
        let (len, waiting) = self.waiting.read(&now);
        let (_, empty) = self.empty.read(&now);
        QueueReading {
            name: self.name,
            capacity: self.capacity,
            len: len.max(0) as usize,
            waiting_ns: waiting.max(0) as u64 * TICK_NS,
            empty_ns: empty.max(0) as u64 * TICK_NS,
        }
    }
}

/// All clocks of a run.
#[derive(Debug, Default)]
pub struct Board {
    /// Locked to register and to read, never to count.
    clocks: Mutex<Clocks>,
}

#[derive(Debug, Default)]
struct Clocks {
    stages: Vec<Arc<Stage>>,
    queues: Vec<Arc<Queue>>,
}

impl Board {
    /// The stage of this name; made when it is asked for first.
    pub fn stage(&self, name: &'static str) -> Arc<Stage> {
        let stages = &mut self.lock().stages;
        if let Some(stage) = stages.iter().find(|stage| stage.name == name) {
            return stage.clone();
        }
        stages.push(Arc::new(Stage::new(name)));
        stages[stages.len() - 1].clone()
    }

    /// The queue of this name; made, empty, when it is asked for first.
    pub fn queue(&self, name: &'static str, capacity: usize) -> Arc<Queue> {
        let queues = &mut self.lock().queues;
        if let Some(queue) = queues.iter().find(|queue| queue.name == name) {
            return queue.clone();
        }
        queues.push(Arc::new(Queue::new(name, capacity)));
        queues[queues.len() - 1].clone()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_by(now_ticks)
    }

    fn snapshot_by(&self, now: impl Fn() -> i64) -> Snapshot {
        let clocks = self.lock();
        Snapshot {
            at_ns: now() as u64 * TICK_NS,
            stages: clocks.stages.iter().map(|stage| stage.read(&now)).collect(),
            queues: clocks.queues.iter().map(|queue| queue.read(&now)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Clocks> {
        self.clocks.lock().expect("no holder of this lock panics")
    }
}

/// Everything counted since the start, in the order of registration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub at_ns: u64,
    pub stages: Vec<StageReading>,
    pub queues: Vec<QueueReading>,
}

/// Nanoseconds of all threads together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageReading {
    pub name: &'static str,
    pub busy_ns: u64,
    pub blocked_full_ns: u64,
    pub blocked_empty_ns: u64,
    pub items: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReading {
    pub name: &'static str,
    pub capacity: usize,
    pub len: usize,
    /// Summed over the items.
    pub waiting_ns: u64,
    pub empty_ns: u64,
}

/// What happened between two snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    pub wall_ns: u64,
    pub stages: Vec<StageShares>,
    pub queues: Vec<QueueShares>,
}

/// Shares of wall time; 1 is one thread all the time, so a stage of four threads may come to 4.
#[derive(Clone, Debug, PartialEq)]
pub struct StageShares {
    pub name: &'static str,
    pub busy: f64,
    pub blocked_full: f64,
    pub blocked_empty: f64,
    pub items_per_second: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct QueueShares {
    pub name: &'static str,
    pub capacity: usize,
    /// At the end of the interval.
    pub len: usize,
    /// Items waiting, on average over time.
    pub mean_len: f64,
    /// Share of the time that nothing waited.
    pub empty: f64,
}

impl Snapshot {
    /// Clocks that `earlier` does not have yet count from zero.
    pub fn since(&self, earlier: &Snapshot) -> Interval {
        let wall_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / wall_ns.max(1) as f64;
        let stages = self.stages.iter().map(|now| {
            let before = earlier.stages.iter().find(|stage| stage.name == now.name).cloned().unwrap_or_default();
            StageShares {
                name: now.name,
                busy: share(now.busy_ns, before.busy_ns),
                blocked_full: share(now.blocked_full_ns, before.blocked_full_ns),
                blocked_empty: share(now.blocked_empty_ns, before.blocked_empty_ns),
                items_per_second: share(now.items, before.items) * 1e9,
            }
        });
        let queues = self.queues.iter().map(|now| {
            let before = earlier.queues.iter().find(|queue| queue.name == now.name).cloned().unwrap_or_default();
            QueueShares {
                name: now.name,
                capacity: now.capacity,
                len: now.len,
                mean_len: share(now.waiting_ns, before.waiting_ns),
                empty: share(now.empty_ns, before.empty_ns),
            }
        });
        Interval { wall_ns, stages: stages.collect(), queues: queues.collect() }
    }
}

impl Interval {
    pub fn stage(&self, name: &str) -> Option<&StageShares> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    pub fn queue(&self, name: &str) -> Option<&QueueShares> {
        self.queues.iter().find(|queue| queue.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const YEAR: i64 = 365 * 24 * 3600 * 1_000_000_000 / TICK_NS as i64;

    #[test]
    fn a_wait_that_has_not_ended_counts_already() {
        let meter = Meter::default();
        assert_eq!(meter.enter(100), 0);
        assert_eq!(meter.read(|| 150), (1, 50));
        assert_eq!(meter.enter(160), 1);
        assert_eq!(meter.read(|| 200), (2, 140));
        assert_eq!(meter.leave(200), 2);
        assert_eq!(meter.leave(210), 1);
        assert_eq!(meter.read(|| 900), (0, 150));
    }

    /// 64 threads at work for a year; and one whose end is counted before its start.
    #[test]
    fn a_meter_lasts_a_long_run_and_takes_calls_in_any_order() {
        let meter = Meter::default();
        (0..64).for_each(|_| _ = meter.enter(5));
        assert_eq!(meter.read(|| YEAR + 5), (64, 64 * YEAR));
        (0..64).for_each(|_| _ = meter.leave(YEAR + 5));
        assert_eq!(meter.read(|| YEAR + 9), (0, 64 * YEAR));
        let early = Meter::default();
        assert_eq!(early.leave(30), 0);
        assert_eq!(early.read(|| 40), (-1, -10));
        early.enter(20);
        assert_eq!(early.read(|| 50), (0, 10));
    }

    proptest! {
        /// Against the sum over intervals, for any overlap of intervals and at any moment.
        #[test]
        fn a_meter_agrees_with_its_intervals(
            intervals in prop::collection::vec((0..1_000_000i64, 0..100_000i64), 0..100),
            at in 0..1_200_000i64,
        ) {
            let meter = Meter::default();
            for &(start, length) in intervals.iter().filter(|(start, _)| *start <= at) {
                meter.enter(start);
                if start + length <= at {
                    meter.leave(start + length);
                }
            }
            let begun = || intervals.iter().filter(|(start, _)| *start <= at);
            let inside = begun().filter(|(start, length)| start + length > at).count() as i64;
            let spent: i64 = begun().map(|(start, length)| (*length).min(at - start)).sum();
            prop_assert_eq!(meter.read(|| at), (inside, spent));
        }

        /// Against a simulation tick by tick.
        #[test]
        fn a_queue_agrees_with_a_simulation(events in prop::collection::vec((1..50i64, prop::bool::ANY), 1..200)) {
            let queue = Queue::new_at("q", 9, 0);
            let (mut now, mut len, mut waiting, mut empty) = (0, 0i64, 0, 0);
            for (pause, push) in events {
                now += pause;
                waiting += len * pause;
                empty += if len == 0 { pause } else { 0 };
                if push {
                    queue.push_at(now);
                    len += 1;
                } else if len > 0 {
                    queue.pop_at(now);
                    len -= 1;
                }
            }
            let reading = queue.read(|| now);
            prop_assert_eq!(reading.len as i64, len);
            prop_assert_eq!(reading.waiting_ns, waiting as u64 * TICK_NS);
            prop_assert_eq!(reading.empty_ns, empty as u64 * TICK_NS);
        }
    }

    /// The receiver counts its `pop` before the sender counts its `push`: never negative, and right afterwards.
    #[test]
    fn a_receiver_that_is_faster_than_the_sender_does_no_harm() {
        let queue = Queue::new_at("q", 2, 0);
        queue.pop_at(10);
        assert_eq!(queue.read(|| 12).len, 0);
        queue.push_at(11);
        queue.push_at(20);
        let reading = queue.read(|| 30);
        assert_eq!((reading.len, reading.empty_ns), (1, 20 * TICK_NS));
        assert_eq!(reading.waiting_ns, 9 * TICK_NS); // 10 of the second, less the tick by which the first was overtaken
    }

    #[test]
    fn the_difference_of_two_snapshots_is_shares_of_wall_time() {
        let board = Board::default();
        let (read, queue) = (board.stage("read"), board.queue("ready", 3));
        let base = now_ticks() + 1_000_000; // ahead of the queue's birth, so that everything below is later
        let before = board.snapshot_by(|| base);
        for _ in 0..2 {
            read.busy.enter(base);
            read.busy.leave(base + 60);
        }
        read.blocked_full.enter(base + 60);
        read.done(5);
        queue.push_at(base + 50);
        queue.push_at(base + 75);
        let shares = board.snapshot_by(|| base + 100).since(&before);
        assert_eq!(shares.wall_ns, 100 * TICK_NS);
        let stage = shares.stage("read").unwrap();
        assert_eq!((stage.busy, stage.blocked_full, stage.blocked_empty), (1.2, 0.4, 0.0));
        assert!((stage.items_per_second - 5e9 / (100.0 * TICK_NS as f64)).abs() < 1e-3);
        let ready = shares.queue("ready").unwrap();
        assert_eq!((ready.len, ready.capacity, ready.mean_len, ready.empty), (2, 3, 0.75, 0.5));
        assert!(shares.stage("pack").is_none());
    }

    #[test]
    fn the_same_name_is_the_same_clock() {
        let board = Board::default();
        board.stage("read").done(1);
        board.stage("read").done(2);
        board.queue("ready", 3).push();
        assert_eq!(board.queue("ready", 3).len(), 1);
        let snapshot = board.snapshot();
        assert_eq!((snapshot.stages.len(), snapshot.stages[0].items, snapshot.queues.len()), (1, 3, 1));
    }

    #[test]
    fn threads_count_together() {
        let (stage, queue) = (Stage::new("pack"), Queue::new("q", 100));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _timer = stage.busy();
                        queue.push();
                        stage.done(1);
                        queue.pop();
                    }
                });
            }
        });
        let (inside, ticks) = stage.busy.read(now_ticks);
        assert!(inside == 0 && ticks >= 0);
        assert_eq!(stage.items.load(Relaxed), 8000);
        let (waiting, empty) = (queue.waiting.read(now_ticks), queue.empty.read(now_ticks));
        assert_eq!((waiting.0, empty.0), (0, 1));
    }
}
