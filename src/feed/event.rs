//! Events on a device's own clock, so that no figure depends on when the host happened to look.

use std::time::Instant;
use tch::Device;
use torchx::Stream;

/// On the CPU, work is done when its call returns, and the host's clock tells when; on a GPU an event in the stream.
pub enum Event {
    Host(Instant),
    Gpu(torchx::Event),
}

impl Event {
    /// The end of what is queued on the device's current stream.
    pub fn now(device: Device) -> Result<Event, torchx::Error> {
        if !device.is_cuda() {
            return Ok(Event::Host(Instant::now()));
        }
        let event = torchx::Event::new(true)?;
        event.record(&Stream::current(device)?)?;
        Ok(Event::Gpu(event))
    }

    /// Whether the device is past it; does not wait.
    pub fn passed(&self) -> Result<bool, torchx::Error> {
        match self {
            Event::Host(_) => Ok(true),
            Event::Gpu(event) => event.query(),
        }
    }

    /// Blocks until the device is past it.
    pub fn wait(&self) -> Result<(), torchx::Error> {
        match self {
            Event::Host(_) => Ok(()),
            Event::Gpu(event) => event.synchronize(),
        }
    }

    /// What is queued on the device's current stream from now on starts after the event. The host does not wait.
    pub fn precede(&self, device: Device) -> Result<(), torchx::Error> {
        match self {
            Event::Gpu(event) if device.is_cuda() => Stream::current(device)?.wait(event),
            // A CPU that reads what a GPU writes has no stream to wait in.
            event => event.wait(),
        }
    }

    /// Milliseconds from here to a later event of the same device; negative when that one came first. Both must have
    /// passed; `None` for events of two different clocks.
    pub fn ms_until(&self, later: &Event) -> Option<f64> {
        match (self, later) {
            (Event::Host(a), Event::Host(b)) => Some(match b.checked_duration_since(*a) {
                Some(time) => time.as_secs_f64() * 1e3,
                None => -a.duration_since(*b).as_secs_f64() * 1e3,
            }),
            (Event::Gpu(a), Event::Gpu(b)) => a.elapsed_ms(b).ok().map(f64::from),
            _ => None,
        }
    }
}

/// Work between two events.
pub struct Interval {
    pub start: Event,
    pub end: Event,
}

impl Interval {
    /// Runs `work`, which queues on the device's current stream, between two events.
    pub fn of<T, E: From<torchx::Error>>(
        device: Device,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Interval), E> {
        let start = Event::now(device)?;
        let value = work()?;
        Ok((value, Interval { start, end: Event::now(device)? }))
    }

    pub fn ms(&self) -> Option<f64> {
        self.start.ms_until(&self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn host_events_tell_time_in_both_directions() {
        let start = Instant::now();
        let (a, b) = (Event::Host(start), Event::Host(start + Duration::from_millis(3)));
        assert_eq!(a.ms_until(&b), Some(3.0));
        assert_eq!(b.ms_until(&a), Some(-3.0));
        assert!(a.passed().unwrap());
    }
}
