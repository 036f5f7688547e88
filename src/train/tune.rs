//! Workers and depth from what the first seconds show, where the config leaves them to the program.

use super::note;
use crate::feed::{Feed, FeedReading};
use anyhow::Result;
use host::config::Config;
use host::loader::LoaderStatus;
use host::machine::mib;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};

/// Each look lasts this long: some hundred steps of a small voice, and a few of a large one.
const LOOK: Duration = Duration::from_secs(2);
/// Then it is as good as it gets.
const MOST_LOOKS: u32 = 4;
/// A feed that waits for the loader for less than this share of the time is well served.
const TOLERABLE_WAIT: f64 = 0.01;
/// Workers above this share of their time at work have no reserve for a slow batch.
const BUSY: f64 = 0.7;
const DEEPEST: usize = 16;

pub struct Tuner {
    workers: bool,
    depth: Option<usize>,
    most_workers: usize,
    look: Option<Look>,
    looks: u32,
    done: bool,
}

struct Look {
    start: Instant,
    feed: Option<FeedReading>,
    loader: LoaderStatus,
}

/// What a look showed, as shares of its time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    feed_waited: f64,
    /// Share of its time that a worker was at work, on average.
    worker_busy: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Workers(usize),
    Depth(usize),
    Enough,
}

impl Tuner {
    pub fn new(config: &Config) -> Self {
        let data = &config.data;
        let workers = data.use_native_loading && data.num_workers.is_none();
        let depth = data.prefetch_buffer_size.is_none().then(|| data.prefetch_depth());
        Tuner {
            workers,
            depth: depth.filter(|_| data.use_native_loading),
            most_workers: host::machine::cores(),
            look: None,
            looks: 0,
            done: !workers && depth.is_none(),
        }
    }

    /// After every step. `settled`: steps run as they will from now on.
    pub fn observe(&mut self, feed: &Feed, settled: bool, bar: &ProgressBar) -> Result<()> {
        if self.done || !settled {
            return Ok(());
        }
        let now = Look { start: Instant::now(), feed: feed.reading(), loader: feed.loader().status() };
        let Some(look) = &self.look else {
            self.look = Some(now);
            return Ok(());
        };
        if look.start.elapsed() < LOOK {
            return Ok(());
        }
        let seen = look.until(&now);
        self.looks += 1;
        let change = if self.looks > MOST_LOOKS { Change::Enough } else { self.change(seen, now.loader.workers) };
        match change {
            Change::Workers(number) => feed.loader().set_workers(number)?,
            Change::Depth(depth) => {
                feed.loader().set_depth(depth);
                self.depth = Some(depth);
            }
            Change::Enough => {
                self.done = true;
                note(bar, &told(seen, now.loader.workers, self.depth, feed.loader().host_bytes()));
            }
        }
        self.look = None;
        Ok(())
    }

    fn change(&self, seen: Seen, workers: usize) -> Change {
        if seen.feed_waited <= TOLERABLE_WAIT {
            // As many as leave each of them some reserve; the cores are for others to use.
            let needed = ((workers as f64 * seen.worker_busy / BUSY).ceil() as usize).max(1);
            return if self.workers && needed < workers { Change::Workers(needed) } else { Change::Enough };
        }
        match (seen.worker_busy > BUSY, self.depth) {
            (true, _) if self.workers && workers < self.most_workers => {
                Change::Workers((workers * 2).min(self.most_workers))
            }
            // Idle workers and a feed that waits all the same: batches come unevenly, and more of them must lie ready.
            (_, Some(depth)) if depth < DEEPEST => Change::Depth((depth * 2).min(DEEPEST)),
            _ => Change::Enough,
        }
    }
}

impl Look {
    fn until(&self, now: &Look) -> Seen {
        let wall = (now.start - self.start).as_secs_f64();
        let waited = now.feed.zip(self.feed).map_or(0.0, |(now, before)| now.since(&before).waits_for_loader);
        let busy = now.loader.busy_ns.saturating_sub(self.loader.busy_ns) as f64 / 1e9;
        Seen { feed_waited: waited, worker_busy: busy / wall / now.loader.workers.max(1) as f64 }
    }
}

fn told(seen: Seen, workers: usize, depth: Option<usize>, host_bytes: usize) -> String {
    let depth = depth.map_or(String::new(), |depth| format!(", {depth} batches ahead"));
    format!(
        "loader: {workers} {}{depth} ({:.0} MiB); each is at work {:.0} % of the time, the feed waits {:.1} % of it",
        if workers == 1 { "worker" } else { "workers" },
        mib(host_bytes as u64),
        seen.worker_busy * 100.0,
        seen.feed_waited * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuner(workers: bool, depth: Option<usize>) -> Tuner {
        Tuner { workers, depth, most_workers: 8, look: None, looks: 0, done: false }
    }

    #[test]
    fn busy_workers_get_help_idle_ones_more_room_and_too_many_go() {
        let seen = |feed_waited, worker_busy| Seen { feed_waited, worker_busy };
        let auto = tuner(true, Some(4));
        assert_eq!(auto.change(seen(0.2, 0.95), 2), Change::Workers(4));
        assert_eq!(auto.change(seen(0.2, 0.95), 6), Change::Workers(8));
        assert_eq!(auto.change(seen(0.2, 0.95), 8), Change::Depth(8));
        assert_eq!(auto.change(seen(0.2, 0.10), 4), Change::Depth(8));
        assert_eq!(auto.change(seen(0.0, 0.10), 8), Change::Workers(2));
        assert_eq!(auto.change(seen(0.0, 0.60), 2), Change::Enough);
        assert_eq!(tuner(false, None).change(seen(0.5, 0.9), 1), Change::Enough);
        assert_eq!(tuner(true, Some(16)).change(seen(0.5, 0.9), 8), Change::Enough);
    }
}
