//! Ids as Piper and sherpa-onnx give them, to the tokens that the voice learned: marks join the letters before them, and
//! what the tokenizer leaves out goes.

use crate::model::graph::GraphWriter;
use host::onnx::{Attribute, Kind, Value};
use host::text::phoneme_map::PhonemeMap;

pub struct Tokens {
    /// `[tokens]`
    pub tokens: Value,
    /// `[ids]`, bool: those that became a token.
    kept: Value,
}

/// `input`: `[1, ids]`; `lengths`: `[1]`, how many of them count.
pub fn graph(map: &PhonemeMap, input: &Value, lengths: &Value, g: &mut GraphWriter) -> Tokens {
    let zero = g.ints(&[0]);
    let ids = g.reshape(input, &[-1]);
    let ids = g.slice(&ids, &zero, lengths, 0);
    // A mark stands two places behind its letter, a pad between them.
    let pads = g.ints(&[0, 0]);
    let behind = g.concat(&[&ids, &pads], 0);
    let behind = g.part(&behind, 2, host::onnx::END, 0);
    let (marks, wholes) = tables(map);
    let (marks, wholes, count) = (g.ints(&marks), g.ints(&wholes), g.int(map.count as i64));
    let mark = g.gather(&marks, &behind);
    let place = g.mul(&mark, &count);
    let place = g.add(&place, &ids);
    let whole = g.gather(&wholes, &place);
    let none = g.int(0);
    let joined = g.op("Greater", &[&whole, &none], vec![]);
    let tokens = g.op("Where", &[&joined, &whole, &ids], vec![]);

    let left_out = g.int(map.left_out);
    let left_out = g.op("Equal", &[&ids, &left_out], vec![]);
    let [joined, left_out] = [&joined, &left_out].map(|flags| g.cast(flags, Kind::I64));
    let gone = [(&joined, 1), (&joined, 2), (&left_out, 1)].map(|(flags, places)| later(flags, places, g));
    let gone = gone.iter().fold(left_out, |sum, flags| g.add(&sum, flags));
    let kept = g.op("Equal", &[&gone, &none], vec![]);
    let tokens = g.op("Compress", &[&tokens, &kept], vec![("axis", Attribute::Int(0))]);
    Tokens { tokens, kept }
}

impl Tokens {
    /// Values of tokens (`[tokens]`, f32) at the ids that they came of; 0 at the others.
    pub fn spread(&self, values: &Value, g: &mut GraphWriter) -> Value {
        let (flags, axis, one) = (g.cast(&self.kept, Kind::I64), g.int(0), g.int(1));
        let number = g.op("CumSum", &[&flags, &axis], vec![]);
        let number = g.sub(&number, &one);
        // Before the first there is none: any will do.
        let number = g.op("Max", &[&number, &axis], vec![]);
        let (spread, flags) = (g.gather(values, &number), g.cast(&self.kept, Kind::F32));
        g.mul(&spread, &flags)
    }
}

/// For each id the number of its mark, 0 for what is none; and for each mark and id what they are together, 0 if nothing.
fn tables(map: &PhonemeMap) -> (Vec<i64>, Vec<i64>) {
    let mut marks = vec![0; map.count];
    let mut wholes = vec![0; map.count];
    for [letter, mark, whole] in &map.joined {
        let mark = *mark as usize;
        if marks[mark] == 0 {
            marks[mark] = (wholes.len() / map.count) as i64;
            wholes.resize(wholes.len() + map.count, 0);
        }
        wholes[marks[mark] as usize * map.count + *letter as usize] = *whole;
    }
    (marks, wholes)
}

/// Flags so many places later, zeros before them.
fn later(flags: &Value, places: i64, g: &mut GraphWriter) -> Value {
    let zeros = g.ints(&vec![0; places as usize]);
    let (start, length) = (g.ints(&[0]), g.len(flags, 0));
    let moved = g.concat(&[&zeros, flags], 0);
    g.slice(&moved, &start, &length, 0)
}
