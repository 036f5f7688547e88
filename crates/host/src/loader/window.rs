//! Batches under way, by turn: taken by workers in turn, finished in any order, delivered in turn or as they come.
//!
//! A number is taken only by a worker that owns the memory for it, so the lowest one under way always gets done, and
//! nothing waits for ever. No number is taken far ahead of the lowest, so what was delivered out of turn is a short list.

use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Window<T> {
    ordered: bool,
    /// To be taken.
    next: u64,
    /// The lowest that was not delivered, and what was delivered beyond it.
    low: u64,
    ahead: BTreeSet<u64>,
    ready: BTreeMap<u64, T>,
}

impl<T> Window<T> {
    pub fn new(ordered: bool) -> Self {
        Window { ordered, next: 0, low: 0, ahead: BTreeSet::new(), ready: BTreeMap::new() }
    }

    /// The next number to make, if it is less than `size` ahead of the lowest.
    pub fn take(&mut self, size: usize) -> Option<u64> {
        self.next = self.next.max(self.low);
        while self.ahead.contains(&self.next) {
            self.next += 1;
        }
        if self.next >= self.low + size as u64 {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    pub fn put(&mut self, number: u64, made: T) {
        self.ready.insert(number, made);
    }

    /// Delivers a finished one: the lowest of all, or of those that are finished.
    pub fn pop(&mut self) -> Option<T> {
        let first = self.ready.first_entry().filter(|first| !self.ordered || *first.key() == self.low)?;
        let (number, made) = first.remove_entry();
        self.ahead.insert(number);
        while self.ahead.remove(&self.low) {
            self.low += 1;
        }
        Some(made)
    }

    /// The lowest that is not made: all before it lie in batches.
    pub fn unmade(&self) -> u64 {
        let is_made = |number: &u64| self.ready.contains_key(number) || self.ahead.contains(number);
        (self.low..).find(|number| !is_made(number)).unwrap_or(self.low)
    }

    /// Finished and waiting.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.next <= self.low
    }

    /// The lowest that was not delivered, and the distances of those that were, beyond it.
    pub fn delivered(&self) -> (u64, Vec<u64>) {
        (self.low, self.ahead.iter().map(|number| number - self.low).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::turns::{Share, Turns};
    use super::*;
    use crate::rng::Rng;

    /// Random schedules of `workers` that each hold one number at a time, with `size` blocks, stopped anywhere and
    /// taken up again with the position alone: every number comes exactly once, in turn where that is asked for.
    #[test]
    fn any_schedule_delivers_every_number_once() {
        for seed in 0..2000 {
            let mut rng = Rng::new(&[seed]);
            let (mut got, mut resume) = (Vec::new(), (0, Vec::new()));
            for _ in 0..3 {
                let (ordered, workers, size) = (rng.below(2) == 0, 1 + rng.below(4), 1 + rng.below(8));
                let (mut window, order) = (Window::new(ordered), Turns::new(Share::WHOLE, resume.0, &resume.1));
                let mut busy = Vec::new();
                let (mut turns, stop) = (0, rng.below(200));
                while turns < stop {
                    turns += 1;
                    match rng.below(3) {
                        0 if busy.len() < workers && busy.len() + window.ready() < size => {
                            busy.extend(window.take(size))
                        }
                        1 if !busy.is_empty() => {
                            let number = busy.swap_remove(rng.below(busy.len()));
                            window.put(number, number);
                        }
                        _ => {
                            let popped = window.pop();
                            assert!(!ordered || popped.is_none_or(|turn| turn + 1 == window.low));
                            got.extend(popped.map(|turn| order.number(turn)));
                        }
                    }
                    assert!(window.ahead.len() <= size, "out of turn: a bounded list");
                    let lowest = busy.iter().copied().min().unwrap_or(window.next.max(window.low));
                    assert_eq!(window.unmade(), lowest, "seed {seed}: what is under way is not made");
                }
                resume = order.delivered(window.delivered());
            }
            let mut sorted = got.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), got.len(), "seed {seed}: none twice");
            let expected = (0..resume.0).chain(resume.1.iter().map(|distance| resume.0 + distance));
            assert!(sorted.iter().copied().eq(expected), "seed {seed}: none lost");
        }
    }

    /// Whatever is finished first: as long as workers finish what they took, delivery goes on.
    #[test]
    fn the_window_never_locks_up() {
        for seed in 0..500 {
            let mut rng = Rng::new(&[seed]);
            let (ordered, size) = (seed % 2 == 0, 1 + rng.below(6));
            let (mut window, mut busy, mut count) = (Window::new(ordered), Vec::new(), 0);
            while count < 100 {
                while busy.len() + window.ready() < size {
                    match window.take(size) {
                        Some(number) => busy.push(number),
                        None => break,
                    }
                }
                assert!(!busy.is_empty() || window.ready() > 0, "seed {seed}: nothing can go on");
                if !busy.is_empty() {
                    let number = busy.swap_remove(rng.below(busy.len()));
                    window.put(number, ());
                }
                count += usize::from(window.pop().is_some());
            }
        }
    }
}
