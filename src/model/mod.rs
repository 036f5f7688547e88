//! The voice: text to mel frames. Matcha-TTS family, on packed batches of fixed shape.
//!
//! Training aligns text and frames by search (`align`), pulls each token's mean towards its frames, teaches the
//! duration predictor what the search found, and the decoder the flow from noise to speech. A slice of another recording
//! of the same speaker says how it shall sound (`reference`).

mod align;
pub mod conv;
mod decoder;
mod encoder;
pub mod flow;
pub mod layers;
mod reference;
#[cfg(test)]
mod tests;
mod track;

use crate::feed::{Batch, Packed};
use align::Aligner;
use decoder::{Decoder, Given};
use encoder::{DurationPredictor, Encoded, Encoder, duration_loss};
use host::config;
use layers::lookup;
use reference::ReferenceEncoder;
use tch::nn::Path;
use tch::{Kind, Tensor};
use track::{Track, half, repeat, with_gap_row};

pub struct Voice {
    /// Absent where every utterance is of one speaker and nothing is cloned.
    reference: Option<ReferenceEncoder>,
    encoder: Encoder,
    duration: DurationPredictor,
    decoder: Decoder,
    aligner: Aligner,
    draws: i64,
    condition_dropout: f64,
    contrastive_weight: f64,
    /// Kind of the activations; weights stay f32.
    kind: Kind,
    /// Compute the decoder's blocks again in the backward pass instead of keeping their activations.
    recompute: bool,
}

/// The parts of the training loss, each a 0-d tensor. Their sum is minimised.
pub struct Losses {
    /// Distance of frames from their token's mean.
    pub prior: Tensor,
    pub duration: Tensor,
    pub flow: Tensor,
    /// How well references tell speakers apart, weighted; 0 where it is not asked for.
    pub contrastive: Tensor,
}

impl Losses {
    pub const NAMES: [&'static str; 4] = ["prior", "duration", "flow", "contrastive"];

    pub fn total(&self) -> Tensor {
        &self.prior + &self.duration + &self.flow + &self.contrastive
    }

    pub fn parts(&self) -> [&Tensor; 4] {
        [&self.prior, &self.duration, &self.flow, &self.contrastive]
    }

    fn detach(&self) -> Losses {
        let [prior, duration, flow, contrastive] = self.parts().map(Tensor::detach);
        Losses { prior, duration, flow, contrastive }
    }
}

/// How speech is drawn from the flow.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Euler steps.
    pub steps: usize,
    /// Scale of the starting noise: lower is flatter and safer.
    pub temperature: f64,
    /// How far to go from what any speech would be towards what text and voice ask for; 1 is as trained.
    pub guidance: f64,
}

/// Random points on the paths from noise to a batch's frames, each utterance's as often as `draws_per_item` says.
struct Draw {
    /// The batch's frames, copies end to end.
    frames: Packed,
    /// `[copies * capacity]` each; `keep` is 0 where the decoder is told nothing.
    times: Tensor,
    keep: Tensor,
    /// `[copies * frames, n_mels]` each.
    noisy: Tensor,
    velocity: Tensor,
}

impl Draw {
    fn new(batch: &Batch, copies: i64, dropout: f64) -> Self {
        let frames = repeat(&batch.frames, copies);
        let device = batch.mel.device();
        let times = flow::draw_times(frames.capacity(), device);
        let keep = Tensor::rand([frames.capacity()], (Kind::Float, device)).ge(dropout).to_kind(Kind::Float);
        let speech = batch.mel.repeat([copies, 1]);
        let per_frame = with_gap_row(&times.unsqueeze(1)).index_select(0, &frames.owner);
        let (noisy, velocity) = flow::path(&speech.randn_like(), &speech, &per_frame);
        Draw { frames, times, keep, noisy, velocity }
    }

    fn given<'a>(&'a self, told: &'a Told) -> Given<'a> {
        Given { content: &told.content, latents: told.latents.as_ref(), times: &self.times, keep: &self.keep }
    }

    fn loss(&self, guess: &Tensor) -> Tensor {
        self.frames.mean(&(guess - &self.velocity).square())
    }
}

/// What the decoder is told, and what is learned before it.
struct Told {
    /// `[frames, decoder_dim]`
    content: Tensor,
    latents: Option<Tensor>,
    prior: Tensor,
    duration: Tensor,
    contrastive: Tensor,
}

impl Told {
    fn losses(self, flow: Tensor) -> Losses {
        Losses { prior: self.prior, duration: self.duration, flow, contrastive: self.contrastive }
    }
}

impl Voice {
    /// `languages`: how many the tokenizer tells apart.
    pub fn new(
        path: &Path,
        config: &config::Model,
        vocab_size: usize,
        languages: usize,
        kind: Kind,
    ) -> Result<Self, torchx::Error> {
        Ok(Voice {
            aligner: Aligner::new(path.device())?,
            reference: config.clones().then(|| ReferenceEncoder::new(path / "reference", config)),
            encoder: Encoder::new(path / "encoder", config, vocab_size as i64, languages as i64),
            duration: DurationPredictor::new(path / "duration", config),
            decoder: Decoder::new(path / "decoder", config),
            draws: config.draws_per_item,
            condition_dropout: config.condition_dropout,
            contrastive_weight: config.contrastive_weight,
            kind,
            recompute: config.enable_gradient_checkpointing,
        })
    }

    /// The losses of a batch, for validation.
    pub fn losses(&self, batch: &Batch) -> Losses {
        self.losses_at(batch, &Draw::new(batch, 1, 0.0), false)
    }

    fn losses_at(&self, batch: &Batch, draw: &Draw, train: bool) -> Losses {
        let told = self.tell(batch, train);
        let guess = self.decoder.forward(&draw.noisy, &draw.given(&told), &draw.frames, self.kind);
        told.losses(draw.loss(&guess))
    }

    /// Adds `weight` (0-d) times the losses' gradients to the parameters'. The losses come back without a graph.
    pub fn backward(&self, batch: &Batch, weight: &Tensor) -> Losses {
        self.backward_at(batch, &Draw::new(batch, self.draws, self.condition_dropout), weight)
    }

    fn backward_at(&self, batch: &Batch, draw: &Draw, weight: &Tensor) -> Losses {
        if !self.recompute {
            let losses = self.losses_at(batch, draw, true);
            (losses.total() * weight).backward();
            return losses.detach();
        }
        let told = self.tell(batch, true);
        let loss = |guess: &Tensor| draw.loss(guess) * weight;
        let (flow, by_content, by_latents) =
            self.decoder.backward(&draw.noisy, &draw.given(&told), &draw.frames, self.kind, loss);
        let mut rest = (&told.prior + &told.duration + &told.contrastive) * weight + along(&told.content, &by_content);
        if let (Some(latents), Some(by_latents)) = (&told.latents, &by_latents) {
            rest += along(latents, by_latents);
        }
        rest.backward();
        told.losses(flow / weight).detach()
    }

    /// Content along the frames, and what is learned from text, alignment and references alone.
    fn tell(&self, batch: &Batch, train: bool) -> Told {
        let (text, frames) = (&batch.text, &batch.frames);
        let latents = self.reference.as_ref().map(|reference| reference.forward(&batch.reference, self.kind));
        let track = self.text_track(text);
        let encoded = self.encoder.forward(&batch.tokens, &batch.languages, latents.as_ref(), &track, train);
        let token_of_frame = self.token_of_frame(&encoded, batch);
        let (mean, content) = encoded.split(&lookup(&encoded.table, &token_of_frame));
        let lasted = align::durations(&token_of_frame, text, frames);
        let predicted = self.duration.forward(&encoded.hidden, latents.as_ref(), &track, train);
        Told {
            prior: frames.mean(&(&batch.mel - mean).square()) * 0.5,
            duration: duration_loss(&predicted, &lasted, &text.mask),
            contrastive: self.contrast(batch),
            content,
            latents,
        }
    }

    fn contrast(&self, batch: &Batch) -> Tensor {
        match &self.reference {
            Some(reference) if self.contrastive_weight > 0.0 => {
                let used = batch.frames.lens.gt(0).to_kind(Kind::Float);
                reference.contrast(&batch.reference, &used, self.kind) * self.contrastive_weight
            }
            _ => Tensor::zeros([], (Kind::Float, batch.mel.device())),
        }
    }

    fn text_track<'a>(&self, text: &'a Packed) -> Track<'a> {
        Track::new(text, self.kind)
    }

    /// As the batch holds it, or as the search finds it.
    fn token_of_frame(&self, encoded: &Encoded, batch: &Batch) -> Tensor {
        match &batch.token_of_frame {
            Some(known) => known.shallow_clone(),
            None => {
                let (mean, _) = encoded.split(&encoded.table.detach());
                self.aligner.search(&mean, &batch.mel, &batch.text, &batch.frames)
            }
        }
    }

    /// What the voices of `reference` (`[slices, frames, n_mels]`, normalised) are known by: `[slices, voice_latents,
    /// voice_dim]`, f32. Slices of one speaker may be averaged. Absent where the voice does not clone.
    pub fn latents(&self, reference: &Tensor) -> Option<Tensor> {
        self.reference.as_ref().map(|encoder| encoder.forward(reference, self.kind).to_kind(Kind::Float))
    }

    pub fn clones(&self) -> bool {
        self.reference.is_some()
    }

    /// Frames that each token should last (`[text]`, f32), and content for the decoder (`[text, decoder_dim]`).
    pub fn plan(
        &self,
        tokens: &Tensor,
        languages: &Tensor,
        latents: Option<&Tensor>,
        text: &Packed,
    ) -> (Tensor, Tensor) {
        let latents = latents.map(|latents| latents.to_kind(self.kind));
        let track = self.text_track(text);
        let encoded = self.encoder.forward(tokens, languages, latents.as_ref(), &track, false);
        let frames = self.duration.forward(&encoded.hidden, latents.as_ref(), &track, false).squeeze_dim(1).exp();
        (frames, encoded.split(&encoded.table).1)
    }

    /// Mel frames (normalised) from content along the frames (`[frames, decoder_dim]`), following the flow from `noise`
    /// (`[frames, n_mels]`, f32). `guidance`: `[utterances]`, f32, as in [`Sampling`]; none is 1 for all, at half the cost.
    pub fn decode(
        &self,
        content: &Tensor,
        latents: Option<&Tensor>,
        frames: &Packed,
        noise: &Tensor,
        steps: usize,
        guidance: Option<&Tensor>,
    ) -> Tensor {
        let latents = latents.map(|latents| latents.to_kind(self.kind));
        // With guidance, a second copy is told nothing; both are one batch.
        let copies = repeat(frames, if guidance.is_some() { 2 } else { 1 });
        let (utterances, device) = (copies.capacity(), content.device());
        let number = Tensor::arange(utterances, (Kind::Int64, device));
        let keep = number.lt(frames.capacity()).to_kind(Kind::Float);
        let pull = guidance.map(|scale| with_gap_row(&scale.unsqueeze(1)).index_select(0, &frames.owner));
        let halved = half(&copies);
        let rates = self.decoder.rates(&copies, &halved, self.kind);
        let velocity = |x: &Tensor, time: f64| {
            let times = Tensor::full([utterances], time, (Kind::Float, device));
            let given = Given { content, latents: latents.as_ref(), times: &times, keep: &keep };
            let Some(pull) = &pull else { return self.decoder.velocity(x, &given, &rates) };
            let both = self.decoder.velocity(&x.repeat([2, 1]), &given, &rates).chunk(2, 0);
            &both[1] + (&both[0] - &both[1]) * pull
        };
        flow::sample(noise.shallow_clone(), steps, velocity)
    }

    pub fn n_mels(&self) -> i64 {
        self.decoder.n_mels()
    }

    /// The batch's own utterances as the voice speaks them, along the durations that the search finds: `[frames, n_mels]`,
    /// normalised.
    pub fn imitate(&self, batch: &Batch, how: &Sampling) -> Tensor {
        let told = self.tell(batch, false);
        let noise = Tensor::randn([batch.frames.len(), self.n_mels()], (Kind::Float, batch.mel.device()));
        let guidance = (how.guidance != 1.0)
            .then(|| Tensor::full([batch.frames.capacity()], how.guidance, (Kind::Float, batch.mel.device())));
        let noise = noise * how.temperature;
        self.decode(&told.content, told.latents.as_ref(), &batch.frames, &noise, how.steps, guidance.as_ref())
    }

    /// The packed token index of every frame (`[frames]`, i32), as the search finds it.
    pub fn align(&self, batch: &Batch) -> Tensor {
        let latents = self.reference.as_ref().map(|reference| reference.forward(&batch.reference, self.kind));
        let track = self.text_track(&batch.text);
        let encoded = self.encoder.forward(&batch.tokens, &batch.languages, latents.as_ref(), &track, false);
        let (mean, _) = encoded.split(&encoded.table);
        self.aligner.search(&mean, &batch.mel, &batch.text, &batch.frames)
    }
}

/// A number whose gradient by `output` is `gradient`.
fn along(output: &Tensor, gradient: &Tensor) -> Tensor {
    (output * gradient).sum(Kind::Float)
}
