//! Validation: the loss on held-out clips by the same code as training, and one of them spoken, as sound and pictures.

use super::checkpoint::State;
use super::data::Prepared;
use super::metrics::Metrics;
use super::picture::Picture;
use crate::config::Config;
use crate::feed::{Batch, MelExtractor, MelStats};
use crate::loader::{Budget, Dataset, plan};
use crate::model::{Losses, Voice};
use crate::synth::{self, GriffinLim};
use anyhow::Result;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// Noise and times of every validation are the same, so that its figures can be compared.
const SEED: i64 = 7;

pub struct Validation {
    dataset: Arc<Dataset>,
    budget: Budget,
    extractor: MelExtractor,
    stats: MelStats,
    vocoder: GriffinLim,
    rate_hz: u32,
    device: Device,
    /// The recording itself is logged once.
    recording_logged: bool,
}

impl Validation {
    pub fn new(config: &Config, data: &Prepared, state: &State, device: Device) -> Option<Self> {
        let rate_hz = config.data.sample_rate;
        Some(Validation {
            dataset: data.validation.clone()?,
            budget: data.budget,
            extractor: MelExtractor::new(&config.model, rate_hz, device),
            stats: state.mel_stats,
            vocoder: GriffinLim::new(&config.model, rate_hz, device),
            rate_hz,
            device,
            recording_logged: false,
        })
    }

    /// The mean loss over all held-out clips, and whether everything could be logged.
    pub fn run(&mut self, voice: &Voice, metrics: &mut Metrics, step: u64) -> Result<(f64, Result<()>)> {
        tch::manual_seed(SEED);
        let losses = tch::no_grad(|| self.losses(voice))?;
        let loss = losses.iter().sum();
        let names = Losses::NAMES.map(|name| format!("validation/{name}"));
        let mut figures: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(losses).collect();
        figures.push(("validation/loss", loss));
        let logged = metrics.log(step, &figures).and_then(|()| tch::no_grad(|| self.speak(voice, metrics, step)));
        Ok((loss, logged))
    }

    fn losses(&self, voice: &Voice) -> Result<[f64; 3]> {
        let (mut sums, mut frames) = ([0.0; 3], 0.0);
        for clips in plan(self.dataset.lengths(), &self.budget, 0, 0) {
            let host = self.dataset.batch(&clips, &self.budget)?;
            let batch = self.extractor.batch(&host, &self.stats, false);
            let weight = host.speech_frames() as f64;
            for (sum, part) in sums.iter_mut().zip(voice.losses(&batch, false).parts()) {
                *sum += part.double_value(&[]) * weight;
            }
            frames += weight;
        }
        Ok(sums.map(|sum| sum / frames))
    }

    /// The first held-out clip: its recording, the voice's rendering, and how text and frames were aligned.
    fn speak(&mut self, voice: &Voice, metrics: &mut Metrics, step: u64) -> Result<()> {
        let host = self.dataset.batch(&[0], &self.budget)?;
        let batch = self.extractor.batch(&host, &self.stats, false);
        let (text, frames) = (host.text_spans[0], host.frame_spans[0]);
        let recorded = batch.mel.narrow(0, 0, frames.len as i64);
        let spoken = synth::speak_tokens(voice, &host.tokens[text.range()], &synth::Options::default(), self.device);
        metrics.image("mel/recorded above, spoken below", step, &Picture::stack(&[mel(&recorded), mel(&spoken)]))?;
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
fn mel(frames: &Tensor) -> Picture {
    let size = frames.size();
    Picture::heatmap(&floats(&frames.transpose(0, 1)), size[1] as usize, size[0] as usize)
}

fn alignment(voice: &Voice, batch: &Batch, tokens: usize, frames: usize) -> Picture {
    let path: Vec<i64> = Vec::try_from(voice.align(batch).to_device(Device::Cpu)).expect("an i64 vector");
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
