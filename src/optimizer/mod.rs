//! Parameters that one optimizer moves, their average over time, and the scale that keeps f16 gradients in range.

use anyhow::Result;
use host::config::Training;
use std::collections::HashMap;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchx::fused::{Tally, Update};
use torchx::{AdamW, Copies, named_parameters};

/// Parameters of one network with their optimizer.
pub struct ParameterGroup {
    /// Name of the group's files in a checkpoint.
    pub name: &'static str,
    pub store: VarStore,
    pub optimizer: AdamW,
    /// In the order of `named_parameters`.
    parameters: Vec<Tensor>,
    average: Option<Ema>,
    /// Narrow copies that stay from step to step, where the run has asked for them.
    copies: Option<Copies>,
    clip_norm: f64,
}

/// Exponential moving average of the parameters, started from zero: divided by `1 - decay^updates` when it is read, it
/// is the weighted mean of what there was. It starts again whenever the number of steps has doubled, until the run is
/// long against its memory: a short run's average must not remember how it began.
struct Ema {
    decay: f64,
    sums: Vec<Tensor>,
}

impl ParameterGroup {
    /// A group of all parameters in a store. `averaged`: keep a moving average, for what is used after training.
    pub fn new(name: &'static str, store: VarStore, config: &Training, averaged: bool) -> Result<Self> {
        let parameters: Vec<Tensor> = named_parameters(&store).into_iter().map(|(_, tensor)| tensor).collect();
        let optimizer = AdamW::new(
            // Decay shrinks matrices; biases, norms and other vectors are left alone.
            parameters.iter().map(|tensor| (tensor.shallow_clone(), tensor.dim() > 1)),
            torchx::adamw::Options {
                lr: config.peak_rate(),
                beta1: config.beta1,
                beta2: config.beta2,
                eps: 1e-8,
                weight_decay: config.weight_decay,
            },
        )?;
        let zeros = || tch::no_grad(|| parameters.iter().map(Tensor::zeros_like).collect());
        let wanted = averaged && config.ema_decay > 0.0;
        let average = wanted.then(|| Ema { decay: config.ema_decay, sums: zeros() });
        let clip_norm = config.gradient_clip_norm;
        Ok(ParameterGroup { name, store, optimizer, parameters, average, copies: None, clip_norm })
    }

    pub fn len(&self) -> usize {
        self.parameters.iter().map(Tensor::numel).sum()
    }

    /// Prepares step `number`, which counts from 0.
    pub fn begin(&mut self, number: u64) -> Result<(), torchx::Error> {
        if let Some(average) = &self.average
            && average.restarts_at(number)
        {
            for sum in &average.sums {
                let _ = sum.shallow_clone().f_zero_()?;
            }
        }
        Ok(())
    }

    pub fn set_rate(&mut self, rate: f64) -> Result<(), torchx::Error> {
        self.optimizer.set_lr(rate)
    }

    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// Everything that an update changes: parameters, moments, the count of steps, averages.
    pub fn state(&self) -> impl Iterator<Item = &Tensor> {
        let moments = self.optimizer.moments().flat_map(|moments| [&moments.exp_avg, &moments.exp_avg_sq]);
        let averages = self.average.iter().flat_map(|average| &average.sums);
        self.parameters.iter().chain(moments).chain([self.optimizer.steps()]).chain(averages)
    }

    /// Unscale, clip, update, average, all of it on the device; the tally says how it went.
    pub fn update(&mut self, scale: &LossScale, tally: Tally) -> Result<(), torchx::Error> {
        scale.undo(&self.parameters)?;
        self.optimizer.update(&Update {
            max_norm: self.clip_norm,
            averages: self.average.as_ref().map(|average| (&average.sums[..], 1.0 - average.decay)),
            copies: self.copies.as_ref().map_or(&[], Copies::tensors),
            tally,
        })
    }

    /// Narrow copies for the next step, as the parameters are now. Not part of a graph: call it before each step.
    pub fn refresh_copies(&mut self, kind: Kind) -> Result<(), torchx::Error> {
        match &mut self.copies {
            Some(copies) => copies.refresh(),
            none => {
                *none = Some(Copies::new(&self.parameters, kind)?);
                Ok(())
            }
        }
    }

    /// What `refresh_copies` has made.
    pub fn copies(&self) -> Option<&Copies> {
        self.copies.as_ref()
    }

    /// The next backward pass hands its gradients over instead of adding to these.
    pub fn drop_gradients(&self) -> Result<(), torchx::Error> {
        self.optimizer.drop_grad()?;
        self.copies.as_ref().map_or(Ok(()), Copies::drop_grad)
    }

    /// Names of the parameters whose gradients hold values that are not finite. Waits for the device.
    pub fn spoiled(&self) -> Vec<String> {
        let is_spoiled = |gradient: Tensor| gradient.defined() && gradient.isfinite().all().int64_value(&[]) == 0;
        let copies = self.copies.as_ref().map_or(&[][..], Copies::tensors);
        let named = named_parameters(&self.store).into_iter().enumerate();
        let spoiled = named.filter(|(index, (_, parameter))| {
            is_spoiled(parameter.grad()) || copies.get(*index).is_some_and(|copy| is_spoiled(copy.grad()))
        });
        spoiled.map(|(_, (name, _))| name).collect()
    }

    /// Sum of the weights of all values in the average after so many steps; absent when there is no average.
    pub fn weight_sum(&self, steps: u64) -> Option<f64> {
        self.average.as_ref().map(|average| average.weight_sum(steps))
    }

    /// Sums of the average by parameter name; empty when there is no average.
    pub fn averages(&self) -> Vec<(String, &Tensor)> {
        let sums = self.average.iter().flat_map(|average| &average.sums);
        named_parameters(&self.store).into_iter().map(|(name, _)| name).zip(sums).collect()
    }

    /// Runs `work` with the averaged weights in place of the trained ones.
    pub fn with_average<T>(&self, steps: u64, work: impl FnOnce() -> T) -> T {
        let Some(average) = self.average.as_ref().filter(|_| steps > 0) else { return work() };
        let trained: Vec<Tensor> = tch::no_grad(|| self.parameters.iter().map(Tensor::copy).collect());
        let share = average.weight_sum(steps);
        tch::no_grad(|| {
            for (parameter, sum) in self.parameters.iter().zip(&average.sums) {
                parameter.shallow_clone().copy_(&(sum / share));
            }
        });
        let result = work();
        tch::no_grad(|| {
            for (parameter, value) in self.parameters.iter().zip(&trained) {
                parameter.shallow_clone().copy_(value);
            }
        });
        result
    }
}

impl Ema {
    fn restarts_at(&self, number: u64) -> bool {
        number.is_power_of_two() && (number as f64) < MEMORIES / (1.0 - self.decay)
    }

    fn weight_sum(&self, steps: u64) -> f64 {
        let start = (0..63).map(|power| 1u64 << power).rfind(|&start| start < steps && self.restarts_at(start));
        let updates = steps - start.unwrap_or(0);
        1.0 - self.decay.powi(updates.min(i32::MAX as u64) as i32)
    }
}

/// Factor on the loss. f16 gradients below 6e-8 would vanish, so the loss is scaled up, as far as no gradient
/// overflows; f32 and bf16 have room enough and keep 1. All on the device: a captured step adapts it too.
pub struct LossScale {
    value: Tensor,
    /// Steps since the last overflow; absent when the scale never changes.
    streak: Option<Tensor>,
}

/// Times its memory that an average must be old to go on for good.
const MEMORIES: f64 = 10.0;
const FIRST_SCALE: f64 = 65536.0;
const LARGEST_SCALE: f64 = 16_777_216.0;
/// Steps without an overflow before the scale doubles.
const GROWTH_STEPS: f64 = 1000.0;

impl LossScale {
    pub fn new(kind: Kind, device: Device) -> Self {
        let number = |value: f64| Tensor::full([], value, (Kind::Float, device));
        match kind {
            Kind::Half => LossScale { value: number(FIRST_SCALE), streak: Some(number(0.0)) },
            _ => LossScale { value: number(1.0), streak: None },
        }
    }

    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// Tensors that a checkpoint must hold; none where the scale never changes.
    pub fn saved(&self) -> Vec<(String, &Tensor)> {
        let named = |streak| vec![("loss_scale".to_owned(), &self.value), ("loss_scale_streak".to_owned(), streak)];
        self.streak.as_ref().map_or_else(Vec::new, named)
    }

    pub fn load(&mut self, saved: &HashMap<String, Tensor>) {
        if let (Some(streak), Some(value), Some(steps)) =
            (&mut self.streak, saved.get("loss_scale"), saved.get("loss_scale_streak"))
        {
            self.value.copy_(value);
            streak.copy_(steps);
        }
    }

    fn undo(&self, parameters: &[Tensor]) -> Result<(), torchx::Error> {
        match self.streak {
            Some(_) => torchx::scale_grad(parameters, &self.value.reciprocal()),
            None => Ok(()),
        }
    }

    /// Halves after an overflow (`bad` is 1), doubles after a long time without one.
    pub fn adapt(&mut self, bad: &Tensor) {
        let Some(streak) = &mut self.streak else { return };
        let longer = (&*streak + 1.0) * (-bad + 1.0);
        let grow = longer.ge(GROWTH_STEPS).to_kind(Kind::Float);
        let next = (&self.value * (bad * -0.5 + 1.0) * (&grow + 1.0)).clamp(1.0, LARGEST_SCALE);
        self.value.copy_(&next);
        streak.copy_(&(longer * (-grow + 1.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_weighted_mean_of_what_there_was() {
        let mut config = host::config::Config::default().training;
        (config.ema_decay, config.learning_rate, config.weight_decay) = (0.5, Some(1.0), 0.0);
        let store = VarStore::new(Device::Cpu);
        let mut weight = store.root().var("weight", &[1], tch::nn::Init::Const(0.0));
        let mut group = ParameterGroup::new("model", store, &config, true).unwrap();
        // What the optimizer does is not the point: values are set by hand, and there is no gradient.
        for (number, value) in [9.0, 9.0, 9.0, 9.0, 1.0, 2.0, 4.0].into_iter().enumerate() {
            let _ = tch::no_grad(|| weight.fill_(value));
            group.begin(number as u64).unwrap();
            let [norm, spoiled, skipped] = [(); 3].map(|()| Tensor::zeros([1], tch::kind::FLOAT_CPU));
            let tally = Tally { norm: &norm, spoiled: &spoiled, skipped: &skipped, is_first: true };
            group.update(&LossScale::new(Kind::Float, Device::Cpu), tally).unwrap();
        }
        // It started again at 1, at 2 and at 4.
        let mean = (0.125 * 1.0 + 0.25 * 2.0 + 0.5 * 4.0) / 0.875;
        let seen = group.with_average(7, || weight.double_value(&[0]));
        assert!((seen - mean).abs() < 1e-6, "{seen} and {mean}");
        assert_eq!(weight.double_value(&[0]), 4.0);
    }

    #[test]
    fn the_scale_halves_on_overflow_and_doubles_after_a_quiet_time() {
        let mut scale = LossScale::new(Kind::Half, Device::Cpu);
        let (good, bad) = (Tensor::from(0f32), Tensor::from(1f32));
        scale.adapt(&bad);
        assert_eq!(scale.value.double_value(&[]), FIRST_SCALE / 2.0);
        (0..GROWTH_STEPS as usize - 1).for_each(|_| scale.adapt(&good));
        assert_eq!(scale.value.double_value(&[]), FIRST_SCALE / 2.0);
        scale.adapt(&good);
        assert_eq!(scale.value.double_value(&[]), FIRST_SCALE);
        let mut plain = LossScale::new(Kind::BFloat16, Device::Cpu);
        plain.adapt(&bad);
        assert_eq!(plain.value.double_value(&[]), 1.0);
    }
}
