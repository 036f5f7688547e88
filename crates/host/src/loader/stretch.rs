//! Known durations along the frames of an utterance.

/// The token of each frame of an utterance, the first token being `first`. Where it is spoken in more or fewer frames than
/// its durations count, borders keep their share of the time; every token keeps a frame.
pub(super) fn stretch_durations(durations: &[i32], first: usize, token_of_frame: &mut [i32]) {
    let (tokens, frames) = (durations.len(), token_of_frame.len());
    assert!(frames >= tokens, "every token needs a frame: {frames} frames, {tokens} tokens");
    let counted: usize = durations.iter().map(|&frames| frames as usize).sum();
    let (mut passed, mut start) = (0, 0);
    for (token, &duration) in durations.iter().enumerate() {
        passed += duration as usize;
        let (border, left) = ((passed * frames + counted / 2) / counted, tokens - token - 1);
        let end = border.clamp(start + 1, frames - left);
        token_of_frame[start..end].fill((first + token) as i32);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stretched(durations: &[i32], frames: usize) -> Vec<i32> {
        let mut path = vec![-1; frames];
        stretch_durations(durations, 7, &mut path);
        path
    }

    #[test]
    fn borders_keep_their_share_of_the_time() {
        assert_eq!(stretched(&[2, 1, 3], 6), [7, 7, 8, 9, 9, 9]);
        assert_eq!(stretched(&[2, 1, 3], 12), [7, 7, 7, 7, 8, 8, 9, 9, 9, 9, 9, 9]);
        assert_eq!(stretched(&[10, 1, 1], 4), [7, 7, 8, 9]); // the short ones keep a frame
    }

    proptest! {
        #[test]
        fn every_frame_has_a_token_and_every_token_a_frame(
            durations in prop::collection::vec(1i32..60, 1..80), stretch in 0.5f64..2.0,
        ) {
            let counted: i32 = durations.iter().sum();
            let frames = ((f64::from(counted) * stretch) as usize).max(durations.len());
            let lasting = |path: &[i32]| -> Vec<i32> {
                (0..durations.len()).map(|token| path.iter().filter(|&&at| at == 7 + token as i32).count() as i32).collect()
            };
            let path = stretched(&durations, frames);
            prop_assert!(path.is_sorted() && lasting(&path).iter().all(|&frames| frames >= 1));
            prop_assert_eq!(lasting(&path).iter().sum::<i32>() as usize, frames);
            prop_assert_eq!(lasting(&stretched(&durations, counted as usize)), durations);
        }
    }
}
