//! Whether a run still learns. A step whose gradients are not finite is left out; when all are, nothing says so but a count.

/// Steps in a row that may be left out. Half precision needs some to find its loss scale; none of them helps after so many.
const MOST_LEFT_OUT: u64 = 200;

/// Until when a run learned.
pub struct LastLearned {
    read_at: u64,
    learned_at: u64,
}

impl LastLearned {
    /// Of a run that begins behind `step`.
    pub fn new(step: u64) -> Self {
        LastLearned { read_at: step, learned_at: step }
    }

    /// The last step that changed the weights, where too many since then did not. `skipped`: of the steps since the reading
    /// before, up to `step`.
    pub fn stuck(&mut self, step: u64, skipped: u64) -> Option<u64> {
        if skipped < step - self.read_at {
            self.learned_at = step;
        }
        self.read_at = step;
        (step - self.learned_at >= MOST_LEFT_OUT).then_some(self.learned_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_every_step_is_left_out_is_stuck() {
        let mut learned = LastLearned::new(40);
        assert_eq!(
            [(50, 0), (60, 9), (70, 10), (250, 180)].map(|(step, skipped)| learned.stuck(step, skipped)),
            [None; 4]
        );
        assert_eq!(learned.stuck(260, 10), Some(60));
        assert_eq!(learned.stuck(270, 9), None, "it goes on");
    }
}
