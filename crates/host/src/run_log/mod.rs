//! What a run leaves in its log folder, for whoever looks at it while it runs or later, on this machine or another:
//!
//! ```text
//! logs/metrics.jsonl               a line of figures every few steps: step, time, and one number for each name
//!      run.json                    what the run is: devices, settings that matter for speed, corpus, process
//!      events.jsonl                what happened: checkpoints, warnings, verdicts, notes, the end
//!      samples/clips.json          sentences and held-out clips that are spoken at every validation
//!              0/recording.flac    as it was recorded
//!                step-00000100.flac, .json    as the voice spoke it after 100 steps; frames of each token
//!              heard.jsonl         what a recogniser heard in them, where one has listened
//! ```
//!
//! Only `metrics.jsonl` must be there. Everything is read as it is found: a line that was cut, a file of another program or
//! none at all makes no run unreadable.

mod events;
mod facts;
mod figures;
mod find;
mod heard;
mod metrics;
mod samples;
mod series;

pub use events::{Event, EventKind, EventLog};
pub use facts::{CorpusFacts, PipelineFacts, ProcessFacts, RunFile};
pub use find::{CheckpointName, RunFolder, RunState, find_runs};
pub use heard::{Heard, HeardFile, Sound, unheard, word_error_percent};
pub use metrics::{Curves, MetricsReader, RangeCurves, RangeQuery};
pub use samples::{Alignment, SampleClip, SampleFolder};
pub use series::Series;

/// Name of the folder of logs in a run's folder.
pub const LOGS: &str = "logs";
/// Name of the file of figures.
pub const METRICS: &str = "metrics.jsonl";
/// Link to the checkpoint with the lowest held-out loss.
pub const BEST: &str = "best";

/// Seconds since 1970.
pub fn unix_time_s() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}
