//! AdamW (Loshchilov & Hutter, arXiv 1711.05101) as one fused kernel per group, on the CPU and on CUDA.
//!
//! [`AdamW::update`] has clipping, a moving average and narrow copies in it.
//!
//! Step count and learning rate live on the device, so a captured step stays right when either changes.

use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::ffi::{check, raw, raws, torchx_adamw, torchx_drop_grad, torchx_zero_grad};
use crate::fused::update::Passes;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    /// For parameters that take part in it.
    pub weight_decay: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 }
    }
}

/// What the optimizer keeps of one parameter.
#[derive(Debug)]
pub struct Moments {
    pub exp_avg: Tensor,
    pub exp_avg_sq: Tensor,
}

pub(crate) struct Slot {
    pub param: Tensor,
    pub decay: bool,
    pub moments: Moments,
}

pub struct AdamW {
    pub(crate) slots: Vec<Slot>,
    pub(crate) options: Options,
    /// 0-d, f32, on the parameters' device; one for all parameters.
    step: Tensor,
    pub(crate) lr: Tensor,
    /// Made by the first update that is one pass.
    pub(crate) passes: Option<Passes>,
}

impl AdamW {
    /// Each parameter with whether weight decay applies to it (as a rule not to biases and norms). All on one device.
    pub fn new(params: impl IntoIterator<Item = (Tensor, bool)>, options: Options) -> Result<AdamW, Error> {
        let slots = params.into_iter().map(|(param, decay)| Slot::new(param, decay)).collect::<Result<Vec<_>, _>>()?;
        let device = slots.first().map_or(Device::Cpu, |slot| slot.param.device());
        if let Some(slot) = slots.iter().find(|slot| slot.param.device() != device) {
            let other = slot.param.device();
            return Err(Error::Argument(format!("AdamW: parameters on {device:?} and {other:?}: they must share one")));
        }
        let step = Tensor::f_zeros([], (Kind::Float, device))?;
        let lr = Tensor::f_full([], options.lr, (Kind::Float, device))?;
        Ok(AdamW { slots, options, step, lr, passes: None })
    }

    /// Updates every parameter that has a gradient. `found_inf` (f32, 0-d, on the device) skips the whole step, count
    /// and all, where it is 1; the host does not wait to learn which.
    pub fn step(&mut self, found_inf: Option<&Tensor>) -> Result<(), Error> {
        let _ = self.step.f_add_scalar_(1)?;
        self.step_those(true, self.options.weight_decay, found_inf)?;
        self.step_those(false, 0.0, found_inf)?;
        if let Some(found_inf) = found_inf {
            let _ = self.step.f_sub_(found_inf)?;
        }
        Ok(())
    }

    /// Gradients become zero where they are: their memory stays, as a captured step needs.
    pub fn zero_grad(&self) -> Result<(), Error> {
        let params = raws(self.params());
        // SAFETY: live tensors and their count.
        check(unsafe { torchx_zero_grad(params.as_ptr(), params.len()) })
    }

    /// Gradients are given up: the next backward pass hands its own over instead of adding to them, a kernel less for
    /// each. A captured step may do so where it has its backward pass and its update in one graph.
    pub fn drop_grad(&self) -> Result<(), Error> {
        let params = raws(self.params());
        // SAFETY: live tensors and their count.
        check(unsafe { torchx_drop_grad(params.as_ptr(), params.len()) })
    }

    /// From the next step on, a captured one too. The host does not wait.
    pub fn set_lr(&mut self, lr: f64) -> Result<(), Error> {
        self.options.lr = lr;
        let _ = self.lr.f_fill_(lr)?;
        Ok(())
    }

    /// Steps made, those skipped not counted: f32, 0-d, on the device. Reading it waits for the GPU.
    pub fn steps(&self) -> &Tensor {
        &self.step
    }

    pub(crate) fn params(&self) -> impl Iterator<Item = &Tensor> {
        self.slots.iter().map(|slot| &slot.param)
    }

    /// One per parameter, in the order they were given in.
    pub fn moments(&self) -> impl Iterator<Item = &Moments> {
        self.slots.iter().map(|slot| &slot.moments)
    }

    /// Copies a saved state into place. Checked before anything changes: a state that does not fit leaves all as it was.
    pub fn load_state(&mut self, steps: f64, moments: &[Moments]) -> Result<(), Error> {
        if moments.len() != self.slots.len() {
            let (given, wanted) = (moments.len(), self.slots.len());
            return Err(Error::Argument(format!("AdamW: a state of {given} parameters for {wanted}")));
        }
        for (index, (slot, saved)) in self.slots.iter().zip(moments).enumerate() {
            let shape = slot.param.size();
            if saved.exp_avg.size() != shape || saved.exp_avg_sq.size() != shape {
                let given = saved.exp_avg.size();
                return Err(Error::Argument(format!("AdamW: parameter {index} is {shape:?}, its moments {given:?}")));
            }
        }
        for (slot, saved) in self.slots.iter_mut().zip(moments) {
            slot.moments.exp_avg.f_copy_(&saved.exp_avg)?;
            slot.moments.exp_avg_sq.f_copy_(&saved.exp_avg_sq)?;
        }
        let _ = self.step.f_fill_(steps)?;
        Ok(())
    }

    fn step_those(&self, decay: bool, weight_decay: f64, found_inf: Option<&Tensor>) -> Result<(), Error> {
        let group: Vec<&Slot> = self.slots.iter().filter(|slot| slot.decay == decay).collect();
        let params = raws(group.iter().map(|slot| &slot.param));
        let exp_avgs = raws(group.iter().map(|slot| &slot.moments.exp_avg));
        let exp_avg_sqs = raws(group.iter().map(|slot| &slot.moments.exp_avg_sq));
        let Options { beta1, beta2, eps, .. } = self.options;
        // SAFETY: three lists of live tensors of one length; LibTorch checks their shapes and kinds.
        check(unsafe {
            torchx_adamw(
                params.as_ptr(),
                exp_avgs.as_ptr(),
                exp_avg_sqs.as_ptr(),
                params.len(),
                raw(&self.step),
                raw(&self.lr),
                beta1,
                beta2,
                weight_decay,
                eps,
                found_inf.map_or(std::ptr::null(), raw),
            )
        })
    }
}

impl Slot {
    fn new(param: Tensor, decay: bool) -> Result<Slot, Error> {
        let zeros = || tch::no_grad(|| param.f_zeros_like());
        let moments = Moments { exp_avg: zeros()?, exp_avg_sq: zeros()? };
        Ok(Slot { param, decay, moments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    const OPTIONS: Options = Options { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.05 };

    /// Algorithm 2 of the paper in f64, on one number; gradient of (p - 3)^2.
    fn reference(mut p: f64, steps: i32, decay: f64, lr: impl Fn(i32) -> f64) -> f64 {
        let Options { beta1, beta2, eps, .. } = OPTIONS;
        let (mut m, mut v) = (0.0, 0.0);
        for t in 1..=steps {
            let g = 2.0 * (p - 3.0);
            m = beta1 * m + (1.0 - beta1) * g;
            v = beta2 * v + (1.0 - beta2) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - beta1.powi(t)), v / (1.0 - beta2.powi(t)));
            p -= lr(t) * (m_hat / (v_hat.sqrt() + eps) + decay * p);
        }
        p
    }

    fn param(value: f64) -> Tensor {
        Tensor::full([3, 2], value, FLOAT_CPU).set_requires_grad(true)
    }

    fn optimizer(params: &[(&Tensor, bool)]) -> AdamW {
        AdamW::new(params.iter().map(|(p, decay)| (p.shallow_clone(), *decay)), OPTIONS).unwrap()
    }

    fn backward<'a>(params: impl IntoIterator<Item = &'a Tensor>) {
        for p in params {
            (p - 3.0).square().sum(Kind::Float).backward();
        }
    }

    fn run(optimizer: &mut AdamW, steps: i32) {
        for _ in 0..steps {
            optimizer.zero_grad().unwrap();
            backward(optimizer.params());
            optimizer.step(None).unwrap();
        }
    }

    fn value(p: &Tensor) -> f64 {
        p.double_value(&[2, 1])
    }

    #[test]
    fn follows_the_paper_with_and_without_decay() {
        let (a, b) = (param(1.0), param(-2.0));
        let mut optimizer = optimizer(&[(&a, true), (&b, false)]);
        for steps in [1, 1, 5, 93] {
            run(&mut optimizer, steps);
            let done = optimizer.steps().double_value(&[]) as i32;
            assert!((value(&a) - reference(1.0, done, 0.05, |_| 0.1)).abs() < 1e-4, "step {done}: {}", value(&a));
            assert!((value(&b) - reference(-2.0, done, 0.0, |_| 0.1)).abs() < 1e-4, "step {done}: {}", value(&b));
        }
        assert_eq!(optimizer.steps().double_value(&[]), 100.0);
    }

    #[test]
    fn a_new_learning_rate_counts_from_the_next_step() {
        let a = param(1.0);
        let mut optimizer = optimizer(&[(&a, true)]);
        run(&mut optimizer, 3);
        optimizer.set_lr(0.01).unwrap();
        run(&mut optimizer, 4);
        let wanted = reference(1.0, 7, 0.05, |t| if t <= 3 { 0.1 } else { 0.01 });
        assert!((value(&a) - wanted).abs() < 1e-5, "{} {wanted}", value(&a));
    }

    #[test]
    fn found_inf_skips_the_step() {
        let a = param(1.0);
        let mut optimizer = optimizer(&[(&a, true)]);
        run(&mut optimizer, 2);
        let before = (value(&a), optimizer.moments().next().unwrap().exp_avg.copy());
        optimizer.step(Some(&Tensor::from(1.0f32))).unwrap();
        assert_eq!((value(&a), optimizer.steps().double_value(&[])), (before.0, 2.0));
        assert_eq!(optimizer.moments().next().unwrap().exp_avg, before.1);
        optimizer.step(Some(&Tensor::from(0.0f32))).unwrap();
        assert!(value(&a) != before.0 && optimizer.steps().double_value(&[]) == 3.0);
    }

    #[test]
    fn a_loaded_state_goes_on_where_it_was() {
        let (a, b) = (param(1.0), param(1.0));
        let (mut first, mut second) = (optimizer(&[(&a, true)]), optimizer(&[(&b, true)]));
        run(&mut first, 5);
        let copy = |m: &Moments| Moments { exp_avg: m.exp_avg.copy(), exp_avg_sq: m.exp_avg_sq.copy() };
        let state: Vec<Moments> = first.moments().map(copy).collect();
        tch::no_grad(|| b.shallow_clone().copy_(&a));
        second.load_state(first.steps().double_value(&[]), &state).unwrap();
        run(&mut first, 5);
        run(&mut second, 5);
        assert_eq!(a, b);
        assert!(second.load_state(1.0, &[]).unwrap_err().to_string().contains("a state of 0 parameters for 1"));
        let bad = [Moments { exp_avg: Tensor::zeros([4], FLOAT_CPU), exp_avg_sq: Tensor::zeros([4], FLOAT_CPU) }];
        assert!(second.load_state(1.0, &bad).is_err());
    }

    #[test]
    fn a_parameter_without_a_gradient_stays() {
        let (a, unused) = (param(1.0), param(1.0));
        let mut optimizer = optimizer(&[(&a, true), (&unused, true)]);
        backward([&a]);
        optimizer.step(None).unwrap();
        assert_eq!(value(&unused), 1.0);
        assert!(value(&a) != 1.0);
    }

    #[test]
    fn dropped_gradients_are_not_added_to() {
        let a = param(1.0);
        let optimizer = optimizer(&[(&a, true)]);
        for _ in 0..2 {
            backward([&a]);
            assert_eq!(a.grad().double_value(&[0, 0]), -4.0);
            optimizer.drop_grad().unwrap();
            assert!(!a.grad().defined());
        }
    }

    #[test]
    fn zero_grad_keeps_the_memory() {
        let a = param(1.0);
        let optimizer = optimizer(&[(&a, true)]);
        backward([&a]);
        let place = a.grad().data_ptr();
        optimizer.zero_grad().unwrap();
        assert_eq!((a.grad().data_ptr(), a.grad().abs().max().double_value(&[])), (place, 0.0));
    }
}
