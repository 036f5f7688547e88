//! One GPU, two as producer and consumer, or two side by side: arithmetic on measured times.
//!
//! With `s` a step as it runs on one GPU, `h` the same step if data were free, `f` features and copies of one batch, `t` a
//! batch's way to the other card and `g` the gradients':
//!
//! - one GPU does a batch every `s`;
//! - a producer and a consumer, every `max(h, f, t)`: making the next batch runs beside the step;
//! - two side by side, two batches every `s + g`: each does all of the work on its own batches.

use serde::Serialize;

/// What a link carries is not measured with one card: PCIe 4.0 with 16 lanes gives about this much.
const LINK_BYTES_PER_MS: f64 = 25e9 / 1e3;

/// Times measured on one GPU, for one batch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BatchTimes {
    pub step_ms: f64,
    pub headspace_ms: f64,
    /// Features and copies of one batch.
    pub features_ms: f64,
    pub batch_bytes: f64,
    pub parameters: usize,
}

/// Milliseconds a batch in each way of using GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    pub one_ms: f64,
    pub producer_consumer_ms: f64,
    pub data_parallel_ms: f64,
}

impl BatchTimes {
    pub fn predict(&self) -> Predicted {
        let transfer_ms = self.batch_bytes / LINK_BYTES_PER_MS;
        // Two cards exchange half of the f32 gradients twice.
        let gradients_ms = self.parameters as f64 * 4.0 / LINK_BYTES_PER_MS;
        Predicted {
            one_ms: self.step_ms,
            producer_consumer_ms: self.headspace_ms.max(self.features_ms).max(transfer_ms),
            data_parallel_ms: (self.step_ms + gradients_ms) / 2.0,
        }
    }
}

impl Predicted {
    /// How many times as fast as one GPU.
    pub fn producer_consumer_gain(&self) -> f64 {
        self.one_ms / self.producer_consumer_ms
    }

    pub fn data_parallel_gain(&self) -> f64 {
        self.one_ms / self.data_parallel_ms
    }

    /// In words: which is fastest, and by how much.
    pub fn answer(&self) -> String {
        let (pair, parallel) = (self.producer_consumer_gain(), self.data_parallel_gain());
        let (best, gain) =
            if parallel >= pair { ("two side by side", parallel) } else { ("producer and consumer", pair) };
        match gain < 1.05 {
            true => "one GPU does: neither way of using two would bring 5 %".into(),
            false => format!("{best} would be fastest: ×{gain:.2} of one GPU"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(step_ms: f64, headspace_ms: f64, features_ms: f64) -> BatchTimes {
        BatchTimes { step_ms, headspace_ms, features_ms, batch_bytes: 6e6, parameters: 21_000_000 }
    }

    /// The measured case of a small voice on an H200: features are hidden already.
    #[test]
    fn cheap_features_leave_nothing_for_a_producer() {
        let predicted = times(10.46, 10.43, 0.2).predict();
        assert!((predicted.producer_consumer_gain() - 1.003).abs() < 1e-3, "{predicted:?}");
        // 84 MB of gradients take 3.36 ms: 2 × 10.46 ÷ 13.82.
        assert!((predicted.data_parallel_gain() - 1.514).abs() < 1e-3, "{predicted:?}");
        assert!(predicted.answer().starts_with("two side by side"), "{}", predicted.answer());
    }

    #[test]
    fn features_as_long_as_a_step_are_what_a_producer_is_for() {
        let predicted = times(20.0, 10.0, 9.5).predict();
        assert_eq!(predicted.producer_consumer_gain(), 2.0);
        assert!(predicted.answer().contains("producer and consumer would be fastest: ×2.00"), "{}", predicted.answer());
    }

    #[test]
    fn a_small_step_with_many_parameters_stays_on_one() {
        let tiny = BatchTimes { parameters: 200_000_000, ..times(4.0, 3.95, 0.1) };
        assert_eq!(tiny.predict().answer(), "one GPU does: neither way of using two would bring 5 %");
    }
}
