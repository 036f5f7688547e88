//! Batches made here and now, for what needs no pipeline.

use crate::feed::{Batch, Features, MelStats, Purpose, allocate, block_tensor};
use crate::ranks::Ranks;
use anyhow::Result;
use host::config::Config;
use host::dataset::TrainingData;
use host::loader::{Dataset, HostBatch};
use std::sync::Arc;
use tch::{Device, Tensor};

/// Batches that mean and deviation of the mel values are measured on.
const STATS_BATCHES: usize = 8;
/// Noise and times of every evaluation are the same, so that its figures can be compared.
const EVALUATION_SEED: i64 = 7;

/// Mean and deviation of a corpus's mel values: measured once, then part of every checkpoint.
pub fn mel_stats(data: &TrainingData, config: &Config) -> Result<MelStats> {
    if let Some([mean, std]) = data.mel_stats.get() {
        return Ok(MelStats { mean: *mean, std: *std });
    }
    let layout = Arc::new(data.train.layout(&data.budget));
    let features = Features::new(config, layout, MelStats::identity(), Purpose::Voice, Device::Cpu)?;
    let plan = data.train.plan(&data.budget, config.training.seed, 0, 0);
    let batches = plan.iter().take(STATS_BATCHES).map(|clips| Ok(batch_on(&features, &data.train, clips, 0)?.1));
    let stats = MelStats::of(&batches.collect::<Result<Vec<_>>>()?);
    let [mean, std] = *data.mel_stats.get_or_init(|| [stats.mean, stats.std]);
    Ok(MelStats { mean, std })
}

/// One batch made here and now, for what needs no pipeline. `number` decides on its references.
pub fn batch_on(features: &Features, dataset: &Dataset, clips: &[u32], number: u64) -> Result<(HostBatch, Batch)> {
    let device = features.device();
    let layout = features.layout();
    let block = allocate(Device::Cpu)(layout.bytes).map_err(anyhow::Error::msg)?;
    let host = dataset.batch(clips, layout, block, [0, 0, number])?;
    let staged = block_tensor(&*host.block).to_device(device);
    let batch = tch::no_grad(|| features.batch(&staged, &host.position));
    // On the CPU the batch's tables are views of the block, which goes back to the caller: take a copy.
    Ok((host, batch.copy_to(device)))
}

/// Means over a whole set of what `of` finds in each batch, which counts by its frames of speech. Ranks share the batches
/// out and get the same means. What is random in a batch is the same each time, whoever takes it.
pub fn means_over<const N: usize>(
    features: &Features,
    dataset: &Dataset,
    ranks: Option<&Ranks>,
    of: impl Fn(&Batch) -> [f64; N],
) -> Result<[f64; N]> {
    let (rank, size) = ranks.map_or((0, 1), |ranks| (ranks.me.rank, ranks.me.size));
    // The means' sums, then the frames.
    let mut sums = vec![0.0; N + 1];
    let plans: Vec<_> =
        (0..dataset.chunks()).map(|chunk| dataset.plan(&features.layout().budget, 0, 0, chunk)).collect();
    for (number, clips) in plans.iter().flat_map(|plan| plan.iter()).enumerate().skip(rank).step_by(size) {
        let (host, batch) = batch_on(features, dataset, clips, number as u64)?;
        tch::manual_seed(EVALUATION_SEED + number as i64);
        let weight = host.speech_frames() as f64;
        for (sum, value) in sums.iter_mut().zip(of(&batch).into_iter().chain([1.0])) {
            *sum += value * weight;
        }
    }
    if let Some(ranks) = ranks {
        let all = Tensor::from_slice(&sums);
        ranks.sum(&all)?;
        sums = Vec::try_from(all)?;
    }
    Ok(std::array::from_fn(|at| sums[at] / sums[N]))
}
