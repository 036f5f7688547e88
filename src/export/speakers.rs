//! The voices of a file, one of which `sid` chooses: reference frames of all in one table, and for each voice where its
//! branches find theirs.

use crate::checkpoint::voice::Prompt;
use crate::model::graph::GraphWriter;
use crate::model::{GraphBranches, Sampling};
use host::onnx::{Kind, Port, Value};
use tch::Tensor;

/// Input that takes the frames of somebody who is not in the file.
pub const GIVEN: &str = "voice";

pub struct Speakers {
    n_mels: usize,
    /// `[frames * n_mels]`, normalised.
    frames: Vec<f32>,
    /// Branches of each voice, and of a single reference that is given.
    voices: Vec<Vec<Place>>,
    given: Vec<Place>,
}

/// A branch, by where its reference lies.
#[derive(Clone)]
struct Place {
    start: i64,
    end: i64,
    content: bool,
    weight: f64,
}

impl Speakers {
    pub fn new(voices: &[(String, Option<Prompt>)], sampling: &Sampling, n_mels: usize) -> Self {
        let mut speakers = Speakers { n_mels, frames: Vec::new(), voices: Vec::new(), given: Vec::new() };
        for (_, prompt) in voices {
            let parts = prompt.as_ref().map_or(&[][..], |prompt| &prompt.parts);
            let spans: Vec<[i64; 2]> = parts.iter().map(|(frames, _)| speakers.push(frames)).collect();
            let shares: Vec<f64> = parts.iter().map(|(_, share)| *share).collect();
            speakers.voices.push(places(sampling, &shares, &spans));
        }
        // Behind all others; where it ends is known when it is there.
        let behind = speakers.rows();
        speakers.given = places(sampling, &[1.0], &[[behind, behind]]);
        speakers
    }

    fn rows(&self) -> i64 {
        (self.frames.len() / self.n_mels) as i64
    }

    fn push(&mut self, frames: &[f32]) -> [i64; 2] {
        let start = self.rows();
        self.frames.extend_from_slice(frames);
        [start, self.rows()]
    }

    /// Branches of whoever is chosen. Where there are several, an input `sid` is added; and one for frames that are given.
    pub fn graph(&self, takes_others: bool, inputs: &mut Vec<Port>, g: &mut GraphWriter) -> GraphBranches {
        // A constant must have a row, even if nobody looks at it.
        let frames = if self.frames.is_empty() { vec![0.0; self.n_mels] } else { self.frames.clone() };
        let reference = g.values("voices", &Tensor::from_slice(&frames).view([-1, self.n_mels as i64]));
        let sid = (self.voices.len() > 1).then(|| {
            let sid = Value::named("sid");
            inputs.push(Port::new(&sid, Kind::I64, ["batch".into()]));
            g.squeeze(&sid, 0)
        });
        let mut rows = self.voices.clone();
        let mut added = None;
        if takes_others {
            rows.push(self.given.clone());
            added = Some(self.given(inputs, g));
        }
        let sid = sid.unwrap_or_else(|| g.int(0));
        let sid = match &added {
            Some((_, _, is_given)) => {
                let last = g.int(self.voices.len() as i64);
                g.op("Where", &[is_given, &last, &sid], vec![])
            }
            None => sid,
        };
        let most = rows.iter().map(Vec::len).max().unwrap_or(1);
        let mut numbers = |of: fn(&Place) -> i64| {
            let table: Vec<i64> = rows.iter().flat_map(|row| (0..most).map(|at| row.get(at).map_or(0, of))).collect();
            let table = g.ints(&table);
            let table = g.reshape(&table, &[-1, most as i64]);
            g.gather(&table, &sid)
        };
        let (starts, ends, content) =
            (numbers(|place| place.start), numbers(|place| place.end), numbers(|place| i64::from(place.content)));
        let weights: Vec<f32> = rows
            .iter()
            .flat_map(|row| (0..most).map(|at| row.get(at).map_or(0.0, |place| place.weight as f32)))
            .collect();
        let weights = g.floats(&[rows.len(), most], &weights);
        let counts: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
        let counts = g.ints(&counts);
        let (weights, count, content) =
            (g.gather(&weights, &sid), g.gather(&counts, &sid), g.cast(&content, Kind::F32));
        let (reference, ends) = match added {
            // The first branch's reference, which lies behind all of the file's, ends where the frames do.
            Some((frames, even, is_given)) => {
                let first: Vec<i64> = (0..most).map(|at| i64::from(at == 0)).collect();
                let (first, is_given) = (g.ints(&first), g.cast(&is_given, Kind::I64));
                let longer = g.mul(&first, &even);
                let longer = g.mul(&longer, &is_given);
                (g.concat(&[&reference, &frames], 0), g.add(&ends, &longer))
            }
            None => (reference, ends),
        };
        GraphBranches { count, reference, starts, ends, content, weights }
    }

    /// The frames that are given, how many of them count (`[1]`), and whether there are any (0-d). Without, the input is
    /// what the file says: one row, which is not enough to be a voice.
    fn given(&self, inputs: &mut Vec<Port>, g: &mut GraphWriter) -> (Value, Value, Value) {
        let frames = g.values(GIVEN, &Tensor::zeros([1, self.n_mels as i64], (tch::Kind::Float, tch::Device::Cpu)));
        inputs.push(Port::new(&frames, Kind::F32, ["reference".into(), (self.n_mels as i64).into()]));
        let (rows, two) = (g.len(&frames, 0), g.ints(&[2]));
        let pairs = g.op("Div", &[&rows, &two], vec![]);
        let even = g.mul(&pairs, &two);
        let (pairs, none) = (g.squeeze(&pairs, 0), g.int(0));
        let is_given = g.op("Greater", &[&pairs, &none], vec![]);
        (frames, even, is_given)
    }
}

fn places(sampling: &Sampling, shares: &[f64], spans: &[[i64; 2]]) -> Vec<Place> {
    let branches = sampling.branches(shares).into_iter();
    let place = |branch: crate::model::Branch| {
        let [start, end] = branch.speaker.map_or([0, 0], |speaker| spans[speaker]);
        Place { start, end, content: branch.content, weight: branch.weight }
    };
    branches.map(place).collect()
}
