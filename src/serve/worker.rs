//! The thread that owns the voice. Requests under way take turns clause by clause, several in one forward pass, so a
//! short one never waits for the end of a long one.

use super::metrics::Metrics;
use crate::checkpoint::voice::Prompt;
use crate::synth::{Request, Synthesizer, Utterance};
use anyhow::Result;
use host::audio::Waveform;
use host::error::Explained;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use web::error::ApiError;

/// Chunks that may wait for a client to take them. A request whose client takes none passes its turns.
pub const CHUNKS_AHEAD: usize = 4;
/// A client that takes nothing for this long is gone.
const STALL: Duration = Duration::from_secs(30);
/// How soon a client that takes chunks again is noticed where all others are done.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A request to the thread that owns the voice.
pub enum WorkerRequest {
    Speak(SpeechJob),
    Hear { recording: Waveform, reply: oneshot::Sender<Result<(Prompt, Vec<String>)>> },
}

/// A speech request that was accepted.
pub struct SpeechJob {
    pub request: Request,
    pub reply: mpsc::Sender<Chunk>,
    pub accepted: Instant,
    pub limit: Duration,
    /// Place in the queue; given back when the job is dropped, for whatever reason.
    pub _place: OwnedSemaphorePermit,
}

/// Samples in order, or why there are none. A reply that ends without a last chunk was cut.
pub enum Chunk {
    Audio { samples: Vec<f32>, last: bool },
    Failed(ApiError),
}

/// The voice, and what it takes to speak for many.
pub struct Worker {
    pub voice: Synthesizer,
    /// Requests in one forward pass.
    pub batch: usize,
    pub metrics: Arc<Metrics>,
    /// Called with every failure.
    pub log_failure: fn(&str),
}

impl Worker {
    /// Works until nobody can send requests any more.
    pub fn run(self, requests: &Receiver<WorkerRequest>) {
        let mut queue = VecDeque::new();
        while self.gather(requests, &mut queue) {
            queue.retain_mut(|active: &mut ActiveJob| active.is_wanted(&self.metrics));
            self.pass(&mut queue);
            self.count(&queue, 0);
        }
    }

    /// Sets the gauge of requests in flight. `speaking`: those of this moment's pass.
    fn count(&self, queue: &VecDeque<ActiveJob>, speaking: usize) {
        let between = queue.iter().filter(|active| active.utterance.is_some()).count();
        self.metrics.in_flight.store((between + speaking) as u64, Ordering::Relaxed);
    }

    /// Takes new requests; waits where there is nothing to speak. False when that was the last.
    fn gather(&self, requests: &Receiver<WorkerRequest>, queue: &mut VecDeque<ActiveJob>) -> bool {
        if queue.is_empty() {
            let Ok(request) = requests.recv() else { return false };
            self.take(request, queue);
        } else if !queue.iter().any(ActiveJob::has_room) {
            std::thread::sleep(LOOK_AGAIN);
        }
        requests.try_iter().for_each(|request| self.take(request, queue));
        true
    }

    fn take(&self, request: WorkerRequest, queue: &mut VecDeque<ActiveJob>) {
        match request {
            WorkerRequest::Speak(job) => queue.push_back(ActiveJob::new(job)),
            WorkerRequest::Hear { recording, reply } => {
                let heard = crate::catch(|| self.voice.hear_wave(recording)).map_err(Into::into).flatten();
                let prompted = heard.map(|heard| (self.voice.prompt(&heard.voice), heard.notes));
                let _ = reply.send(prompted); // a client that left does not want it
            }
        }
    }

    /// Speaks the next clause of the first jobs in the queue that can take it; these go to its end.
    fn pass(&self, queue: &mut VecDeque<ActiveJob>) {
        let mut speaking: Vec<ActiveJob> = Vec::new();
        for _ in 0..queue.len() {
            let mut active = queue.pop_front().expect("as many as counted");
            if speaking.len() == self.batch || !active.has_room() {
                queue.push_back(active); // all of these pass through, so they keep their order
            } else if active.begin(self) {
                speaking.push(active);
            }
        }
        self.count(queue, speaking.len());
        if !speaking.is_empty() {
            self.speak(&mut speaking);
            queue.extend(speaking.into_iter().filter(|active| !active.done));
        }
    }

    fn speak(&self, speaking: &mut [ActiveJob]) {
        let mut utterances: Vec<&mut Utterance> =
            speaking.iter_mut().filter_map(|active| active.utterance.as_mut()).collect();
        let spoken = crate::catch(|| self.voice.advance(&mut utterances)).map_err(Into::into).flatten();
        self.metrics.passes.fetch_add(1, Ordering::Relaxed);
        match spoken {
            Ok(chunks) => speaking.iter_mut().zip(chunks).for_each(|(active, chunk)| match chunk {
                Ok(samples) => active.deliver(samples, self),
                Err(error) => active.fail(&error, self),
            }),
            Err(error) => speaking.iter_mut().for_each(|active| active.fail(&error, self)),
        }
    }
}

/// A job, and how far it is.
struct ActiveJob {
    job: SpeechJob,
    utterance: Option<Utterance>,
    begun: Instant,
    /// When its client last had room for a chunk.
    last_room: Instant,
    audio_sent: bool,
    done: bool,
}

impl ActiveJob {
    fn new(job: SpeechJob) -> Self {
        let now = Instant::now();
        ActiveJob { job, utterance: None, begun: now, last_room: now, audio_sent: false, done: false }
    }

    fn has_room(&self) -> bool {
        self.job.reply.capacity() > 0
    }

    /// Whether to go on: its client is there and takes what it gets, and there is time left.
    fn is_wanted(&mut self, metrics: &Metrics) -> bool {
        if self.has_room() {
            self.last_room = Instant::now();
        }
        let late = self.job.accepted.elapsed() > self.job.limit;
        let reason = match () {
            () if self.job.reply.is_closed() => "disconnected",
            () if self.last_room.elapsed() > STALL => "stalled",
            () if late => "timeout",
            () => return true,
        };
        metrics.cut(reason);
        if late {
            self.refuse(ApiError::timeout(self.job.limit.as_secs()));
        }
        false
    }

    /// Encodes the text on the first turn. False where it cannot be spoken.
    fn begin(&mut self, worker: &Worker) -> bool {
        if self.utterance.is_some() {
            return true;
        }
        self.begun = Instant::now();
        match crate::catch(|| worker.voice.begin(&self.job.request)) {
            Ok(Ok(utterance)) => self.utterance = Some(utterance),
            Ok(Err(error)) => self.refuse(ApiError::of_input("input", &error)),
            Err(error) => self.fail(&error.into(), worker),
        }
        self.utterance.is_some()
    }

    fn deliver(&mut self, samples: Vec<f32>, worker: &Worker) {
        let (metrics, accepted) = (&worker.metrics, self.job.accepted.elapsed().as_secs_f64());
        self.done = self.utterance.as_ref().is_none_or(Utterance::is_done);
        let seconds = samples.len() as f64 / f64::from(worker.voice.rate_hz());
        metrics.spoken(seconds);
        if !self.audio_sent && !samples.is_empty() {
            self.audio_sent = true;
            metrics.first_audio_seconds.observe(accepted);
        }
        if self.done {
            metrics.request_seconds.observe(accepted);
            let total = self.utterance.as_ref().map_or(seconds, Utterance::seconds);
            metrics.real_time_factor.observe(self.begun.elapsed().as_secs_f64() / total.max(1e-3));
        }
        if self.done || !samples.is_empty() {
            // There is room, or the client has left: the next look finds that out.
            let _ = self.job.reply.try_send(Chunk::Audio { samples, last: self.done });
        }
    }

    fn fail(&mut self, error: &anyhow::Error, worker: &Worker) {
        worker.metrics.cut("failed");
        (worker.log_failure)(&Explained::of(error.as_ref()).to_string());
        self.refuse(ApiError::internal("the voice could not speak this"));
    }

    fn refuse(&mut self, refusal: ApiError) {
        self.done = true;
        let _ = self.job.reply.try_send(Chunk::Failed(refusal)); // without room the reply ends without its last chunk
    }
}
