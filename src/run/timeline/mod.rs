//! When every stage ran, on one axis of time: for a trace that Perfetto opens, and for a picture.

mod picture;

use super::Done;
use crate::feed::{Event, Interval, Roles, Trace, name};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tch::Device;

/// Where the axes of the host and of each device have their zero. Devices were idle then, so the clocks agree.
pub struct TimeAxis {
    roles: Roles,
    host: Instant,
    devices: Vec<(Device, Event)>,
}

/// Spans of all stages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Ordered by track, as data passes through them, and by time inside a track.
    pub spans: Vec<StageSpan>,
    /// Names of the data role's device and the model role's.
    pub devices: [String; 2],
}

/// One stage at work, or idle, for one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageSpan {
    pub track: Track,
    /// Counts from the first step of the stretch.
    pub step: usize,
    pub start_ms: f64,
    pub ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// A loader's thread lays a batch in host memory.
    Worker(usize),
    /// The feed has nothing to work on.
    Wait,
    /// Host memory to data device.
    Copy,
    Features,
    /// Data device to model device.
    Transfer,
    Step,
    /// The model device has nothing to work on.
    Idle,
}

impl Track {
    pub fn title(self) -> String {
        match self {
            Self::Worker(number) => format!("worker {}", number + 1),
            Self::Wait => "feed waits for a batch".into(),
            Self::Copy => "copy to device".into(),
            Self::Features => "features".into(),
            Self::Transfer => "transfer".into(),
            Self::Step => "training step".into(),
            Self::Idle => "idle".into(),
        }
    }

    /// Whose time it is: the host's, the data device's, the model device's.
    fn place(self) -> usize {
        match self {
            Self::Worker(_) | Self::Wait => 0,
            Self::Copy | Self::Features => 1,
            Self::Transfer | Self::Step | Self::Idle => 2,
        }
    }

    /// Unique inside a trace. Where it stands there: workers first.
    fn number(self) -> usize {
        match self {
            Self::Worker(number) => 10 + number,
            Self::Wait => 1000,
            Self::Copy => 1001,
            Self::Features => 1002,
            Self::Transfer => 1003,
            Self::Step => 1004,
            Self::Idle => 1005,
        }
    }
}

impl TimeAxis {
    pub fn begin(roles: Roles) -> Result<Self, torchx::Error> {
        let mut devices = vec![roles.data];
        devices.extend((roles.model != roles.data).then_some(roles.model));
        devices.iter().filter(|device| device.is_cuda()).try_for_each(|device| torchx::cuda::synchronize(*device))?;
        let host = Instant::now();
        let devices = devices.into_iter().map(|device| Ok((device, Event::now(device)?)));
        Ok(TimeAxis { roles, host, devices: devices.collect::<Result<_, torchx::Error>>()? })
    }

    fn at(&self, device: Device, event: &Event) -> Option<f64> {
        match event {
            Event::Host(at) => Some(self.at_host(*at)),
            event => self.devices.iter().find(|(of, _)| *of == device)?.1.ms_until(event),
        }
    }

    fn at_host(&self, at: Instant) -> f64 {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        at.checked_duration_since(self.host).map_or_else(|| -ms(self.host - at), ms)
    }
}

impl Timeline {
    /// All steps must have ended.
    pub fn of(axis: &TimeAxis, steps: &[&(u64, Done)]) -> Self {
        let mut spans = Vec::new();
        let mut add = |track, step, start: Option<f64>, end: Option<f64>| {
            if let (Some(start_ms), Some(end_ms)) = (start, end)
                && end_ms > start_ms
            {
                spans.push(StageSpan { track, step, start_ms, ms: end_ms - start_ms });
            }
        };
        let Roles { data, model } = axis.roles;
        let mut last_end = None;
        for (index, (_, done)) in steps.iter().enumerate() {
            let on = |device, span: &Interval| (axis.at(device, &span.start), axis.at(device, &span.end));
            for delivery in &done.deliveries {
                let Trace { timing, asked, load_wait, to_device, features, transfer, .. } = &delivery.trace;
                let host =
                    |start: Instant, time: Duration| (Some(axis.at_host(start)), Some(axis.at_host(start + time)));
                let parts = [
                    (Track::Worker(timing.worker), host(timing.start, timing.wall)),
                    (Track::Wait, host(*asked, *load_wait)),
                    (Track::Copy, to_device.as_ref().map_or((None, None), |span| on(data, span))),
                    (Track::Features, on(data, features)),
                    (Track::Transfer, on(model, transfer)),
                ];
                parts.into_iter().for_each(|(track, (start, end))| add(track, index, start, end));
            }
            let (start, end) = on(model, &done.span);
            add(Track::Step, index, start, end);
            let arrived = done.deliveries.first().and_then(|delivery| axis.at(model, &delivery.arrived));
            add(Track::Idle, index, last_end, arrived);
            last_end = end;
        }
        spans.sort_by(|a, b| a.track.cmp(&b.track).then(a.start_ms.total_cmp(&b.start_ms)));
        Timeline { spans, devices: [name(data), name(model)] }
    }

    fn tracks(&self) -> Vec<Track> {
        let mut tracks: Vec<Track> = self.spans.iter().map(|span| span.track).collect();
        tracks.dedup();
        tracks
    }

    /// Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: complete events in
    /// microseconds, one process for each place and one thread for each stage.
    pub fn trace(&self) -> Value {
        let [data, model] = &self.devices;
        let places = ["host".to_owned(), format!("data: {data}"), format!("model: {model}")];
        let meta = |kind: &str, place: usize, track: usize, args: Value| json!({ "ph": "M", "name": kind, "pid": place, "tid": track, "args": args });
        let mut events: Vec<Value> = Vec::new();
        for (place, name) in places.iter().enumerate() {
            events.push(meta("process_name", place, 0, json!({ "name": name })));
            events.push(meta("process_sort_index", place, 0, json!({ "sort_index": place })));
        }
        for track in self.tracks() {
            events.push(meta("thread_name", track.place(), track.number(), json!({ "name": track.title() })));
            events.push(meta(
                "thread_sort_index",
                track.place(),
                track.number(),
                json!({ "sort_index": track.number() }),
            ));
        }
        let first_ms = self.spans.iter().map(|span| span.start_ms).fold(f64::INFINITY, f64::min);
        events.extend(self.spans.iter().map(|span| {
            json!({
                "ph": "X",
                "name": span.track.title(),
                "cat": places[span.track.place()],
                "pid": span.track.place(),
                "tid": span.track.number(),
                "ts": (span.start_ms - first_ms) * 1e3,
                "dur": span.ms * 1e3,
                "args": { "step": span.step },
            })
        }));
        json!({ "displayTimeUnit": "ms", "traceEvents": events })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Two workers, features of 4 ms, steps of 10 ms; the third batch comes late.
    pub(crate) fn sample() -> Timeline {
        let mut spans = Vec::new();
        for step in 0..12 {
            let late = if step >= 5 { 9.0 } else { 0.0 };
            let at = step as f64 * 10.4 + late;
            let mut add = |track, start_ms, ms| spans.push(StageSpan { track, step, start_ms, ms });
            add(Track::Worker(step % 2), at - 24.0, 6.0 + late);
            add(Track::Wait, at - 12.0 - late / 2.0, 1.0 + late / 2.0);
            add(Track::Features, at - 10.5, 4.0);
            add(Track::Transfer, at - 6.0, 1.2);
            add(Track::Step, at, 10.0);
            if step == 5 {
                add(Track::Idle, at - 9.0, 9.0);
            }
        }
        spans.sort_by(|a, b| a.track.cmp(&b.track).then(a.start_ms.total_cmp(&b.start_ms)));
        Timeline { spans, devices: ["CPU".into(), "GPU 0".into()] }
    }

    /// The rules are those of the "Trace Event Format": every event has ph, pid and tid; X has name, ts and dur ≥ 0 in
    /// microseconds; M names what its args say. Perfetto drops events of one thread that overlap without nesting.
    #[test]
    fn a_trace_has_the_form_that_viewers_read() {
        let text = sample().trace().to_string();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let (mut named, mut used, mut by_thread) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        for event in events {
            let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            match event["ph"].as_str().unwrap() {
                "M" if event["name"] == "thread_name" => {
                    assert!(event["args"]["name"].is_string());
                    assert!(named.insert(thread), "one name for each thread");
                }
                "M" => assert!(event["args"].is_object()),
                "X" => {
                    let (start, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                    assert!(start >= 0.0 && length >= 0.0 && event["name"].is_string());
                    used.insert(thread);
                    by_thread.entry(thread).or_insert_with(Vec::new).push((start, start + length));
                }
                other => panic!("no viewer knows {other}"),
            }
        }
        assert_eq!(named, used, "every track that is used has a name");
        assert_eq!(used.len(), 7, "two workers, wait, features, transfer, step, idle");
        for spans in by_thread.values() {
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "no overlap inside a track");
        }
    }
}
