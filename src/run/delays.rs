//! `--simulate` on the model device: a step that takes longer keeps its GPU busy for so long.

use crate::feed::Event;
use anyhow::Result;
use host::simulate::{Delays, Hook, Moment};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tch::Device;
use torchx::{Arg, Kernel};

/// Keeps a GPU busy for so many nanoseconds.
const SPIN: &str = r#"extern "C" __global__ void spin(long long ns) {
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < ns);
}"#;

/// A hook that takes these delays in a run whose model is on `model`.
pub fn delaying(delays: Delays, model: Device) -> Result<Hook> {
    let others = delays.hook();
    if !model.is_cuda() || !delays.slows_steps() {
        return Ok(others);
    }
    let step = Mutex::new(SlowStep { delays, model, spin: Kernel::compile(SPIN, "spin", model)?, began: None });
    let slow = move |moment| step.lock().unwrap_or_else(PoisonError::into_inner).at(moment);
    Ok(Hook::new(move |moment| match moment {
        // A step's panics are its errors.
        Moment::StepBegins | Moment::StepEnds { .. } => slow(moment).unwrap_or_else(|error| panic!("{error}")),
        other => others.at(other),
    }))
}

struct SlowStep {
    delays: Delays,
    model: Device,
    spin: Kernel,
    began: Option<Event>,
}

impl SlowStep {
    /// Waits for the device at the end of a step, which nothing else in a step does.
    fn at(&mut self, moment: Moment) -> Result<(), torchx::Error> {
        let now = Event::now(self.model)?;
        let Moment::StepEnds { seed, number } = moment else {
            self.began = Some(now);
            return Ok(());
        };
        now.wait()?;
        let ms = self.began.as_ref().and_then(|began| began.ms_until(&now)).unwrap_or(0.0);
        let more = self.delays.longer_step(Duration::from_secs_f64(ms.max(0.0) / 1e3), seed, number);
        self.spin.launch([1; 3], [1; 3], 0, &[Arg::I64(more.as_nanos() as i64)])
    }
}
