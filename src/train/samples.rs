//! Validation: the loss on held-out clips by the same code as training, and one of them spoken, as sound and pictures.

use super::HeldOutLoss;
use super::metrics::MetricsWriter;
use crate::checkpoint::RunState;
use crate::checkpoint::voice::Prompt;
use crate::feed::{Batch, Features, MelStats, Purpose};
use crate::model::{Losses, Voice};
use crate::picture::Picture;
use crate::ranks::Ranks;
use crate::run::{batch_on, means_over};
use crate::synth;
use crate::vocoder::GriffinLim;
use anyhow::Result;
use host::config::Config;
use host::dataset::TrainingData;
use host::loader::Dataset;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

pub struct Validation {
    pub(super) dataset: Arc<Dataset>,
    pub(super) features: Features,
    stats: MelStats,
    vocoder: GriffinLim,
    rate_hz: u32,
    device: Device,
    /// The recording itself is logged once.
    recording_logged: bool,
}

impl Validation {
    pub fn new(config: &Config, data: &TrainingData, state: &RunState, device: Device) -> Result<Option<Self>> {
        let rate_hz = config.data.sample_rate;
        let Some(dataset) = data.validation.clone() else { return Ok(None) };
        let layout = Arc::new(dataset.layout(&data.budget));
        let features = Features::new(&config.without_augmentation(), layout, state.mel_stats, Purpose::Voice, device)?;
        Ok(Some(Validation {
            dataset,
            features,
            stats: state.mel_stats,
            vocoder: GriffinLim::new(&config.model, rate_hz, device),
            rate_hz,
            device,
            recording_logged: false,
        }))
    }

    /// The mean losses over all held-out clips, and whether everything could be logged.
    pub fn run(
        &mut self,
        voice: &Voice,
        metrics: Option<&mut MetricsWriter>,
        step: u64,
        ranks: Option<&Ranks>,
    ) -> Result<(HeldOutLoss, Result<()>)> {
        let parts = |batch: &Batch| voice.losses(batch).parts().map(|part| part.double_value(&[]));
        let losses = tch::no_grad(|| means_over(&self.features, &self.dataset, ranks, parts))?;
        let held_out = HeldOutLoss { loss: losses.iter().sum(), compared: losses[Losses::FLOW] };
        let Some(metrics) = metrics else { return Ok((held_out, Ok(()))) };
        let names = Losses::NAMES.map(|name| format!("validation/{name}"));
        let mut figures: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(losses).collect();
        figures.push(("validation/loss", held_out.loss));
        let logged = metrics.log(step, &figures).and_then(|()| tch::no_grad(|| self.speak(voice, metrics, step)));
        Ok((held_out, logged))
    }

    /// The first held-out clip: its recording, the voice's rendering, and how text and frames were aligned.
    fn speak(&mut self, voice: &Voice, metrics: &mut MetricsWriter, step: u64) -> Result<()> {
        let (host, batch) = batch_on(&self.features, &self.dataset, &[0], 0)?;
        let layout = self.features.layout();
        let tokens = &layout.tables(&*host.block)[layout.tokens.clone()];
        let (text, frames) = (host.text_spans[0], host.frame_spans[0]);
        let recorded = batch.mel.narrow(0, 0, frames.len as i64);
        // Its own first half is the reference.
        let prompt = voice.clones().then(|| Prompt::of(&recorded.narrow(0, 0, (frames.len as i64 / 2).max(2))));
        let (language, options) = (batch.languages.int64_value(&[0]) as usize, synth::Options::default());
        let tokens = &tokens[text.range()];
        let spoken = synth::speak_tokens(voice, tokens, language, prompt, &options, self.device);
        metrics.image(
            "mel/recorded above, spoken below",
            step,
            &Picture::stack(&[mel_picture(&recorded), mel_picture(&spoken)]),
        )?;
        metrics.image("alignment", step, &alignment(voice, &batch, text.len, frames.len))?;
        metrics.audio("spoken", step, &self.vocoder.waveform(&self.stats.restore(&spoken)), self.rate_hz)?;
        if !self.recording_logged {
            metrics.audio("recorded", step, &self.vocoder.waveform(&self.stats.restore(&recorded)), self.rate_hz)?;
            self.recording_logged = true;
        }
        Ok(())
    }
}

/// `[frames, n_mels]` with time to the right and low bands at the bottom.
pub fn mel_picture(frames: &Tensor) -> Picture {
    let size = frames.size();
    Picture::heatmap(&floats(&frames.transpose(0, 1)), size[1] as usize, size[0] as usize)
}

fn alignment(voice: &Voice, batch: &Batch, tokens: usize, frames: usize) -> Picture {
    let path: Vec<i32> = Vec::try_from(voice.align(batch).to_device(Device::Cpu)).expect("an i32 vector");
    let mut cells = vec![0.0; tokens * frames];
    for (frame, &token) in path.iter().take(frames).enumerate() {
        cells[token as usize * frames + frame] = 1.0;
    }
    Picture::heatmap(&cells, tokens, frames)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.to_device(Device::Cpu).to_kind(Kind::Float).contiguous().view(-1);
    Vec::try_from(flat).expect("an f32 vector on the CPU")
}
