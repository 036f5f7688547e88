//! Context frames: the part of an utterance that the decoder gets clean while it learns to generate the rest (infilling,
//! as in Voicebox, Le et al. 2023). At synthesis a reference's frames are the context, in front of what is spoken.
//!
//! Every choice is drawn by tensors on the device, so that a captured step draws anew on each replay.

use super::track::with_gap_row;
use crate::feed::Packed;
use tch::{Kind, Tensor};

/// Smallest share of an utterance's frames that is context.
pub(super) const LEAST_SHARE: f64 = 0.1;
/// Share of utterances whose context frames come without their content: a reference has no transcript.
pub(super) const WITHOUT_CONTENT: f64 = 0.5;

/// Which rows of an axis the decoder gets as context, and where it gets content. `[rows, 1]` each, f32, 0 or 1.
pub struct ContextMasks {
    /// Absent where the voice does not clone.
    pub context: Option<Tensor>,
    pub content: Tensor,
}

impl ContextMasks {
    /// For each utterance a share of frames, up to `share`, at its front, its end, in its middle or at both ends.
    /// `dropout`: share of utterances without any condition; as many again keep their content and lose their context.
    pub fn draw(frames: &Packed, share: f64, dropout: f64) -> Self {
        ContextMasks::choose(frames, &Chance::draw(frames, share), share, dropout)
    }

    /// The same by draws that were made; draw.cu is this for a GPU.
    pub fn choose(frames: &Packed, chance: &Chance, share: f64, dropout: f64) -> Self {
        let conditioned = chance.row(0).ge(dropout).to_kind(Kind::Float);
        if share == 0.0 {
            return ContextMasks { context: None, content: along(&[conditioned], frames).remove(0) };
        }
        let [first, end, both_ends] = spans(frames, share, [1, 2, 3].map(|row| chance.row(row)));
        let prompted = conditioned.shallow_clone() * chance.row(4).ge(dropout);
        let bare = chance.row(5).lt(WITHOUT_CONTENT).to_kind(Kind::Float);
        let [conditioned, first, end, both_ends, prompted, bare] =
            along(&[conditioned, first, end, both_ends, prompted, bare], frames).try_into().expect("six tables");
        let position = frames.position.unsqueeze(1).to_kind(Kind::Float);
        let inside = (position.ge_tensor(&first) * position.lt_tensor(&end)).to_kind(Kind::Float);
        let context = (inside - both_ends).abs() * prompted * &frames.mask;
        ContextMasks { content: conditioned * (1.0 - &context * bare), context: Some(context) }
    }
}

/// Uniform draws, six for each utterance, or one where there is no context: `[draws, capacity]`.
pub struct Chance(pub Tensor);

impl Chance {
    pub fn draw(frames: &Packed, share: f64) -> Self {
        let draws = if share > 0.0 { 6 } else { 1 };
        Chance(Tensor::rand([draws, frames.capacity()], (Kind::Float, frames.lens.device())))
    }

    fn row(&self, row: i64) -> Tensor {
        self.0.select(0, row)
    }
}

/// Of each utterance the first frame and the end of a stretch, and 1 where the context lies around it instead of in it.
fn spans(frames: &Packed, share: f64, [size, place, at]: [Tensor; 3]) -> [Tensor; 3] {
    let lens = frames.lens.to_kind(Kind::Float);
    // Two frames at least: one pair at half the rate. One frame at least is left to be generated.
    let most = (&lens - 1.0).clamp_min(0.0);
    let count = ((size * (share - LEAST_SHARE).max(0.0) + LEAST_SHARE.min(share)) * &lens).floor().clamp_min(2.0);
    let count = count.minimum(&most);
    let place = (place * 4.0).floor();
    let is = |number: f64| place.eq(number).to_kind(Kind::Float);
    let [end, middle, both_ends] = [1.0, 2.0, 3.0].map(is);
    let rest = &lens - &count;
    let anywhere = (&at * (&rest + 1.0)).floor().minimum(&rest);
    let left = (&at * &count).floor();
    let first = end * &rest + middle * anywhere + &both_ends * left;
    let length = &both_ends * rest + (1.0 - &both_ends) * count;
    [first.shallow_clone(), first + length, both_ends]
}

/// Gives every row the values of its utterance, 0 in gaps: `[rows, 1]` of each `[capacity]`.
fn along(tables: &[Tensor], frames: &Packed) -> Vec<Tensor> {
    with_gap_row(&Tensor::stack(tables, 1)).index_select(0, &frames.owner).split(1, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::loader::Axis;
    use proptest::prelude::*;

    fn packed(lens: &[usize]) -> Packed {
        let spans = crate::feed::Batch::end_to_end(lens);
        let end = spans.last().map_or(0, |span| (span.end() + host::loader::GAP).next_multiple_of(2));
        Packed::new(&Axis::new(&spans, end, lens.len() + 1, *lens.iter().max().unwrap()), |tensor| tensor)
    }

    fn rows(tensor: &Tensor) -> Vec<f32> {
        Vec::try_from(tensor.flatten(0, -1)).unwrap()
    }

    proptest! {
        #[test]
        fn context_is_a_share_of_each_utterance_and_never_all_of_it(
            lens in prop::collection::vec(3usize..90, 1..9), seed in 0i64..1000, share in 0.1f64..0.9,
        ) {
            tch::manual_seed(seed);
            let frames = packed(&lens);
            let masks = ContextMasks::draw(&frames, share, 0.0);
            let (context, content) = (rows(masks.context.as_ref().unwrap()), rows(&masks.content));
            for (index, &len) in lens.iter().enumerate() {
                let start = frames.starts.int64_value(&[index as i64]) as usize;
                let own = &context[start..start + len];
                let count = own.iter().sum::<f32>() as usize;
                prop_assert!(count >= 2.min(len - 1) && count < len, "{count} of {len}");
                prop_assert!(count as f64 <= (share * len as f64).max(2.0));
                let borders = own.windows(2).filter(|pair| pair[0] != pair[1]).count();
                prop_assert!(borders == 1 || borders == 2, "one stretch, or what lies around one");
                let generated = own.iter().zip(&content[start..]).filter(|(context, _)| **context == 0.0);
                prop_assert!(generated.into_iter().all(|(_, content)| *content == 1.0), "what is generated has its text");
            }
            let gaps = context.iter().zip(rows(&frames.mask)).filter(|(_, mask)| *mask == 0.0);
            prop_assert!(gaps.into_iter().all(|(context, _)| *context == 0.0));
        }
    }

    #[test]
    fn each_way_and_each_dropout_comes_as_often_as_it_should() {
        tch::manual_seed(5);
        let lens = vec![20; 4000];
        let frames = packed(&lens);
        let masks = ContextMasks::draw(&frames, 0.5, 0.1);
        let (context, content) = (rows(masks.context.as_ref().unwrap()), rows(&masks.content));
        let mut counts = [0; 7];
        for index in 0..lens.len() {
            let start = frames.starts.int64_value(&[index as i64]) as usize;
            let (context, content) = (&context[start..start + 20], &content[start..start + 20]);
            let given = context.contains(&1.0);
            let kind = match (context[0] == 1.0, context[19] == 1.0) {
                _ if content.iter().all(|value| *value == 0.0) => 0, // nothing at all
                _ if !given => 1,                                    // content alone
                (true, false) => 2,
                (false, true) => 3,
                (false, false) => 4,
                (true, true) => 5,
            };
            counts[kind] += 1;
            counts[6] += usize::from(kind > 1 && content.contains(&0.0));
        }
        let share = |count: usize| count as f64 / lens.len() as f64;
        assert!((share(counts[0]) - 0.1).abs() < 0.02 && (share(counts[1]) - 0.09).abs() < 0.02, "{counts:?}");
        // A stretch in the middle touches an end at times, and so do both ends where one of them is empty.
        assert!(counts[2..6].iter().all(|count| (0.13..0.30).contains(&share(*count))), "{counts:?}");
        assert!((share(counts[6]) - 0.405).abs() < 0.03, "half of the prompted ones lose their context's content");
    }
}
