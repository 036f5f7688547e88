//! What can be seen of a run from outside while it trains, and what it may be asked for.

use super::timeline::StageSpan;
use super::times::{LoaderTimes, StageTimes, Steadiness};
use super::{MemoryUsage, RunContext};
use crate::feed::{Delivery, Event, FeedTimes, Interval};
use host::machine::Ran;
use host::run_log;
use host::telemetry::cpu::HostLoad;
use host::telemetry::gpu::GpuReading;
use host::telemetry::window::StepSummary;

/// What one step did.
pub struct Done {
    pub deliveries: Vec<Delivery>,
    /// Ends of the parts of an accumulated step.
    pub part_ends: Vec<Event>,
    /// From the moment its first batch was there to the end of the update.
    pub span: Interval,
    /// What the training thread had of a core meanwhile; on a CPU alone, where that is the step.
    pub ran: Option<Ran>,
}

/// What some steps showed.
pub struct Observation<'a> {
    pub step: u64,
    pub summary: &'a StepSummary,
    pub stages: &'a StageTimes,
    pub own_step: Steadiness,
    pub loader: LoaderTimes,
    /// Absent where batches are made in the training thread.
    pub feed: Option<FeedTimes>,
    /// Model first; none without a GPU.
    pub gpus: &'a [GpuReading],
    pub host: Option<HostLoad>,
    pub queued_share: Option<f64>,
    pub feed_queued_share: Option<f64>,
    pub memory: MemoryUsage,
    pub failures: Vec<String>,
    pub parameters: usize,
    pub route: String,
}

/// What keeps a run from going faster, as `profile` would say it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Code of the finding; none where all is well.
    pub code: Option<&'static str>,
    pub text: String,
}

/// The last steps, for a picture that moves.
pub struct Pulse<'a> {
    pub step: u64,
    pub spans: &'a [StageSpan],
    /// Of the queues since the last pulse.
    pub feed: Option<FeedTimes>,
    pub loader_ready: usize,
}

/// What somebody who looks has asked for.
#[derive(Debug, Default)]
pub struct Wishes {
    pub save: bool,
    pub notes: Vec<String>,
}

/// Looks at a run. Nothing of it may take long: it is called between two steps.
pub trait Observer {
    /// Whether anybody looks right now: otherwise nothing that is too fast for files is taken down.
    fn is_watched(&self) -> bool;
    fn judge(&self, context: &RunContext, seen: &Observation) -> Judgement;
    fn figures(&self, step: u64, figures: &[(String, f64)]);
    fn pulse(&self, pulse: &Pulse);
    fn event(&self, event: &run_log::Event);
    fn wishes(&self) -> Wishes;
    /// Where the run shows itself, for its files.
    fn address(&self) -> Option<String>;
}
