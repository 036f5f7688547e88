//! A training that shows itself: what it does becomes news for pages, and one sentence about what limits it.

use super::measure;
use super::verdict::{verdict, well};
use crate::feed::FeedTimes;
use crate::run::timeline::{StageSpan, Track};
use crate::run::{Judgement, Observation, Observer, Pulse, RunContext, Wishes};
use host::run_log;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use std::sync::Arc;
use web::live::Hub;

/// Findings about a corpus or a machine that no change of the running training would mend.
const NOT_OF_THE_PIPELINE: [&str; 4] = ["cold-cache", "nothing-held-out", "clips-left-out", "damaged-clips"];

/// Judges a training as `profile` does, and shows it on the pages of a hub, where there is one.
pub struct Reporter {
    /// Where the run shows itself, and by what name.
    pub shown: Option<(Arc<Hub>, String)>,
}

impl Reporter {
    fn hub(&self) -> Option<&Hub> {
        self.shown.as_ref().map(|(hub, _)| &**hub)
    }
}

impl Observer for Reporter {
    fn is_watched(&self) -> bool {
        self.hub().is_some_and(Hub::is_watched)
    }

    fn judge(&self, context: &RunContext, seen: &Observation) -> Judgement {
        let measured = measure::of_training(context, seen);
        let found = verdict(&measured);
        let first = found.iter().find(|finding| finding.cost > 0.0 && !NOT_OF_THE_PIPELINE.contains(&finding.code));
        match first {
            Some(finding) => {
                let advice = finding.advice.as_ref().map_or(String::new(), |advice| format!(": {advice}"));
                let lost = format!("{} ({:.0} % of the time)", finding.code, finding.cost * 100.0);
                Judgement { code: Some(finding.code), text: format!("{lost}: {}{advice}", finding.fact) }
            }
            None => {
                let good: Vec<String> = well(&measured, &found).into_iter().map(|finding| finding.fact).collect();
                Judgement { code: None, text: format!("all is well: {}", good.join("; ")) }
            }
        }
    }

    fn figures(&self, step: u64, figures: &[(String, f64)]) {
        #[derive(Serialize)]
        struct Now<'a> {
            step: u64,
            figures: &'a [(String, f64)],
        }
        self.hub().iter().for_each(|hub| hub.publish("now", &Now { step, figures }));
    }

    fn pulse(&self, pulse: &Pulse) {
        self.hub().iter().for_each(|hub| hub.publish("pulse", &ShownPulse(pulse)));
    }

    fn event(&self, event: &run_log::Event) {
        self.hub().iter().for_each(|hub| hub.publish("event", event));
    }

    fn wishes(&self) -> Wishes {
        let asked = self.hub().map(Hub::take_requests).unwrap_or_default();
        Wishes { save: asked.save, notes: asked.notes }
    }

    fn address(&self) -> Option<String> {
        self.shown.as_ref().map(|(_, address)| address.clone())
    }
}

struct ShownPulse<'a>(&'a Pulse<'a>);

impl Serialize for ShownPulse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Pulse { step, spans, feed, loader_ready } = self.0;
        let last = spans.iter().map(|span| span.step).max().unwrap_or(0);
        let mut pulse = serializer.serialize_struct("Pulse", 4)?;
        pulse.serialize_field("step", step)?;
        pulse.serialize_field::<Option<FeedTimes>>("feed", feed)?;
        pulse.serialize_field("loader_ready", loader_ready)?;
        pulse.serialize_field("spans", &Spans { spans, step: *step, last })?;
        pulse.end()
    }
}

/// Spans as lists of track, row, step, start and length in ms: a few kilobytes twice a second.
struct Spans<'a> {
    spans: &'a [StageSpan],
    /// Number of the newest step, and its number among the spans.
    step: u64,
    last: usize,
}

impl Serialize for Spans<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.spans.len()))?;
        let round = |ms: f64| (ms * 100.0).round() / 100.0;
        for span in self.spans {
            let (track, row) = match span.track {
                Track::Worker(number) => ("worker", number),
                Track::Wait => ("wait", 0),
                Track::Copy => ("copy", 0),
                Track::Features => ("features", 0),
                Track::Transfer => ("transfer", 0),
                Track::Step => ("step", 0),
                Track::Idle => ("idle", 0),
            };
            let step = (self.step + span.step as u64).saturating_sub(self.last as u64);
            list.serialize_element(&(track, row, step, round(span.start_ms), round(span.ms)))?;
        }
        list.end()
    }
}
