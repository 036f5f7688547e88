//! Learning rate by step.

use host::config::{Schedule, Training};

/// Share of the peak that the cosine ends at.
const COSINE_END: f64 = 0.05;

/// Linear warm-up, then the schedule's own fall. `total_steps` is where the cosine ends.
pub fn learning_rate(config: &Training, step: u64, total_steps: u64) -> f64 {
    let warmup = config.warmup().max(1) as f64;
    let at = (step + 1) as f64;
    let factor = match config.schedule {
        _ if at < warmup => at / warmup,
        Schedule::Constant => 1.0,
        Schedule::Noam => (warmup / at).sqrt(),
        Schedule::Cosine => {
            let progress = ((at - warmup) / (total_steps as f64 - warmup).max(1.0)).min(1.0);
            COSINE_END + (1.0 - COSINE_END) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
        }
    };
    config.peak_rate() * factor
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::config::Config;

    fn rate(schedule: Schedule, step: u64) -> f64 {
        let mut training = Config::default().training;
        (training.learning_rate, training.warmup_steps, training.schedule) = (Some(1.0), Some(100), schedule);
        learning_rate(&training, step, 1000)
    }

    #[test]
    fn warm_up_is_linear_and_every_schedule_meets_it_at_the_peak() {
        for schedule in [Schedule::Cosine, Schedule::Noam, Schedule::Constant] {
            assert!((rate(schedule, 49) - 0.5).abs() < 1e-12);
            assert!((rate(schedule, 99) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn ends_follow_the_formulas() {
        assert!((rate(Schedule::Cosine, 999) - 0.05).abs() < 1e-12);
        assert!((rate(Schedule::Cosine, 549) - 0.525).abs() < 1e-12); // half way down
        assert!((rate(Schedule::Noam, 399) - 0.5).abs() < 1e-12); // sqrt(100 / 400)
        assert!((rate(Schedule::Constant, 5000) - 1.0).abs() < 1e-12);
    }
}
