//! What the decoder computes for one step of the flow: a frame's velocity is a weighted sum over branches, each with
//! conditions of its own. Classifier-free guidance (Ho & Salimans 2022) is a branch without any condition and a negative
//! weight; a mix of two speakers is a branch for each.

use super::Sampling;
use super::track::repeat;
use crate::feed::Packed;
use tch::{Kind, Tensor};

/// One way to condition the decoder, and how much its velocity counts.
pub struct Branch {
    /// The speaker in front: which of those that the prompt is mixed of.
    pub speaker: Option<usize>,
    pub content: bool,
    pub weight: f64,
}

impl Sampling {
    /// Each speaker of a prompt, by its share, then what guidance goes away from. Weights add up to 1.
    pub fn branches(&self, shares: &[f64]) -> Vec<Branch> {
        let (guidance, speaker) = (self.guidance, if shares.is_empty() { 0.0 } else { self.speaker_guidance });
        let whole = guidance + speaker;
        let speakers = shares.iter().enumerate();
        let mut branches: Vec<Branch> =
            speakers.map(|(i, share)| Branch { speaker: Some(i), content: true, weight: whole * share }).collect();
        if shares.is_empty() {
            branches.push(Branch { speaker: None, content: true, weight: whole });
        }
        branches.extend((speaker != 0.0).then_some(Branch { speaker: None, content: true, weight: -speaker }));
        branches.extend((guidance != 1.0).then_some(Branch { speaker: None, content: false, weight: 1.0 - guidance }));
        branches
    }
}

pub struct Branches {
    /// The axis that the decoder works on. Each branch of each utterance is a segment of it: context frames, then those
    /// to be generated.
    pub rows: Packed,
    /// `[rows]`, i32: the frame that a row generates; any frame in context and gaps.
    pub frame_of_row: Tensor,
    /// `[rows, 1]`, f32: 1 where the decoder gets the frame's content.
    pub content_mask: Tensor,
    /// Clean mel frames (`[rows, n_mels]`, normalised) and the mask of rows that they are given for (`[rows, 1]`, f32).
    pub context: Option<(Tensor, Tensor)>,
    /// `[branches, frames]`, i32: the row of each frame.
    pub row_of_frame: Tensor,
    /// `[branches, frames]`, f32; those of a frame add up to 1.
    pub weights: Tensor,
}

impl Branches {
    /// Branches along one axis of frames: conditioned as the masks say, and for guidance without any condition.
    pub fn along(frames: &Packed, content_mask: &Tensor, context: Option<(&Tensor, &Tensor)>, guidance: f64) -> Self {
        let (len, device) = (frames.len(), frames.owner.device());
        let weights = if guidance == 1.0 { &[1.0][..] } else { &[guidance, 1.0 - guidance] };
        let copies = weights.len() as i64;
        // Filled on the device: this may be captured.
        let even = |weight: &f64| Tensor::full([len], *weight, (Kind::Float, device));
        let rows = repeat(frames, copies);
        let row_of_frame = Tensor::arange(rows.len(), (Kind::Int, device)).view([copies, len]);
        // Nothing stands in the rows behind the first copy.
        let first = |mask: &Tensor| mask.constant_pad_nd([0, 0, 0, (copies - 1) * len]);
        Branches {
            frame_of_row: row_of_frame.remainder(len).view(-1),
            content_mask: first(content_mask),
            context: context.map(|(mel, mask)| (first(mel), first(mask))),
            weights: Tensor::stack(&weights.iter().map(even).collect::<Vec<_>>(), 0),
            row_of_frame,
            rows,
        }
    }

    /// Velocities of rows (`[rows, n_mels]`) to those of frames (`[frames, n_mels]`).
    pub(super) fn sum(&self, velocity: &Tensor) -> Tensor {
        let each = (0..self.weights.size()[0]).map(|branch| {
            let rows = self.row_of_frame.select(0, branch);
            velocity.index_select(0, &rows) * self.weights.select(0, branch).unsqueeze(1)
        });
        each.sum()
    }
}
