//! The one bounded queue of the pipeline. It counts what both of its ends wait for: producers for room, because it is
//! full; the consumer for an item, because it is empty; and how many items lie in it meanwhile.
//!
//! What lies in it, what counts as room and in which order items are taken is the state's own business: the loader's is
//! a window over numbered batches, the cache builder's the clips in corpus order, the feed's a ring of slots. A wait that
//! has not ended yet counts already: a pipeline that stands still shows what it stands on.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What lies in a queue.
pub trait Backlog {
    /// Items that are ready to be taken.
    fn ready(&self) -> usize;
}

#[derive(Debug)]
pub struct Queue<S> {
    inner: Mutex<Inner<S>>,
    room: Condvar,
    item: Condvar,
}

#[derive(Debug)]
struct Inner<S> {
    state: S,
    clocks: Clocks,
}

impl<S: Backlog> Queue<S> {
    pub fn new(state: S) -> Self {
        let clocks = Clocks::new(Instant::now(), state.ready());
        Queue { inner: Mutex::new(Inner { state, clocks }), room: Condvar::new(), item: Condvar::new() }
    }

    /// Asks for room until `begin` finds some. A producer's wait: from the call to its return.
    pub fn produce<R>(&self, begin: impl FnMut(&mut S) -> Option<R>) -> R {
        self.wait(&self.room, |clocks| &mut clocks.producers, begin)
    }

    /// Asks for an item until `take` finds one, which makes room. The consumer's wait: from the call to its return.
    pub fn consume<R>(&self, take: impl FnMut(&mut S) -> Option<R>) -> R {
        let taken = self.wait(&self.item, |clocks| &mut clocks.consumer, take);
        self.room.notify_all();
        taken
    }

    /// Puts an item in: the consumer looks again.
    pub fn put<R>(&self, put: impl FnOnce(&mut S) -> R) -> R {
        let done = self.update(put);
        self.item.notify_all();
        done
    }

    /// Changes anything: both ends look again.
    pub fn change<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let done = self.put(change);
        self.room.notify_all();
        done
    }

    /// Looks at the state, or changes what nobody waits for.
    pub fn update<R>(&self, update: impl FnOnce(&mut S) -> R) -> R {
        let inner = &mut *self.lock();
        let done = update(&mut inner.state);
        inner.clocks.items.set(inner.state.ready(), Instant::now());
        done
    }

    /// Counts the time of `work` as the producer's wait: for a device that still reads what is to be overwritten.
    pub fn while_producing_waits<R>(&self, work: impl FnOnce() -> R) -> R {
        self.timed(|clocks| &mut clocks.producers, work)
    }

    /// Counts the time of `work` as the consumer's wait: for what it makes itself, where there is no producer.
    pub fn while_consuming_waits<R>(&self, work: impl FnOnce() -> R) -> R {
        self.timed(|clocks| &mut clocks.consumer, work)
    }

    pub fn reading(&self) -> QueueReading {
        self.lock().clocks.read(Instant::now())
    }

    fn wait<R>(
        &self,
        changed: &Condvar,
        side: fn(&mut Clocks) -> &mut Level,
        mut attempt: impl FnMut(&mut S) -> Option<R>,
    ) -> R {
        let asked = Instant::now();
        let mut guard = self.lock();
        side(&mut guard.clocks).enter(asked);
        loop {
            let inner = &mut *guard;
            let found = attempt(&mut inner.state);
            let now = Instant::now();
            inner.clocks.items.set(inner.state.ready(), now);
            if let Some(found) = found {
                side(&mut inner.clocks).leave(now);
                return found;
            }
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn timed<R>(&self, side: fn(&mut Clocks) -> &mut Level, work: impl FnOnce() -> R) -> R {
        side(&mut self.lock().clocks).enter(Instant::now());
        let done = work();
        side(&mut self.lock().clocks).leave(Instant::now());
        done
    }

    /// Whoever panicked inside left a state that is whole: every change of it is one assignment or none.
    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that changes over time, and the area under it: for two threads that wait, two seconds a second.
#[derive(Clone, Copy, Debug)]
struct Level {
    value: usize,
    since: Instant,
    area: Duration,
    /// Time that the number was 0.
    zero: Duration,
}

impl Level {
    fn new(value: usize, now: Instant) -> Self {
        Level { value, since: now, area: Duration::ZERO, zero: Duration::ZERO }
    }

    fn set(&mut self, value: usize, now: Instant) {
        let time = now.saturating_duration_since(self.since);
        self.area += time * self.value as u32;
        if self.value == 0 {
            self.zero += time;
        }
        (self.value, self.since) = (value, self.since.max(now));
    }

    /// One more since `asked`, which may lie before the last change: whoever asks waits for the lock first.
    fn enter(&mut self, asked: Instant) {
        self.area += self.since.saturating_duration_since(asked);
        self.set(self.value, asked);
        self.value += 1;
    }

    fn leave(&mut self, now: Instant) {
        self.set(self.value - 1, now);
    }

    fn until(mut self, now: Instant) -> Self {
        self.set(self.value, now);
        self
    }
}

#[derive(Debug)]
struct Clocks {
    start: Instant,
    producers: Level,
    consumer: Level,
    items: Level,
}

impl Clocks {
    fn new(now: Instant, items: usize) -> Self {
        let idle = Level::new(0, now);
        Clocks { start: now, producers: idle, consumer: idle, items: Level::new(items, now) }
    }

    fn read(&self, now: Instant) -> QueueReading {
        let items = self.items.until(now);
        QueueReading {
            at: now.saturating_duration_since(self.start),
            producers_waited: self.producers.until(now).area,
            consumer_waited: self.consumer.until(now).area,
            occupied: items.area,
            empty: items.zero,
        }
    }
}

/// Everything that a queue has counted since it was made, which was `at` ago.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueReading {
    at: Duration,
    producers_waited: Duration,
    consumer_waited: Duration,
    occupied: Duration,
    empty: Duration,
}

/// What a queue counted between two readings, as shares of the time between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueShares {
    /// Time that producers waited for room; 1 is one thread all the time, so four threads may come to 4.
    pub producers_waited: f64,
    /// Time that the consumer waited for an item.
    pub consumer_waited: f64,
    /// Items that lay ready, on average over time.
    pub mean_ready: f64,
    /// Time that nothing lay ready.
    pub empty: f64,
}

impl QueueReading {
    pub fn since(&self, earlier: &QueueReading) -> QueueShares {
        let wall_s = self.at.saturating_sub(earlier.at).as_secs_f64().max(1e-9);
        let share = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / wall_s;
        QueueShares {
            producers_waited: share(self.producers_waited, earlier.producers_waited),
            consumer_waited: share(self.consumer_waited, earlier.consumer_waited),
            mean_ready: share(self.occupied, earlier.occupied),
            empty: share(self.empty, earlier.empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    impl Backlog for VecDeque<u64> {
        fn ready(&self) -> usize {
            self.len()
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_that_has_not_ended_counts_already() {
        let start = Instant::now();
        let at = |time| start + ms(time);
        let mut level = Level::new(0, start);
        level.enter(at(100));
        assert_eq!(level.until(at(150)).area, ms(50));
        level.enter(at(160));
        assert_eq!(level.until(at(200)).area, ms(140));
        level.leave(at(200));
        level.leave(at(210));
        assert_eq!((level.value, level.until(at(900)).area, level.until(at(900)).zero), (0, ms(150), ms(790)));
        level.set(0, at(900));
        level.enter(at(880)); // asked before the last change, and had to wait for the lock
        assert_eq!(level.until(at(905)).area, ms(175));
    }

    #[test]
    fn the_difference_of_two_readings_is_shares_of_wall_time() {
        let start = Instant::now();
        let at = |time| start + ms(time);
        let mut clocks = Clocks::new(start, 0);
        clocks.producers.enter(at(300));
        let before = clocks.read(at(1000));
        clocks.producers.leave(at(1000));
        for _ in 0..2 {
            clocks.producers.enter(at(1000));
        }
        (0..2).for_each(|_| clocks.producers.leave(at(1060)));
        clocks.consumer.enter(at(1060));
        clocks.items.set(1, at(1050));
        clocks.items.set(2, at(1075));
        let shares = clocks.read(at(1100)).since(&before);
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
        close(shares.producers_waited, 1.2);
        close(shares.consumer_waited, 0.4);
        close(shares.mean_ready, 0.75);
        close(shares.empty, 0.5);
    }

    proptest! {
        /// Against the sum over intervals, for any overlap of intervals and at any moment.
        #[test]
        fn a_level_agrees_with_its_intervals(
            intervals in prop::collection::vec((0..1_000_000u64, 0..100_000u64), 0..100),
            at in 0..1_200_000u64,
        ) {
            let start = Instant::now();
            let moment = |micros| start + Duration::from_micros(micros);
            let mut events: Vec<(u64, bool)> =
                intervals.iter().flat_map(|(from, len)| [(*from, true), (from + len, false)]).collect();
            events.sort_by_key(|(time, is_start)| (*time, !is_start));
            let mut level = Level::new(0, start);
            for (time, is_start) in events.into_iter().filter(|(time, _)| *time <= at) {
                if is_start { level.enter(moment(time)) } else { level.leave(moment(time)) }
            }
            let begun = || intervals.iter().filter(|(from, _)| *from <= at);
            let inside = begun().filter(|(from, len)| from + len > at).count();
            let spent: u64 = begun().map(|(from, len)| (*len).min(at - from)).sum();
            prop_assert_eq!((level.value, level.until(moment(at)).area), (inside, Duration::from_micros(spent)));
        }

        /// Against a simulation tick by tick.
        #[test]
        fn occupancy_agrees_with_a_simulation(events in prop::collection::vec((1..50u64, prop::bool::ANY), 1..200)) {
            let start = Instant::now();
            let mut clocks = Clocks::new(start, 0);
            let (mut now, mut len, mut occupied, mut empty) = (0, 0u64, 0, 0);
            for (pause, push) in events {
                now += pause;
                occupied += len * pause;
                empty += if len == 0 { pause } else { 0 };
                len = if push { len + 1 } else { len.saturating_sub(1) };
                clocks.items.set(len as usize, start + ms(now));
            }
            let reading = clocks.read(start + ms(now));
            prop_assert_eq!((reading.occupied, reading.empty), (ms(occupied), ms(empty)));
        }
    }

    /// Four producers and a consumer over a queue of three: nothing is lost, nothing is out of bounds, and each side's
    /// waits are what it waited for.
    #[test]
    fn threads_wait_for_each_other_and_it_is_counted() {
        let queue = Queue::new(VecDeque::<u64>::new());
        let push = |number| {
            queue.produce(|items| (items.len() < 3).then(|| items.push_back(number)));
            queue.put(|_| ());
        };
        let pop = || queue.consume(VecDeque::pop_front);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || (0..250).for_each(|item| push(worker * 250 + item)));
            }
            let mut taken: Vec<u64> = (0..1000).map(|_| pop()).collect();
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..1000));
        });
        let before = queue.reading();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(ms(40));
                push(1);
            });
            assert_eq!(pop(), 1);
            (0..3).for_each(push);
            scope.spawn(|| push(3));
            std::thread::sleep(ms(60));
            pop();
        });
        let now = queue.reading();
        assert!(now.consumer_waited - before.consumer_waited >= ms(39), "{now:?}");
        assert!(now.producers_waited - before.producers_waited >= ms(30), "{now:?}");
        assert!(now.empty - before.empty >= ms(39) && now.occupied - before.occupied >= ms(150), "{now:?}");
        queue.while_producing_waits(|| std::thread::sleep(ms(5)));
        queue.while_consuming_waits(|| std::thread::sleep(ms(5)));
        assert!(queue.reading().producers_waited >= now.producers_waited + ms(5));
        assert!(queue.reading().consumer_waited >= now.consumer_waited + ms(5));
    }
}
