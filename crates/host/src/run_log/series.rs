//! A curve of any length in a bounded number of points. A point stands for some neighbours and keeps the least and the
//! greatest of them, so that no spike is lost however far one looks from.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// More points than a screen has columns; twice as many are never there.
const POINTS: usize = 1024;

/// Neighbouring figures that one point of a picture stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    first_step: u64,
    last_step: u64,
    min: f32,
    max: f32,
    sum: f64,
    count: u32,
}

/// Figures of one name over the steps.
#[derive(Clone, Debug, Default)]
pub struct Series {
    points: Vec<Point>,
    /// Figures that a point stands for.
    width: u32,
    last: Option<(u64, f64)>,
}

impl Series {
    pub fn push(&mut self, step: u64, value: f64) {
        self.last = Some((step, value));
        let narrow = value as f32;
        match self.points.last_mut() {
            Some(point) if point.count < self.width => {
                point.last_step = step;
                point.min = point.min.min(narrow);
                point.max = point.max.max(narrow);
                point.sum += value;
                point.count += 1;
            }
            _ => {
                if self.points.len() == 2 * POINTS {
                    self.halve();
                }
                self.width = self.width.max(1);
                let (min, max) = (narrow, narrow);
                self.points.push(Point { first_step: step, last_step: step, min, max, sum: value, count: 1 });
            }
        }
    }

    /// Step and value of the newest figure.
    pub fn last(&self) -> Option<(u64, f64)> {
        self.last
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Every two neighbours become one.
    fn halve(&mut self) {
        let joined = self.points.chunks(2).map(|pair| match *pair {
            [a, b] => Point {
                first_step: a.first_step,
                last_step: b.last_step,
                min: a.min.min(b.min),
                max: a.max.max(b.max),
                sum: a.sum + b.sum,
                count: a.count + b.count,
            },
            _ => pair[0],
        });
        self.points = joined.collect();
        self.width *= 2;
    }
}

/// Columns of equal length: what a page draws fastest from. Least and greatest are left out where they are the value itself.
impl Serialize for Series {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let each = |value: fn(&Point) -> f64| -> Vec<f64> { self.points.iter().map(value).map(short).collect() };
        let steps: Vec<u64> = self.points.iter().map(|point| (point.first_step + point.last_step) / 2).collect();
        let is_thinned = self.width > 1;
        let mut columns = serializer.serialize_struct("Series", 2 + 2 * usize::from(is_thinned))?;
        columns.serialize_field("step", &steps)?;
        columns.serialize_field("mean", &each(|point| point.sum / f64::from(point.count)))?;
        if is_thinned {
            columns.serialize_field("min", &each(|point| f64::from(point.min)))?;
            columns.serialize_field("max", &each(|point| f64::from(point.max)))?;
        }
        columns.end()
    }
}

/// Six digits: no screen shows more, and they travel in half the bytes.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(5 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(series: &Series) -> serde_json::Value {
        serde_json::to_value(series).unwrap()
    }

    #[test]
    fn a_short_curve_is_kept_as_it_is() {
        let mut series = Series::default();
        [(10, 0.5), (20, 0.25)].into_iter().for_each(|(step, value)| series.push(step, value));
        assert_eq!(columns(&series), serde_json::json!({ "step": [10, 20], "mean": [0.5, 0.25] }));
        assert_eq!(series.last(), Some((20, 0.25)));
    }

    #[test]
    fn a_million_figures_keep_every_spike_in_a_bounded_number_of_points() {
        let mut series = Series::default();
        let spikes = [17, 500_000, 999_998];
        let value = |step: u64| if spikes.contains(&step) { 9.0 } else { (step % 10) as f64 / 10.0 };
        (0..1_000_000).for_each(|step| series.push(step, value(step)));
        let columns = columns(&series);
        let column = |name: &str| columns[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let (steps, max, min, mean): (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) =
            (column("step"), column("max"), column("min"), column("mean"));
        assert!(steps.len() <= 2 * POINTS && steps.len() >= POINTS / 2 && [max.len(), mean.len()] == [steps.len(); 2]);
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]) && min.iter().all(|value| *value == 0.0));
        for spike in spikes {
            let near = (0..steps.len()).filter(|i| max[*i] == 9.0 && (steps[*i] - spike as f64).abs() < 1000.0);
            assert_eq!(near.count(), 1, "the spike at {spike}");
        }
        let is_mean = |(mean, max): (&f64, &f64)| (mean - 0.45).abs() < 0.05 || *max == 9.0;
        assert!(mean.iter().zip(&max).all(is_mean), "means are means");
    }

    #[test]
    fn figures_are_written_with_six_digits() {
        assert_eq!([1.234_567_89, -0.000_012_345_678, 0.0, 1e-310].map(short), [1.23457, -1.23457e-5, 0.0, 1e-310]);
    }
}
