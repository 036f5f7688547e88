//! Conditional flow matching along straight paths (Lipman et al. 2023), and the sampler that follows the learned field.

use std::f64::consts::FRAC_PI_2;
use tch::{Kind, Tensor};

/// Width of the path's end: what keeps the target finite where noise and speech meet (Matcha-TTS, eq. 2).
pub(super) const SIGMA_MIN: f64 = 1e-4;

/// Point at `time` on the path from `noise` to `speech`, and the velocity there. `time`: `[frames, 1]`.
pub fn path(noise: &Tensor, speech: &Tensor, time: &Tensor) -> (Tensor, Tensor) {
    let stay = -(time * (1.0 - SIGMA_MIN)) + 1.0;
    let point = stay * noise + time * speech;
    (point, speech - noise * (1.0 - SIGMA_MIN))
}

/// One step along the flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub time: f64,
    pub width: f64,
    /// How far the velocity goes on as it changed since the step before.
    pub lean: f64,
}

/// How far from even the steps are: more of them early, where the field turns most (sway sampling, F5-TTS, Chen et al. 2024).
const SWAY: f64 = -0.6;
/// Share of what the two-step Adams-Bashforth method adds. All of it is second order and overshoots where steps are few.
const MULTISTEP: f64 = 0.5;

/// The steps from time 0 to time 1. Six of them come as near to the exact path as ten even Euler steps: docs/results.md.
pub fn schedule(steps: usize) -> Vec<Step> {
    let time = |step: usize| {
        let even = step as f64 / steps as f64;
        even + SWAY * ((FRAC_PI_2 * even).cos() - 1.0 + even)
    };
    let width = |step: usize| time(step + 1) - time(step);
    let lean = |step: usize| if step == 0 { 0.0 } else { MULTISTEP * width(step) / (2.0 * width(step - 1)) };
    (0..steps).map(|step| Step { time: time(step), width: width(step), lean: lean(step) }).collect()
}

/// Follows `velocity` from noise at time 0 to speech at time 1.
pub fn sample(noise: Tensor, steps: usize, velocity: impl Fn(&Tensor, f64) -> Tensor) -> Tensor {
    let (mut x, mut before) = (noise, None::<Tensor>);
    for Step { time, width, lean } in schedule(steps) {
        let now = velocity(&x, time);
        let slope = before.map_or_else(|| now.shallow_clone(), |before| &now + (&now - before) * lean);
        x = &x + slope * width; // not in place: the noise is the caller's
        before = Some(now);
    }
    x
}

/// One time for each utterance, spread evenly over the unit interval and shifted by one uniform draw (`[1]`): every batch sees early,
/// middle and late times, which lowers the variance of the loss (Kingma et al. 2021, appendix I.1).
pub fn times(utterances: i64, shift: &Tensor) -> Tensor {
    let even = Tensor::arange(utterances, (Kind::Float, shift.device())) / utterances as f64;
    (even + shift).remainder(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn path_starts_at_noise_ends_at_speech_and_moves_at_its_velocity() {
        let (noise, speech) = (Tensor::from_slice(&[0.5f32, -1.0]), Tensor::from_slice(&[2.0f32, 3.0]));
        let at = |time: f64| path(&noise, &speech, &Tensor::full([1], time, (Kind::Float, Device::Cpu)));
        let close = |a: &Tensor, b: &Tensor| f64::try_from((a - b).abs().max()).unwrap() < 2e-4;
        assert!(close(&at(0.0).0, &noise));
        assert!(close(&at(1.0).0, &speech));
        let slope = (at(0.75).0 - at(0.25).0) / 0.5;
        assert!(close(&slope, &at(0.5).1));
    }

    #[test]
    fn sampler_solves_the_closed_form_case() {
        // Speech ~ N(m, s²), noise ~ N(0, 1): the exact field is m + (x - t m) (t s² - (1 - t)) / ((1 - t)² + t² s²),
        // and it carries noise z to m + s z.
        let (m, s) = (1.5, 0.5);
        let noise = Tensor::from_slice(&[-2.0f64, -0.3, 0.0, 1.0]);
        let field = |x: &Tensor, t: f64| {
            let gain = (t * s * s - (1.0 - t)) / ((1.0 - t).powi(2) + (t * s).powi(2));
            (x - t * m) * gain + m
        };
        let error = |speech: Tensor| f64::try_from((speech - (&noise * s + m)).abs().max()).unwrap();
        let exact = error(sample(noise.copy(), 2000, field));
        assert!(exact < 2e-3, "{exact}");
        let euler = (0..6).fold(noise.copy(), |x, step| &x + field(&x, f64::from(step) / 6.0) / 6.0);
        let (ours, euler) = (error(sample(noise.copy(), 6, field)), error(euler));
        assert!(ours < euler, "six steps are off by {ours:.3}, six even Euler steps by {euler:.3}");
    }

    #[test]
    fn steps_lead_from_noise_to_speech() {
        for steps in [1, 2, 6, 100] {
            let schedule = schedule(steps);
            let mut time = 0.0;
            for step in &schedule {
                assert!((step.time - time).abs() < 1e-12 && step.width > 0.0, "{step:?}");
                time += step.width;
            }
            assert!((time - 1.0).abs() < 1e-12 && schedule.len() == steps && schedule[0].lean == 0.0);
        }
    }

    #[test]
    fn times_cover_the_interval() {
        tch::manual_seed(3);
        let times = times(8, &Tensor::rand([1], FLOAT_CPU)).sort(0, false).0;
        let gaps = times.diff::<Tensor>(1, 0, None, None);
        assert!(f64::try_from((gaps - 0.125).abs().max()).unwrap() < 1e-5);
    }
}
