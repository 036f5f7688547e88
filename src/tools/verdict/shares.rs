//! Shares of a step's time, which the rules judge.

use super::super::measure::RunMeasurement;
use super::{cores, starving};
use host::telemetry::Spread;

impl RunMeasurement {
    /// Share of a step that `each`, which every batch takes, adds up to.
    pub(super) fn share(&self, each: Spread) -> f64 {
        mean(each) * self.setup.accumulate as f64 / self.step_ms.mean.max(1e-9)
    }

    /// Share of the time that the model device stands idle for want of a batch, less what is lost because others have
    /// the cores: that is a finding of its own.
    pub(super) fn starved(&self) -> f64 {
        let taken = self.host.filter(|host| host.others > cores::OTHERS).and(self.feed_queued_share);
        self.idle() * (1.0 - taken.unwrap_or(0.0))
    }

    /// Share of the time without a batch. A GPU without a ring is given batch and step in one go and waits for the one by
    /// itself, which the host does not see; what a step takes beyond its own time tells.
    fn idle(&self) -> f64 {
        let unseen = match self.setup.on_gpu && self.setup.slots == 0 {
            true => 1.0 - self.headspace_ms / self.step_ms.mean.max(1e-9),
            false => 0.0,
        };
        unseen.max(1.0 - self.readiness)
    }

    pub(super) fn is_starving(&self) -> bool {
        self.starved() > if self.setup.on_gpu { starving::STARVED } else { starving::STARVED_ON_CPU }
    }

    /// Share of the time that the model device stands idle because nobody asks for the next batch.
    pub(super) fn gap_share(&self) -> f64 {
        mean(self.stages.gap_ms) / self.step_ms.mean.max(1e-9)
    }

    /// Share of the time that a step takes without waiting.
    pub(super) fn compute_share(&self) -> f64 {
        mean(self.stages.compute_ms) / self.step_ms.mean.max(1e-9)
    }
}

pub(super) fn mean(spread: Spread) -> f64 {
    spread.known().map_or(0.0, |spread| spread.mean)
}

pub(super) fn ms(spread: Spread) -> String {
    format!("{:.1} ms", mean(spread))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
