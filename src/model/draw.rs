//! What is drawn anew for a batch in every step: points on the paths from noise to its frames, and which frames are context.

use super::context::{Chance, ContextMasks, LEAST_SHARE, WITHOUT_CONTENT};
use super::decoder::{Conditioning, Context};
use super::flow::{self, SIGMA_MIN};
use super::layers::FIXED;
use super::track::{repeat, with_gap_row};
use crate::feed::{Batch, Packed};
use tch::{Kind, Tensor};
use torchx::{Arg, Kernel, fused};

const SOURCE: &str = include_str!("draw.cu");

/// Random points on the paths from noise to a batch's frames, each utterance's as often as `draws_per_item` says.
pub struct Draw {
    /// The batch's frames, copies end to end.
    pub frames: Packed,
    /// `[copies * capacity]`
    pub times: Tensor,
    pub masks: ContextMasks,
    /// `[copies * frames, n_mels]` each; the first is what context sounds like.
    pub context_mel: Tensor,
    pub noisy: Tensor,
    pub velocity: Tensor,
}

/// Random numbers that all else follows from.
pub struct Numbers {
    /// `[1]`, uniform.
    pub shift: Tensor,
    pub chance: Chance,
    /// `[copies * frames, n_mels]`, normal.
    pub noise: Tensor,
}

impl Numbers {
    fn draw(frames: &Packed, n_mels: i64, context_share: f64) -> Self {
        let floats = (Kind::Float, frames.lens.device());
        Numbers {
            shift: Tensor::rand([1], floats),
            chance: Chance::draw(frames, context_share),
            noise: Tensor::randn([frames.len(), n_mels], floats),
        }
    }
}

impl Draw {
    pub fn new(batch: &Batch, copies: i64, context_share: f64, dropout: f64) -> Self {
        let frames = repeat(&batch.frames, copies);
        let numbers = Numbers::draw(&frames, batch.mel.size()[1], context_share);
        Draw::by(&numbers, batch, frames, context_share, dropout)
    }

    /// `frames`: the batch's, as often as there are numbers for them.
    pub fn by(numbers: &Numbers, batch: &Batch, frames: Packed, context_share: f64, dropout: f64) -> Self {
        let copies = frames.len() / batch.frames.len();
        let repeated = |mel: &Tensor| if copies == 1 { mel.shallow_clone() } else { mel.repeat([copies, 1]) };
        let context_mel = repeated(batch.context_mel.as_ref().unwrap_or(&batch.mel));
        if context_mel.device().is_cuda() {
            return Draw::on_gpu(numbers, batch, frames, context_mel, context_share, dropout).expect(FIXED);
        }
        let times = flow::times(frames.capacity(), &numbers.shift);
        let masks = ContextMasks::choose(&frames, &numbers.chance, context_share, dropout);
        let per_frame = with_gap_row(&times.unsqueeze(1)).index_select(0, &frames.owner);
        let (noisy, velocity) = flow::path(&numbers.noise, &repeated(&batch.mel), &per_frame);
        Draw { frames, times, masks, context_mel, noisy, velocity }
    }

    /// The same in one launch.
    fn on_gpu(
        numbers: &Numbers,
        batch: &Batch,
        frames: Packed,
        context_mel: Tensor,
        context_share: f64,
        dropout: f64,
    ) -> Result<Self, torchx::Error> {
        let device = context_mel.device();
        let Numbers { shift, chance: Chance(chance), noise } = numbers;
        let (rows, utterances, n_mels) = (frames.len(), frames.capacity(), noise.size()[1]);
        let empty = |size: &[i64]| Tensor::empty(size, (Kind::Float, device));
        let (times, content) = (empty(&[utterances]), empty(&[rows, 1]));
        let context = (context_share > 0.0).then(|| empty(&[rows, 1]));
        let (noisy, velocity) = (empty(&[rows, n_mels]), empty(&[rows, n_mels]));
        let mel = batch.mel.contiguous();
        let [owner, position, mask, lens] =
            [&frames.owner, &frames.position, &frames.mask, &frames.lens].map(Tensor::contiguous);
        let inputs = [shift, chance, noise, &mel, &owner, &position, &mask, &lens].map(Arg::Tensor);
        // Without context nothing is written there.
        let outputs = [&times, context.as_ref().unwrap_or(&content), &content, &noisy, &velocity].map(Arg::Tensor);
        let sizes = [rows, mel.size()[0], utterances, n_mels, i64::from(context.is_some())];
        let shares = [
            (context_share - LEAST_SHARE).max(0.0),
            LEAST_SHARE.min(context_share),
            WITHOUT_CONTENT,
            dropout,
            1.0 - SIGMA_MIN,
        ];
        let (sizes, shares) = (sizes.map(|size| Arg::I32(size as i32)), shares.map(|share| Arg::F32(share as f32)));
        let threads = (rows * ((n_mels + 3) / 4)).max(utterances);
        let grid = [(threads as u32).div_ceil(256), 1, 1];
        let args = [&inputs[..], &outputs, &sizes, &shares].concat();
        Kernel::shared(SOURCE, "draw", device)?.launch(grid, [256, 1, 1], 0, &args)?;
        Ok(Draw { frames, times, masks: ContextMasks { context, content }, context_mel, noisy, velocity })
    }

    pub fn conditioning<'a>(&'a self, content: &'a Tensor) -> Conditioning<'a> {
        let context = self.masks.context.as_ref().map(|mask| Context { mel: &self.context_mel, mask });
        Conditioning { content, content_mask: &self.masks.content, context }
    }

    /// Mean over generated frames: the context is given, so there is nothing to learn from it.
    pub fn loss(&self, guess: &Tensor) -> Tensor {
        let context = self.masks.context.as_ref();
        fused::square_loss(guess, &self.velocity, &self.frames.mask, context, 1.0).expect(FIXED)
    }
}
