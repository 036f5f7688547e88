//! Distributions: how far values spread, and how many fall where.

use crate::telemetry::{Spread, median};
use serde::Serialize;
use std::collections::BTreeMap;

const MAX_BINS: usize = 12;
/// Widths of bins: 1, 2 and 5 times a power of ten, and quarters of a second.
const WIDTHS: [f64; 14] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0];

/// How values spread, and how many fall where.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    pub min: f64,
    pub median: f64,
    pub mean: f64,
    pub max: f64,
    /// Equal bins of a round width, from the first that holds a clip to the last.
    pub bins: Vec<HistogramBin>,
}

/// Clips whose value is at least `from` and below `to`.
#[derive(Debug, PartialEq, Serialize)]
pub struct HistogramBin {
    pub from: f64,
    pub to: f64,
    pub clips: usize,
}

impl Distribution {
    pub(super) fn of(values: &[f64]) -> Self {
        let Some(Spread { min, max, mean, .. }) = values.iter().copied().collect::<Spread>().known() else {
            return Distribution::default();
        };
        Distribution { min, median: median(values), mean, max, bins: bins(values, min, max) }
    }
}

fn bins(values: &[f64], min: f64, max: f64) -> Vec<HistogramBin> {
    let fits = |width: &&f64| ((max / **width).floor() - (min / **width).floor()) < MAX_BINS as f64;
    let width = WIDTHS.iter().find(fits).copied().unwrap_or(max.max(1.0));
    let place = |value: f64| (value / width).floor() as usize;
    let mut counts = BTreeMap::new();
    values.iter().for_each(|&value| *counts.entry(place(value)).or_insert(0) += 1);
    let edge = |index: usize| index as f64 * width;
    let bin =
        |bin: usize| HistogramBin { from: edge(bin), to: edge(bin + 1), clips: counts.get(&bin).copied().unwrap_or(0) };
    (place(min)..=place(max)).map(bin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_round_and_few() {
        let spans =
            |values: &[f64]| Distribution::of(values).bins.iter().map(|bin| (bin.from, bin.clips)).collect::<Vec<_>>();
        assert_eq!(spans(&[1.1, 1.2, 1.9]), [(1.0, 2), (1.25, 0), (1.5, 0), (1.75, 1)]);
        assert!(spans(&[0.5, 3000.0]).len() <= MAX_BINS && spans(&[0.5, 1e9]).len() <= MAX_BINS);
        assert_eq!(spans(&[]), []);
    }
}
