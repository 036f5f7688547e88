//! The network as an ONNX graph. Every layer has a `graph` beside its `forward`, which takes it apart field by field: a
//! layer or weight that is added to one and not to the other does not compile, or is found by [`GraphWriter::finish`],
//! which refuses to leave a weight out.
//!
//! In a graph there is one utterance and no gap: `[rows, channels]`.

use anyhow::{Result, ensure};
use host::onnx::{Attribute, Graph, Kind, Value, bytes, halves};
use std::collections::{BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};
use tch::Tensor;

/// How weights of products are kept in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    Full,
    /// f16 in the file, f32 once it is loaded.
    Half,
    /// Eight bits with a scale for every output channel; inputs are quantised as they come.
    Int8,
}

impl Precision {
    /// What weights are kept in that must not be quantised.
    pub fn exact(self) -> Self {
        if self == Precision::Int8 { Precision::Half } else { self }
    }
}

/// A graph whose constants are weights of networks, by their names there.
pub struct GraphWriter {
    graph: Graph,
    precision: Precision,
    /// Names of weights by where they lie in memory.
    names: HashMap<usize, String>,
    unused: BTreeSet<String>,
    /// Weights that are in the graph.
    there: HashMap<String, Value>,
    halved: Vec<Tensor>,
}

impl Deref for GraphWriter {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.graph
    }
}

impl DerefMut for GraphWriter {
    fn deref_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }
}

impl GraphWriter {
    /// `weights`: all that the graph must use, by name.
    pub fn new(precision: Precision, weights: &[(String, Tensor)]) -> Self {
        let names: HashMap<usize, String> =
            weights.iter().map(|(name, weight)| (weight.data_ptr() as usize, name.clone())).collect();
        let unused = names.values().cloned().collect();
        GraphWriter { graph: Graph::default(), precision, names, unused, there: HashMap::new(), halved: Vec::new() }
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The graph, if it uses every weight; and the weights of which it keeps halves.
    pub fn finish(self) -> Result<(Graph, Vec<Tensor>)> {
        let unused: Vec<String> = self.unused.into_iter().collect();
        ensure!(unused.is_empty(), "the graph leaves out weights of the network: {}", unused.join(", "));
        Ok((self.graph, self.halved))
    }

    /// Says that what a weight does was computed beforehand.
    pub fn folded(&mut self, weight: &Tensor) -> String {
        let name = self.names.get(&(weight.data_ptr() as usize)).expect("a weight of the network").clone();
        self.unused.remove(&name);
        name
    }

    /// A weight as it is, in full precision.
    pub fn weight(&mut self, weight: &Tensor) -> Value {
        self.weight_of(weight, weight)
    }

    /// What was made of a weight, in full precision.
    pub fn weight_of(&mut self, weight: &Tensor, made: &Tensor) -> Value {
        let name = self.folded(weight);
        self.once(name, |g, name| g.kept(name, Precision::Full, made))
    }

    /// Values that are no weights.
    pub fn values(&mut self, name: &str, values: &Tensor) -> Value {
        self.kept(name, Precision::Full, values)
    }

    /// `x` (`[rows, from]`) times a weight (`[to, from]`).
    pub fn product(&mut self, x: &Value, weight: &Tensor) -> Value {
        self.product_of(x, weight, weight, self.precision)
    }

    /// The same with another matrix (`[to, from]`) that was made of the weight, and another precision.
    pub fn product_of(&mut self, x: &Value, weight: &Tensor, matrix: &Tensor, precision: Precision) -> Value {
        let name = self.folded(weight);
        let columns = matrix.transpose(0, 1).contiguous();
        if precision == Precision::Int8 {
            return self.product_of_bytes(x, name, &columns);
        }
        let kept = self.once(name, |g, name| {
            g.halved.extend((precision == Precision::Half).then(|| weight.shallow_clone()));
            g.kept(name, precision, &columns)
        });
        self.op("MatMul", &[x, &kept], vec![])
    }

    /// Symmetric weights, a scale for every column; rows as onnxruntime's dynamic quantisation has them.
    fn product_of_bytes(&mut self, x: &Value, name: String, columns: &Tensor) -> Value {
        let scales = columns.abs().amax([0i64].as_slice(), false).clamp_min(1e-12) / 127.0;
        let kept = self.once(name.clone(), |g, name| {
            let whole: Vec<f32> = floats(&(columns / &scales).round());
            g.graph.tensor(name, Kind::I8, &shape(columns), bytes(&whole, |value| (value as i8).to_le_bytes()))
        });
        let scales = self.once(format!("{name}.scale"), |g, name| g.kept(name, Precision::Full, &scales));
        // The same input goes into one product, so nothing is quantised twice.
        let quantised = self.ops("DynamicQuantizeLinear", &[x], 3, vec![]);
        let product = self.op("MatMulInteger", &[&quantised[0], &kept, &quantised[2]], vec![]);
        let (product, scale) = (self.cast(&product, Kind::F32), self.mul(&quantised[1], &scales));
        self.mul(&product, &scale)
    }

    fn once(&mut self, name: String, make: impl FnOnce(&mut Self, &str) -> Value) -> Value {
        if let Some(value) = self.there.get(&name) {
            return value.clone();
        }
        let value = make(self, &name);
        self.there.insert(name, value.clone());
        value
    }

    fn kept(&mut self, name: &str, precision: Precision, values: &Tensor) -> Value {
        let (shape, data) = (shape(values), floats(values));
        match precision {
            Precision::Half => {
                let halves = self.graph.tensor(name, Kind::F16, &shape, halves(&data));
                self.graph.widened(&halves)
            }
            _ => self.graph.tensor(name, Kind::F32, &shape, bytes(&data, f32::to_le_bytes)),
        }
    }

    /// Layer norm over channels with these scales and shifts (`[channels]`).
    pub fn layer_norm(&mut self, x: &Value, scale: &Value, shift: &Value) -> Value {
        let attributes = vec![("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(1e-5))];
        self.op("LayerNormalization", &[x, scale, shift], attributes)
    }

    /// GELU by tanh, in the form that onnxruntime knows as one operation.
    pub fn gelu(&mut self, x: &Value) -> Value {
        let [three, cubic, slope, one, half] =
            [3.0, 0.044715, (2.0 / std::f64::consts::PI).sqrt(), 1.0, 0.5].map(|value| self.float(value));
        let cube = self.op("Pow", &[x, &three], vec![]);
        let cube = self.mul(&cube, &cubic);
        let sum = self.add(x, &cube);
        let sum = self.mul(&sum, &slope);
        let tanh = self.op("Tanh", &[&sum], vec![]);
        let (gate, halved) = (self.add(&tanh, &one), self.mul(x, &half));
        self.mul(&halved, &gate)
    }

    /// Rows that each row of a convolution sees, side by side: `[rows, kernel * channels]`, zeros beyond the ends. So a
    /// convolution is a product, and needs no transposed copies.
    pub fn unfold(&mut self, x: &Value, channels: i64, kernel: i64) -> Value {
        let shifted = self.shifted(x, channels, kernel);
        self.concat(&shifted.iter().collect::<Vec<_>>(), 1)
    }

    /// Convolution along the rows with a filter of its own for every channel; `weight`: `[channels, 1, kernel]`.
    pub fn depthwise(&mut self, x: &Value, weight: &Tensor, bias: &Tensor) -> Value {
        let (weight, kernel) = (self.weight(weight), weight.size()[2]);
        let (bias, channels) = (self.weight(bias), bias.size()[0]);
        let columns = self.transpose(x, &[1, 0]);
        let columns = self.unsqueeze(&columns, 0);
        let half = kernel / 2;
        let attributes = vec![
            ("kernel_shape", Attribute::Ints(vec![kernel])),
            ("pads", Attribute::Ints(vec![half, half])),
            ("group", Attribute::Int(channels)),
        ];
        let mixed = self.op("Conv", &[&columns, &weight, &bias], attributes);
        let mixed = self.squeeze(&mixed, 0);
        self.transpose(&mixed, &[1, 0])
    }

    fn shifted(&mut self, x: &Value, channels: i64, kernel: i64) -> Vec<Value> {
        let half = kernel / 2;
        let zeros = self.floats(&[half as usize, channels as usize], &vec![0.0; (half * channels) as usize]);
        let padded = self.concat(&[&zeros, x, &zeros], 0);
        let end = |at: i64| if at + 1 == kernel { host::onnx::END } else { at + 1 - kernel };
        (0..kernel).map(|at| self.part(&padded, at, end(at), 0)).collect()
    }
}

fn shape(tensor: &Tensor) -> Vec<usize> {
    tensor.size().iter().map(|size| *size as usize).collect()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.detach().contiguous().view(-1)).expect("floats on the CPU")
}
