//! Flags that several commands have in common.

mod cache;
mod corpus;
mod flow;
mod layout;
mod live;
mod ranks;
mod recogniser;
mod run;
mod simulate;
mod threads;
mod tune;
mod voice;

pub use cache::CacheFlags;
pub use corpus::CorpusFlags;
pub use flow::{FlowFlags, SamplingFlags};
pub use layout::Layout;
pub use live::LiveFlags;
pub use ranks::RankFlags;
pub use recogniser::RecogniserFlags;
pub use run::{DataFlags, PipelineFlags, RunFlags};
pub use simulate::SimulateFlags;
pub use threads::ThreadFlags;
pub use tune::TuneFlags;
pub use voice::{VocoderChoice, VoiceFlags, checkpoint_or_bundled};

use std::ops::RangeInclusive;

/// Parser of a flag that takes numbers of a range.
pub(crate) fn within(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
        let (low, high) = (range.start(), range.end());
        if range.contains(&value) { Ok(value) } else { Err(format!("accepted: {low} to {high}")) }
    }
}
