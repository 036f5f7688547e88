//! The whole update of a step: gradients clipped by their norm, AdamW, moving average, narrow copies. On CUDA it is one
//! pass over the parameters, behind one over the gradients for their norm; elsewhere LibTorch's own operations.

use tch::{Device, Kind, Tensor};

use crate::adamw::{AdamW, Options, Slot};
use crate::clip::clip_grad_norm;
use crate::error::Error;
use crate::foreach::lerp;
use crate::kernel::{Arg, Kernel};
use crate::narrow::{adopt_gradients, copy_values};

/// Gradients' addresses that one launch hands over: a launch has 4 KB of arguments.
const ADDRESSES: usize = 448;
/// Elements of one block.
const CHUNK: usize = 2048;
const THREADS: usize = 256;
/// Chunks of one block that sums squares: what the source calls quarters, times what each of them takes.
const SQUARED: usize = 16;
/// Words of what the source calls a slot, and of what it calls a verdict.
const SLOT: usize = 8;
const VERDICT: i64 = 8;

/// What an update does besides moving the parameters. Lists are in the order of the parameters.
pub struct Update<'a> {
    /// Largest norm of all gradients together.
    pub max_norm: f64,
    /// Moving averages and how far each goes towards its parameter.
    pub averages: Option<(&'a [Tensor], f64)>,
    /// Narrow copies, whose gradients count as their parameters'; may be none.
    pub copies: &'a [Tensor],
    pub tally: Tally<'a>,
}

/// What is counted of an update, all f32 of one element, on the device.
pub struct Tally<'a> {
    /// The norm is added to it, where it is finite.
    pub norm: &'a Tensor,
    /// Becomes 1 where the norm is not finite and the update was left out.
    pub spoiled: &'a Tensor,
    /// Steps in which that happened are added to it.
    pub skipped: &'a Tensor,
    /// Whether this is the first group of parameters of a step: `spoiled` then forgets the last step.
    pub is_first: bool,
}

impl AdamW {
    /// One step on the gradients that there are: clipped, and left out, count and all, where they are not finite; averages
    /// move all the same. Nobody waits to learn which. Dropping the gradients is left to the caller.
    ///
    /// On CUDA the first call allocates: make one before a capture.
    pub fn update(&mut self, update: &Update) -> Result<(), Error> {
        match self.steps().device() {
            Device::Cuda(_) => self.update_in_one(update),
            _ => self.update_plainly(update),
        }
    }

    fn update_plainly(&mut self, update: &Update) -> Result<(), Error> {
        adopt_gradients(self.params(), update.copies)?;
        let norm = clip_grad_norm(self.params(), update.max_norm)?;
        let bad = norm.f_isfinite()?.f_logical_not()?.f_to_kind(Kind::Float)?;
        self.step(Some(&bad))?;
        copy_values(self.params(), update.copies)?;
        if let Some((averages, weight)) = update.averages {
            let params: Vec<Tensor> = self.params().map(Tensor::shallow_clone).collect();
            lerp(averages, &params, weight)?;
        }
        let Tally { norm: sum, spoiled, skipped, is_first } = &update.tally;
        let before = if *is_first { bad.f_zeros_like()? } else { spoiled.f_view([] as [i64; 0])? };
        let after = before.f_maximum(&bad)?;
        let _ = sum.shallow_clone().f_add_(&norm.f_nan_to_num(0.0, 0.0, 0.0)?)?;
        let _ = skipped.shallow_clone().f_add_(&(&after - &before))?;
        spoiled.shallow_clone().f_copy_(&after)?;
        Ok(())
    }

    fn update_in_one(&mut self, update: &Update) -> Result<(), Error> {
        let slots = self.slot_words(update)?;
        let mut passes = match self.passes.take() {
            Some(passes) if passes.slots == slots => passes,
            _ => Passes::new(slots, self.steps().device())?,
        };
        let done = self.run_passes(&mut passes, update);
        self.passes = Some(passes);
        done
    }

    fn run_passes(&self, passes: &mut Passes, update: &Update) -> Result<(), Error> {
        // Alive until the kernels are queued; their memory is not given to others before these have run.
        let gradients = (0..self.slots.len())
            .map(|index| gradient(&self.slots[index], update.copies.get(index)))
            .collect::<Result<Vec<Option<Tensor>>, Error>>()?;
        let addresses: Vec<u64> = gradients.iter().map(|gradient| gradient.as_ref().map_or(0, tagged)).collect();
        passes.place(&addresses)?;
        let Tally { norm, spoiled, skipped, is_first } = &update.tally;
        let Options { beta1, beta2, eps, weight_decay, .. } = self.options;
        let threads = [THREADS as u32, 1, 1];
        let [slots, chunks] = [&passes.table, &passes.chunks].map(Arg::Tensor);
        let [addresses, partial, verdict] = [&passes.addresses, &passes.partial, &passes.verdict].map(Arg::Tensor);
        let count = passes.chunks.size()[0];
        let blocks = passes.partial.size()[0];
        passes.squares.launch(
            [blocks as u32, 1, 1],
            threads,
            0,
            &[slots, chunks, addresses, partial, count_of(count)],
        )?;
        let settled = [
            partial,
            count_of(blocks),
            verdict,
            Arg::Tensor(self.steps()),
            Arg::Tensor(&self.lr),
            Arg::Tensor(norm),
            Arg::Tensor(spoiled),
            Arg::Tensor(skipped),
            Arg::I32(i32::from(*is_first)),
            Arg::F64(update.max_norm),
            Arg::F64(beta1),
            Arg::F64(beta2),
        ];
        passes.settle.launch([1; 3], [1024, 1, 1], 0, &settled)?;
        let numbers = [
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            eps,
            weight_decay,
            update.averages.map_or(0.0, |(_, weight)| weight),
        ];
        let numbers = numbers.map(|number| Arg::F32(number as f32));
        let moved: Vec<Arg> = [slots, chunks, addresses, verdict].into_iter().chain(numbers).collect();
        passes.update.launch([count as u32, 1, 1], threads, 0, &moved)
    }

    /// Where everything lies that an update writes, as the source's slots.
    fn slot_words(&self, update: &Update) -> Result<Vec<u64>, Error> {
        let mut words = Vec::with_capacity(self.slots.len() * SLOT);
        for (index, slot) in self.slots.iter().enumerate() {
            let averages = update.averages.map(|(averages, _)| &averages[index]);
            let copy = update.copies.get(index);
            let place = |tensor: Option<&Tensor>, kind: Kind| match tensor {
                None => Ok(0),
                Some(tensor) if fits(tensor, &slot.param, kind) => Ok(tensor.data_ptr() as u64),
                Some(tensor) => Err(Error::Argument(format!(
                    "update: parameter {index} is {:?}, and a tensor of {:?} {:?} on {:?} belongs to it: all must be of \
                     one shape and device, contiguous, and {kind:?}",
                    slot.param.size(),
                    tensor.size(),
                    tensor.kind(),
                    tensor.device()
                ))),
            };
            words.extend([
                place(Some(&slot.param), Kind::Float)?,
                place(Some(&slot.moments.exp_avg), Kind::Float)?,
                place(Some(&slot.moments.exp_avg_sq), Kind::Float)?,
                place(averages, Kind::Float)?,
                place(copy, Kind::BFloat16)?,
                slot.param.numel() as u64,
                u64::from(slot.decay),
                0,
            ]);
        }
        Ok(words)
    }
}

/// The kernels, and where on the device they find what they work on.
pub(crate) struct Passes {
    place: Kernel,
    squares: Kernel,
    settle: Kernel,
    update: Kernel,
    /// What `table` was made from.
    slots: Vec<u64>,
    table: Tensor,
    chunks: Tensor,
    /// Of the gradients: written by the device itself, with what this step's launch was given.
    addresses: Tensor,
    partial: Tensor,
    verdict: Tensor,
}

impl Passes {
    fn new(slots: Vec<u64>, device: Device) -> Result<Passes, Error> {
        let defines = format!("#define ADDRESSES {ADDRESSES}\n#define CHUNK {CHUNK}\n#define THREADS {THREADS}\n");
        let source = [&defines, include_str!("update.cu")].concat();
        let names = ["place", "squares", "settle", "update"];
        let [place, squares, settle, update] = Kernel::compile_all(&source, names, device)?;
        let words = |words: &[u64]| -> Result<Tensor, Error> {
            let words: Vec<i64> = words.iter().map(|word| word.cast_signed()).collect();
            Ok(Tensor::f_from_slice(&words)?.f_to_device(device)?)
        };
        let chunks = chunks(&slots);
        let blocks = chunks.len().div_ceil(SQUARED);
        let floats = |count: i64| Tensor::f_zeros([count], (Kind::Float, device));
        Ok(Passes {
            place,
            squares,
            settle,
            update,
            table: words(&slots)?,
            chunks: words(&chunks)?,
            addresses: Tensor::f_zeros([(slots.len() / SLOT) as i64], (Kind::Int64, device))?,
            partial: floats(blocks as i64)?,
            verdict: floats(VERDICT)?,
            slots,
        })
    }

    fn place(&self, addresses: &[u64]) -> Result<(), Error> {
        for (index, some) in addresses.chunks(ADDRESSES).enumerate() {
            let mut all = [0; ADDRESSES];
            all[..some.len()].copy_from_slice(some);
            let args = [
                Arg::Words(&all),
                Arg::Tensor(&self.addresses),
                count_of((index * ADDRESSES) as i64),
                count_of(some.len() as i64),
            ];
            self.place.launch([ADDRESSES.div_ceil(THREADS) as u32, 1, 1], [THREADS as u32, 1, 1], 0, &args)?;
        }
        Ok(())
    }
}

/// Every chunk of every slot, as the source has them: two numbers of 32 bits in a word.
fn chunks(slots: &[u64]) -> Vec<u64> {
    let of = |(index, slot): (usize, &[u64])| {
        let parts = slot[5].div_ceil(CHUNK as u64);
        (0..parts).map(move |part| index as u64 | part << 32)
    };
    slots.chunks(SLOT).enumerate().flat_map(of).collect()
}

fn count_of(count: i64) -> Arg<'static> {
    Arg::I32(i32::try_from(count).expect("fewer chunks than 2^31"))
}

fn fits(tensor: &Tensor, param: &Tensor, kind: Kind) -> bool {
    let placed = tensor.is_contiguous() && (tensor.data_ptr() as usize).is_multiple_of(16);
    placed && tensor.size() == param.size() && tensor.device() == param.device() && tensor.kind() == kind
}

/// What the parameter learns from, in one piece: its own gradient or its copy's, in rare cases both.
fn gradient(slot: &Slot, copy: Option<&Tensor>) -> Result<Option<Tensor>, Error> {
    let of = |tensor: &Tensor| Some(tensor.grad()).filter(Tensor::defined);
    let gradient = match (of(&slot.param), copy.and_then(of)) {
        (Some(wide), Some(narrow)) => tch::no_grad(|| wide.f_add(&narrow))?,
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return Ok(None),
    };
    if gradient.size() != slot.param.size() || gradient.device() != slot.param.device() {
        let (given, wanted) = (gradient.size(), slot.param.size());
        return Err(Error::Argument(format!("update: a gradient of {given:?} for a parameter of {wanted:?}")));
    }
    match gradient.kind() {
        Kind::Float | Kind::BFloat16 => Ok(Some(gradient.f_contiguous()?)),
        _ => Ok(Some(gradient.f_to_kind(Kind::Float)?.f_contiguous()?)),
    }
}

/// The address, its lowest bit set where the gradient is bf16.
fn tagged(gradient: &Tensor) -> u64 {
    gradient.data_ptr() as u64 | u64::from(gradient.kind() == Kind::BFloat16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrow::{Copies, narrowed};
    use tch::kind::FLOAT_CPU;

    fn tally() -> [Tensor; 3] {
        [(); 3].map(|()| Tensor::zeros([1], FLOAT_CPU))
    }

    #[test]
    fn every_element_is_in_one_chunk() {
        let slot = |size: u64| [0, 0, 0, 0, 0, size, 0, 0];
        let found = chunks(&[slot(1), slot(CHUNK as u64), slot(0), slot(2 * CHUNK as u64 + 1)].concat());
        assert_eq!(found, [0, 1, 3, 3 | 1 << 32, 3 | 2 << 32]);
    }

    /// Clipped AdamW with an average, by copies that keep their gradients and by casts.
    #[test]
    fn copies_that_stay_learn_what_casts_do_to_the_bit() {
        let run = |stays: bool| {
            tch::manual_seed(3);
            let drawn = |size: &[i64]| Tensor::randn(size, FLOAT_CPU).set_requires_grad(true);
            let params = [drawn(&[4, 6]), drawn(&[6]), drawn(&[3])];
            let slots = params.iter().map(|p| (p.shallow_clone(), p.dim() > 1));
            let mut optimizer = AdamW::new(slots, Options { lr: 0.1, ..Options::default() }).unwrap();
            let averages = params.each_ref().map(Tensor::zeros_like);
            let [norm, spoiled, skipped] = tally();
            let mut copies = Copies::new(&params, Kind::BFloat16).unwrap();
            for step in 0..6 {
                if step == 3 {
                    // A validation's swap of weights, or a checkpoint.
                    let _ = tch::no_grad(|| params[0].shallow_clone().fill_(0.5));
                }
                copies.refresh().unwrap();
                let lent = stays.then(|| Copies::lend([&copies]));
                let x = Tensor::ones([2, 4], (Kind::BFloat16, Device::Cpu)) * f64::from(step - 2);
                let narrow = |i: usize| narrowed(&params[i], Kind::BFloat16);
                // The second is used both ways.
                let y = (x.matmul(&narrow(0)) + narrow(1)).to_kind(Kind::Float) * &params[1];
                (y.square().sum(Kind::Float) / if step == 4 { 0.0 } else { 1.0 }).backward();
                drop(lent);
                let update = Update {
                    max_norm: 1.0,
                    averages: Some((&averages, 0.25)),
                    copies: if stays { copies.tensors() } else { &[] },
                    tally: Tally { norm: &norm, spoiled: &spoiled, skipped: &skipped, is_first: true },
                };
                optimizer.update(&update).unwrap();
                assert_eq!(spoiled.double_value(&[0]), f64::from(step == 4));
                optimizer.drop_grad().unwrap();
                assert!(copies.tensors().iter().all(|copy| !copy.grad().defined()));
            }
            assert_eq!((skipped.double_value(&[0]), optimizer.steps().double_value(&[])), (1.0, 5.0));
            (params, averages, norm)
        };
        let (cast, kept) = (run(false), run(true));
        assert_eq!(cast.0, kept.0);
        assert_eq!(cast.1, kept.1);
        assert_eq!(cast.2, kept.2);
        assert!(cast.2.double_value(&[0]) > 1.0);
    }

    #[test]
    fn a_step_is_spoiled_once_however_many_groups_are() {
        let [norm, spoiled, skipped] = tally();
        for gradients in [[1.0, f64::NAN, f64::INFINITY], [1.0, 1.0, 1.0]] {
            for (index, gradient) in gradients.into_iter().enumerate() {
                let param = Tensor::ones([1], FLOAT_CPU).set_requires_grad(true);
                (&param * gradient).sum(Kind::Float).backward();
                let mut optimizer = AdamW::new([(param, false)], Options::default()).unwrap();
                let tally = Tally { norm: &norm, spoiled: &spoiled, skipped: &skipped, is_first: index == 0 };
                optimizer.update(&Update { max_norm: 9.0, averages: None, copies: &[], tally }).unwrap();
            }
        }
        assert_eq!([&norm, &spoiled, &skipped].map(|x| x.double_value(&[0])), [4.0, 0.0, 1.0]);
    }
}
