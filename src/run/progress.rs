//! Figures of a run for whoever watches it.

/// What a run shows of itself while it trains.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub step: u64,
    /// Steps that the run is expected to take.
    pub steps: u64,
    /// Mean training loss since the last figures.
    pub loss: f64,
    /// Mean time of a step, ms.
    pub step_ms: f64,
    /// Coefficient of variation of the step time.
    pub step_cv: f64,
    /// Share of the time in which the model device did not wait for data.
    pub data_readiness: f64,
    pub audio_seconds_per_second: f64,
    pub memory: MemoryUsage,
}

/// Bytes in use by role, now and at most; absent on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    pub data: Option<(u64, u64)>,
    pub model: Option<(u64, u64)>,
    /// Bytes of the process in host memory.
    pub host: Option<u64>,
}
