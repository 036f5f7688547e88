//! Between a run and those who look at it. The run puts news in and goes on; who does not take them in time loses them.

use serde::Serialize;
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// News that wait for a client; the oldest go first.
const BACKLOG: usize = 64;
/// Notes that wait for the next step.
const MOST_NOTES: usize = 32;

/// What a run shows of itself, and what it was asked for.
pub struct Hub {
    news: broadcast::Sender<Arc<str>>,
    /// The last of each kind, for who comes later.
    latest: Mutex<BTreeMap<&'static str, Arc<str>>>,
    requests: Option<Mutex<Requests>>,
    /// Ends the run after it has saved.
    stop: Arc<AtomicBool>,
}

/// What was asked for since the last look.
#[derive(Debug, Default, PartialEq)]
pub struct Requests {
    pub save: bool,
    pub notes: Vec<String>,
}

impl Hub {
    /// `controls`: whether anything may be asked for. `stop` ends the run.
    pub fn new(controls: bool, stop: Arc<AtomicBool>) -> Self {
        let requests = controls.then(Mutex::default);
        Hub { news: broadcast::channel(BACKLOG).0, latest: Mutex::default(), requests, stop }
    }

    /// Whether anybody looks right now.
    pub fn is_watched(&self) -> bool {
        self.news.receiver_count() > 0
    }

    pub fn controls(&self) -> bool {
        self.requests.is_some()
    }

    /// Whether the run was told to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Shows something to whoever looks. Never waits for them.
    pub fn publish(&self, kind: &'static str, value: &impl Serialize) {
        let Ok(json) = serde_json::to_string(value) else { return };
        let event: Arc<str> = format!("event: {kind}\ndata: {json}\n\n").into();
        lock(&self.latest).insert(kind, event.clone());
        let _ = self.news.send(event); // nobody looks
    }

    /// The last of each kind, and all that comes from now on.
    pub(super) fn subscribe(&self) -> (Vec<Arc<str>>, broadcast::Receiver<Arc<str>>) {
        let latest = lock(&self.latest);
        (latest.values().cloned().collect(), self.news.subscribe())
    }

    /// Takes what was asked for since the last call.
    pub fn take_requests(&self) -> Requests {
        self.requests.as_ref().map_or_else(Requests::default, |requests| mem::take(&mut *lock(requests)))
    }

    /// Asks for a checkpoint; false where nothing may be asked for.
    pub(super) fn ask_to_save(&self) -> bool {
        self.requests.as_ref().map(|requests| lock(requests).save = true).is_some()
    }

    pub(super) fn ask_to_stop(&self) -> bool {
        self.requests.as_ref().map(|_| self.stop.store(true, Ordering::Relaxed)).is_some()
    }

    pub(super) fn note(&self, text: String) -> bool {
        let Some(requests) = &self.requests else { return false };
        let notes = &mut lock(requests).notes;
        let has_room = notes.len() < MOST_NOTES;
        notes.extend(has_room.then_some(text));
        has_room
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_loses_the_oldest_and_nobody_waits() {
        let hub = Hub::new(false, Arc::default());
        hub.publish("pulse", &0);
        let (latest, mut stalled) = hub.subscribe();
        assert_eq!(latest.len(), 1, "who comes later sees how it stands");
        assert!(hub.is_watched());
        (1..=1000).for_each(|number| hub.publish("pulse", &number));
        assert!(matches!(stalled.try_recv(), Err(broadcast::error::TryRecvError::Lagged(936))));
        assert_eq!(&*stalled.try_recv().unwrap(), "event: pulse\ndata: 937\n\n");
        drop(stalled);
        assert!(!hub.is_watched());
    }

    #[test]
    fn nothing_can_be_asked_for_without_leave() {
        let stop = Arc::new(AtomicBool::new(false));
        let closed = Hub::new(false, stop.clone());
        assert!(!closed.ask_to_save() && !closed.ask_to_stop() && !closed.note("a".into()));
        assert!(!stop.load(Ordering::Relaxed) && closed.take_requests() == Requests::default());
        let open = Hub::new(true, stop.clone());
        assert!(open.ask_to_save() && open.note("a".into()) && open.ask_to_stop());
        assert_eq!(open.take_requests(), Requests { save: true, notes: vec!["a".into()] });
        assert!(open.take_requests() == Requests::default() && stop.load(Ordering::Relaxed));
        assert!((0..40).filter(|_| open.note("b".into())).count() == MOST_NOTES);
    }
}
