//! Mean, deviation and extremes of figures that come one by one, and the median of those that are all there.

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Welford's recurrence (1962): no sum of squares, so no cancellation however large the mean is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub count: u64,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    squares: f64,
}

impl Spread {
    pub fn add(&mut self, x: f64) {
        self.count += 1;
        let from_mean = x - self.mean;
        self.mean += from_mean / self.count as f64;
        self.squares += from_mean * (x - self.mean);
        (self.min, self.max) = match self.count {
            1 => (x, x),
            _ => (self.min.min(x), self.max.max(x)),
        };
    }

    /// Takes in figures that were gathered elsewhere (Chan et al. 1979).
    pub fn merge(&mut self, other: &Spread) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { *other } else { *self };
            return;
        }
        let (count, apart) = ((self.count + other.count) as f64, other.mean - self.mean);
        let (own, others) = (self.count as f64 / count, other.count as f64 / count);
        self.squares += other.squares + apart * apart * own * others * count;
        self.mean += apart * others;
        self.count += other.count;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }

    /// Over all figures (÷ n), not an estimate from a sample.
    pub fn std(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }

    /// Coefficient of variation: deviation ÷ mean. 0 where the mean is.
    pub fn cv(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.std() / self.mean }
    }

    /// `None` before the first figure.
    pub fn known(self) -> Option<Spread> {
        (self.count > 0).then_some(self)
    }
}

/// Serialises with its deviation, which is what a reader wants of the sum of squares. Nothing where nothing was measured.
impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.count == 0 {
            return serializer.serialize_none();
        }
        let mut fields = serializer.serialize_struct("Spread", 5)?;
        fields.serialize_field("mean", &self.mean)?;
        fields.serialize_field("std", &self.std())?;
        fields.serialize_field("min", &self.min)?;
        fields.serialize_field("max", &self.max)?;
        fields.serialize_field("count", &self.count)?;
        fields.end()
    }
}

/// The figure in the middle, or the mean of the two there; 0 where there is none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count => (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
    }
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        let mut spread = Spread::default();
        figures.into_iter().for_each(|x| spread.add(x));
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_the_two_pass_formulas(figures in prop::collection::vec(-1e3..1e3f64, 1..200), offset in 0.0..1e9f64) {
            let figures: Vec<f64> = figures.iter().map(|x| x + offset).collect();
            let spread: Spread = figures.iter().copied().collect();
            let mean = figures.iter().sum::<f64>() / figures.len() as f64;
            let variance = figures.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / figures.len() as f64;
            prop_assert!((spread.mean - mean).abs() <= 1e-12 * offset.max(1e3));
            prop_assert!((spread.std() - variance.sqrt()).abs() <= 1e-5);
            prop_assert_eq!(spread.min, figures.iter().copied().fold(f64::INFINITY, f64::min));
            prop_assert_eq!(spread.max, figures.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
    }

    #[test]
    fn two_halves_make_the_whole() {
        let figures = [3.0, 9.0, -4.0, 0.5, 7.0, 7.0, 1e3];
        let whole: Spread = figures.into_iter().collect();
        for at in 0..=figures.len() {
            let (mut first, second): (Spread, Spread) =
                (figures[..at].iter().copied().collect(), figures[at..].iter().copied().collect());
            first.merge(&second);
            assert!((first.mean - whole.mean).abs() < 1e-9 && (first.std() - whole.std()).abs() < 1e-9, "{at}");
            assert_eq!((first.count, first.min, first.max), (whole.count, whole.min, whole.max));
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])), (2.0, 2.5, 0.0));
    }

    #[test]
    fn nothing_and_one_figure() {
        assert_eq!(Spread::default().known(), None);
        let one: Spread = [3.0].into_iter().collect();
        assert_eq!((one.mean, one.std(), one.cv(), one.min, one.max), (3.0, 0.0, 0.0, 3.0, 3.0));
    }
}
