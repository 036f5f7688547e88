//! Dynamic time warping (Sakoe and Chiba 1978): which frame of one recording is which of another.

use anyhow::{Result, ensure};

/// Most pairs of frames that are looked at, a byte each: two minutes against two minutes.
const MOST_PAIRS: usize = 1 << 28;

/// A pair of frames, one of each recording.
pub type Pair = (usize, usize);

/// The cheapest path from the first frames of both to the last. It goes on by one frame in either or in both, and costs
/// the sum of `cost` over its pairs; of equal ways the one that is nearer to the diagonal is taken.
pub fn align(rows: usize, cols: usize, cost: impl Fn(usize, usize) -> f64) -> Result<Vec<Pair>> {
    ensure!(rows > 0 && cols > 0, "nothing to align");
    ensure!(rows.saturating_mul(cols) <= MOST_PAIRS, "{rows} by {cols} frames are too many to align");
    let mut steps = vec![Step::Both; rows * cols];
    let (mut before, mut sums) = (vec![f64::INFINITY; cols], vec![f64::INFINITY; cols]);
    for row in 0..rows {
        for col in 0..cols {
            let here = match (row, col) {
                (0, 0) => (0.0, Step::Both),
                (_, 0) => (before[0], Step::Row),
                _ => cheapest(before[col - 1], before[col], sums[col - 1]),
            };
            sums[col] = here.0 + cost(row, col);
            steps[row * cols + col] = here.1;
        }
        std::mem::swap(&mut before, &mut sums);
    }
    Ok(walk_back(&steps, rows, cols))
}

/// How a path came to a pair.
#[derive(Clone, Copy)]
enum Step {
    Both,
    Row,
    Col,
}

fn cheapest(both: f64, row: f64, col: f64) -> (f64, Step) {
    match () {
        () if both <= row && both <= col => (both, Step::Both),
        () if row <= col => (row, Step::Row),
        () => (col, Step::Col),
    }
}

fn walk_back(steps: &[Step], rows: usize, cols: usize) -> Vec<Pair> {
    let mut path = vec![(rows - 1, cols - 1)];
    while let Some(&(row, col)) = path.last().filter(|pair| **pair != (0, 0)) {
        path.push(match steps[row * cols + col] {
            Step::Both => (row - 1, col - 1),
            Step::Row => (row - 1, col),
            Step::Col => (row, col - 1),
        });
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every path there is.
    fn cheapest_of_all(costs: &[Vec<f64>], (row, col): Pair) -> f64 {
        let next = [(row + 1, col + 1), (row + 1, col), (row, col + 1)];
        let inside = next.into_iter().filter(|(row, col)| *row < costs.len() && *col < costs[0].len());
        let rest = inside.map(|pair| cheapest_of_all(costs, pair)).fold(f64::INFINITY, f64::min);
        costs[row][col] + if rest.is_finite() { rest } else { 0.0 }
    }

    proptest! {
        #[test]
        fn no_path_is_cheaper((rows, cols, values) in (1..6usize, 1..6usize, prop::collection::vec(0.0..9.0f64, 36))) {
            let costs: Vec<Vec<f64>> = values.chunks(6).take(rows).map(|row| row[..cols].to_vec()).collect();
            let path = align(rows, cols, |row, col| costs[row][col]).unwrap();
            let sum: f64 = path.iter().map(|&(row, col)| costs[row][col]).sum();
            prop_assert!((sum - cheapest_of_all(&costs, (0, 0))).abs() < 1e-9);
            prop_assert_eq!((path[0], path[path.len() - 1]), ((0, 0), (rows - 1, cols - 1)));
            let goes_on = |step: &[Pair]| {
                let (down, right) = (step[1].0 - step[0].0, step[1].1 - step[0].1);
                (down.max(right), down + right > 0) == (1, true)
            };
            prop_assert!(path.windows(2).all(goes_on), "{:?}", path);
        }
    }

    #[test]
    fn what_is_alike_is_paired() {
        let (slow, fast) = ([1i16, 1, 2, 3, 3, 3, 4], [1, 2, 2, 3, 4]);
        let path = align(slow.len(), fast.len(), |a, b| f64::from((slow[a] - fast[b]).abs())).unwrap();
        assert!(path.iter().all(|&(a, b)| slow[a] == fast[b]), "{path:?}");
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(align(0, 3, |_, _| 0.0).is_err() && align(usize::MAX, 2, |_, _| 0.0).is_err());
    }
}
