//! The length regulator: whole numbers of frames, as `synth::network` rounds them, and the token of every frame. And the
//! ends of the sound.

use crate::model::graph::GraphWriter;
use crate::synth::{MOST_FRAMES, MOST_FRAMES_PER_TOKEN};
use host::onnx::{Attribute, Kind, Value};

pub struct Lasting {
    /// `[tokens]`, f32
    pub frames: Value,
    /// `[1]`
    pub total: Value,
    /// `[total]`
    pub token_of_frame: Value,
}

/// Of expected frames (`[tokens]`, f32).
///
/// What rounding takes from a token the next one gets, and each has one frame at least. With E the sum of what is expected
/// up to a token, that one ends at S(i) = max(S(i - 1) + 1, round(E(i))), so S(i) - i is the largest round(E(j)) - j so far.
pub fn graph(expected: &Value, length_scale: &Value, g: &mut GraphWriter) -> Lasting {
    let (expected, scale) = (g.cast(expected, Kind::F64), g.cast(length_scale, Kind::F64));
    let expected = g.mul(&expected, &scale);
    let (most, most_of_all) = (g.double(MOST_FRAMES_PER_TOKEN), g.double(MOST_FRAMES));
    let bounded = g.op("Min", &[&expected, &most], vec![]);
    let sum = g.sum(&bounded, 0);
    let shrink = g.op("Div", &[&most_of_all, &sum], vec![]);
    let one = g.double(1.0);
    let shrink = g.op("Min", &[&shrink, &one], vec![]);
    let due = g.mul(&bounded, &shrink);
    let (axis, half) = (g.int(0), g.double(0.5));
    let ends = g.op("CumSum", &[&due, &axis], vec![]);
    let ends = g.add(&ends, &half);
    let ends = g.op("Floor", &[&ends], vec![]);
    let ends = g.cast(&ends, Kind::I64);

    let (tokens, first) = (g.len(&ends, 0), g.int(1));
    let number = g.range(&tokens);
    let number = g.add(&number, &first);
    let ahead = g.sub(&ends, &number);
    // `[tokens, tokens]`: those up to each.
    let (column, row) = (g.unsqueeze(&number, 1), g.unsqueeze(&number, 0));
    let before = g.op("LessOrEqual", &[&row, &column], vec![]);
    let ahead = g.op("Where", &[&before, &ahead, &axis], vec![]);
    let ahead = g.op("ReduceMax", &[&ahead], vec![("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))]);
    let ahead = g.op("Max", &[&ahead, &axis], vec![]);
    let ends = g.add(&ahead, &number);

    let (zero, last) = (g.ints(&[0]), g.ints(&[-1]));
    let but_last = g.slice(&ends, &zero, &last, 0);
    let starts = g.concat(&[&zero, &but_last], 0);
    let frames = g.sub(&ends, &starts);
    let total = g.part(&ends, -1, host::onnx::END, 0);
    // A one where each token but the first begins; summed up, the number of the token.
    let room = g.zeros_of_ints(&total);
    let ones = g.sub(&frames, &frames);
    let ones = g.add(&ones, &first);
    let begins = g.op("ScatterElements", &[&room, &starts, &ones], vec![("axis", Attribute::Int(0))]);
    let token_of_frame = g.op("CumSum", &[&begins, &axis], vec![]);
    let token_of_frame = g.sub(&token_of_frame, &first);
    Lasting { frames: g.cast(&frames, Kind::F32), total, token_of_frame }
}

/// A wave (`[1, 1, samples]`) whose ends rise and fall over so many samples, as those of clauses do.
pub fn faded(wave: &Value, samples: i64, g: &mut GraphWriter) -> Value {
    let count = g.len(wave, 2);
    let (place, one) = (g.range(&count), g.int(1));
    let from_start = g.add(&place, &one);
    let from_end = g.sub(&count, &place);
    let near = g.op("Min", &[&from_start, &from_end], vec![]);
    let longest = g.int(samples + 1);
    let near = g.op("Min", &[&near, &longest], vec![]);
    let near = g.cast(&near, Kind::F32);
    let turn = g.float(std::f64::consts::PI / (samples + 1) as f64);
    let angle = g.mul(&near, &turn);
    let cos = g.op("Cos", &[&angle], vec![]);
    let half = g.float(0.5);
    let cos = g.mul(&cos, &half);
    let gain = g.sub(&half, &cos);
    g.mul(wave, &gain)
}
