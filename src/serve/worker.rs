//! The thread that owns the voice. Requests under way take turns clause by clause, several in one forward pass, so a
//! short one never waits for the end of a long one.

use super::metrics::Metrics;
use super::refusal::Refusal;
use crate::audio::Waveform;
use crate::synth::voice::Prompt;
use crate::synth::{Request, Synthesizer, Utterance};
use anyhow::Result;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Pieces that may wait for a client to take them. A request whose client takes none passes its turns.
pub const PIECES_AHEAD: usize = 4;
/// A client that takes nothing for this long is gone.
const STALL: Duration = Duration::from_secs(30);
/// How soon a client that takes pieces again is noticed where all others are done.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What the thread is asked for.
pub enum Order {
    Speak(Job),
    Hear { recording: Waveform, reply: oneshot::Sender<Result<Prompt>> },
}

/// A request that was accepted.
pub struct Job {
    pub request: Request,
    pub reply: mpsc::Sender<Piece>,
    pub accepted: Instant,
    pub limit: Duration,
    /// In the queue; given back when the job is dropped, for whatever reason.
    pub _place: OwnedSemaphorePermit,
}

/// Samples in order, or why there are none. A reply that ends without a last piece was cut.
pub enum Piece {
    Sound { samples: Vec<f32>, last: bool },
    Refused(Refusal),
}

pub struct Worker {
    pub voice: Synthesizer,
    /// Requests in one forward pass.
    pub batch: usize,
    pub metrics: Arc<Metrics>,
    /// Hears of failures.
    pub tell: fn(&str),
}

impl Worker {
    /// Until nobody can order any more.
    pub fn run(self, orders: &Receiver<Order>) {
        let mut row = VecDeque::new();
        while self.gather(orders, &mut row) {
            row.retain_mut(|turn: &mut Turn| turn.is_wanted(&self.metrics));
            self.pass(&mut row);
            self.count(&row, 0);
        }
    }

    /// `speaking`: those of this moment's pass.
    fn count(&self, row: &VecDeque<Turn>, speaking: usize) {
        let between = row.iter().filter(|turn| turn.utterance.is_some()).count();
        self.metrics.in_flight.store((between + speaking) as u64, Ordering::Relaxed);
    }

    /// Takes what was ordered; waits where there is nothing to speak. False when that was the last.
    fn gather(&self, orders: &Receiver<Order>, row: &mut VecDeque<Turn>) -> bool {
        if row.is_empty() {
            let Ok(order) = orders.recv() else { return false };
            self.take(order, row);
        } else if !row.iter().any(Turn::has_room) {
            std::thread::sleep(LOOK_AGAIN);
        }
        orders.try_iter().for_each(|order| self.take(order, row));
        true
    }

    fn take(&self, order: Order, row: &mut VecDeque<Turn>) {
        match order {
            Order::Speak(job) => row.push_back(Turn::new(job)),
            Order::Hear { recording, reply } => {
                let heard = torchx::catch(|| self.voice.hear_wave(recording)).map_err(Into::into).flatten();
                let _ = reply.send(heard.map(|voice| self.voice.prompt(&voice))); // a client that left does not want it
            }
        }
    }

    /// The next clause of the first in the row that can take it; they go to its end.
    fn pass(&self, row: &mut VecDeque<Turn>) {
        let mut speaking: Vec<Turn> = Vec::new();
        for _ in 0..row.len() {
            let mut turn = row.pop_front().expect("as many turns as counted");
            if speaking.len() == self.batch || !turn.has_room() {
                row.push_back(turn); // all of these pass through, so they keep their order
            } else if turn.begin(self) {
                speaking.push(turn);
            }
        }
        self.count(row, speaking.len());
        if !speaking.is_empty() {
            self.speak(&mut speaking);
            row.extend(speaking.into_iter().filter(|turn| !turn.over));
        }
    }

    fn speak(&self, speaking: &mut [Turn]) {
        let mut utterances: Vec<&mut Utterance> =
            speaking.iter_mut().filter_map(|turn| turn.utterance.as_mut()).collect();
        let spoken = torchx::catch(|| self.voice.advance(&mut utterances)).map_err(Into::into).flatten();
        self.metrics.passes.fetch_add(1, Ordering::Relaxed);
        match spoken {
            Ok(pieces) => speaking.iter_mut().zip(pieces).for_each(|(turn, piece)| match piece {
                Ok(samples) => turn.deliver(samples, self),
                Err(error) => turn.fail(&error, self),
            }),
            Err(error) => speaking.iter_mut().for_each(|turn| turn.fail(&error, self)),
        }
    }
}

/// A job and how far it is.
struct Turn {
    job: Job,
    utterance: Option<Utterance>,
    begun: Instant,
    /// When its client last had room for a piece.
    roomy: Instant,
    heard: bool,
    over: bool,
}

impl Turn {
    fn new(job: Job) -> Self {
        let now = Instant::now();
        Turn { job, utterance: None, begun: now, roomy: now, heard: false, over: false }
    }

    fn has_room(&self) -> bool {
        self.job.reply.capacity() > 0
    }

    /// Whether to go on: its client is there and takes what it gets, and there is time left.
    fn is_wanted(&mut self, metrics: &Metrics) -> bool {
        if self.has_room() {
            self.roomy = Instant::now();
        }
        let late = self.job.accepted.elapsed() > self.job.limit;
        let reason = match () {
            () if self.job.reply.is_closed() => "disconnected",
            () if self.roomy.elapsed() > STALL => "stalled",
            () if late => "timeout",
            () => return true,
        };
        metrics.cut(reason);
        if late {
            self.refuse(Refusal::timeout(self.job.limit.as_secs()));
        }
        false
    }

    /// Encodes the text on the first turn. False where it cannot be spoken.
    fn begin(&mut self, worker: &Worker) -> bool {
        if self.utterance.is_some() {
            return true;
        }
        self.begun = Instant::now();
        match torchx::catch(|| worker.voice.begin(&self.job.request)) {
            Ok(Ok(utterance)) => self.utterance = Some(utterance),
            Ok(Err(error)) => self.refuse(Refusal::of_input("input", &error)),
            Err(error) => self.fail(&error.into(), worker),
        }
        self.utterance.is_some()
    }

    fn deliver(&mut self, samples: Vec<f32>, worker: &Worker) {
        let (metrics, accepted) = (&worker.metrics, self.job.accepted.elapsed().as_secs_f64());
        self.over = self.utterance.as_ref().is_none_or(Utterance::is_done);
        let seconds = samples.len() as f64 / f64::from(worker.voice.rate_hz());
        metrics.spoken(seconds);
        if !self.heard && !samples.is_empty() {
            self.heard = true;
            metrics.first_audio_seconds.observe(accepted);
        }
        if self.over {
            metrics.request_seconds.observe(accepted);
            let total = self.utterance.as_ref().map_or(seconds, Utterance::seconds);
            metrics.real_time_factor.observe(self.begun.elapsed().as_secs_f64() / total.max(1e-3));
        }
        if self.over || !samples.is_empty() {
            // There is room, or the client has left: the next look finds that out.
            let _ = self.job.reply.try_send(Piece::Sound { samples, last: self.over });
        }
    }

    fn fail(&mut self, error: &anyhow::Error, worker: &Worker) {
        worker.metrics.cut("failed");
        (worker.tell)(&format!("{error:#}"));
        self.refuse(Refusal::internal("the voice could not speak this"));
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.over = true;
        let _ = self.job.reply.try_send(Piece::Refused(refusal)); // without room the reply ends without its last piece
    }
}
