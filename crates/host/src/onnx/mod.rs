//! ONNX files: a graph is put together operator by operator, and written. Opset 17 and IR 8, which onnxruntime reads since
//! 1.13; what was tried and where is in `docs/export.md`.
//!
//! Constants lie in the main graph, whose values the bodies of its loops see too.

mod wire;

use half::f16;
use std::collections::HashMap;
use std::rc::Rc;

const OPSET: i64 = 17;
const IR_VERSION: i64 = 8;
/// "To the end", where a slice takes one.
pub const END: i64 = i64::MAX;

/// Something computed in a graph, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Value(Rc<str>);

impl Value {
    pub fn named(name: &str) -> Self {
        Value(name.into())
    }

    /// An input that an operator is not given.
    pub fn absent() -> Self {
        Value::named("")
    }
}

/// Kinds of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    F32,
    F16,
    F64,
    I8,
    I64,
    Bool,
}

pub enum Attribute {
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
    Body(Body),
}

/// What an operator like `Loop` repeats.
pub struct Body {
    name: &'static str,
    nodes: Vec<Node>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// An input or output, as a graph declares it.
#[derive(Clone)]
pub struct Port {
    value: Value,
    kind: Kind,
    shape: Vec<Dimension>,
}

#[derive(Clone)]
pub enum Dimension {
    Fixed(i64),
    Named(&'static str),
}

impl From<i64> for Dimension {
    fn from(size: i64) -> Self {
        Dimension::Fixed(size)
    }
}

impl From<&'static str> for Dimension {
    fn from(name: &'static str) -> Self {
        Dimension::Named(name)
    }
}

impl Port {
    pub fn new(value: &Value, kind: Kind, shape: impl IntoIterator<Item = Dimension>) -> Self {
        Port { value: value.clone(), kind, shape: shape.into_iter().collect() }
    }
}

struct Node {
    operator: &'static str,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    attributes: Vec<(&'static str, Attribute)>,
}

/// A constant.
struct Tensor {
    name: Value,
    kind: Kind,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// A graph as it is written.
struct Model {
    name: String,
    nodes: Vec<Node>,
    tensors: Vec<Tensor>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    metadata: Vec<(String, String)>,
}

/// A graph in the making.
#[derive(Default)]
pub struct Graph {
    nodes: Vec<Node>,
    /// Nodes of the graphs around the body that is being built.
    outer: Vec<Vec<Node>>,
    tensors: Vec<Tensor>,
    /// Small constants that are there already, by kind, shape and bytes.
    known: HashMap<(Kind, Vec<usize>, Vec<u8>), Value>,
    count: usize,
}

impl Graph {
    /// The bytes of a file. `metadata` is what readers of some programs look for.
    pub fn finish(self, name: &str, inputs: Vec<Port>, outputs: Vec<Port>, metadata: &[(&str, String)]) -> Vec<u8> {
        assert!(self.outer.is_empty(), "a body is not finished");
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let (nodes, tensors) = (self.nodes, self.tensors);
        wire::encode(&Model { name: name.into(), nodes, tensors, inputs, outputs, metadata })
    }

    /// An operator of one output.
    pub fn op(&mut self, operator: &'static str, inputs: &[&Value], attributes: Attributes) -> Value {
        self.ops(operator, inputs, 1, attributes).remove(0)
    }

    pub fn ops(
        &mut self,
        operator: &'static str,
        inputs: &[&Value],
        outputs: usize,
        attributes: Attributes,
    ) -> Vec<Value> {
        let made: Vec<Value> = (0..outputs).map(|_| self.fresh(operator)).collect();
        let inputs = inputs.iter().map(|value| (*value).clone()).collect();
        self.nodes.push(Node { operator, inputs, outputs: made.clone(), attributes });
        made
    }

    /// The value under a name of its own, as outputs need it.
    pub fn name(&mut self, value: &Value, name: &str) -> Value {
        let named = Value::named(name);
        let (inputs, outputs) = (vec![value.clone()], vec![named.clone()]);
        self.nodes.push(Node { operator: "Identity", inputs, outputs, attributes: vec![] });
        named
    }

    fn fresh(&mut self, what: &str) -> Value {
        self.count += 1;
        Value(format!("{what}_{}", self.count).into())
    }

    /// What follows, up to [`Graph::end_body`], is a body's. It may use every value of the graphs around it.
    pub fn begin_body(&mut self) {
        self.outer.push(std::mem::take(&mut self.nodes));
    }

    pub fn end_body(
        &mut self,
        name: &'static str,
        inputs: Vec<Port>,
        outputs: Vec<(Value, Kind, Vec<Dimension>)>,
    ) -> Body {
        // Names of their own: an output must not be a value of a graph around.
        let own = |(value, kind, shape)| Port { value: self.op("Identity", &[&value], vec![]), kind, shape };
        let outputs = outputs.into_iter().map(own).collect();
        let around = self.outer.pop().expect("a body was begun");
        Body { name, nodes: std::mem::replace(&mut self.nodes, around), inputs, outputs }
    }

    /// A name for a port of a body.
    pub fn placeholder(&mut self, what: &str) -> Value {
        self.fresh(what)
    }

    /// A named constant, as the weights are.
    pub fn tensor(&mut self, name: &str, kind: Kind, shape: &[usize], bytes: Vec<u8>) -> Value {
        let name = Value::named(name);
        self.tensors.push(Tensor { name: name.clone(), kind, shape: shape.to_vec(), bytes });
        name
    }

    /// A constant of half precision as f32. In the main graph, so that a loop does not cast it each time round.
    pub fn widened(&mut self, halves: &Value) -> Value {
        let made = self.fresh("Cast");
        let attributes = vec![("to", Attribute::Int(wire::number(Kind::F32)))];
        let node = Node { operator: "Cast", inputs: vec![halves.clone()], outputs: vec![made.clone()], attributes };
        match self.outer.first_mut() {
            Some(main) => main.push(node),
            None => self.nodes.push(node),
        }
        made
    }

    fn constant(&mut self, kind: Kind, shape: &[usize], bytes: Vec<u8>) -> Value {
        let key = (kind, shape.to_vec(), bytes);
        if let Some(value) = self.known.get(&key) {
            return value.clone();
        }
        let name = self.fresh("constant");
        let value = self.tensor(&name.0, kind, shape, key.2.clone());
        self.known.insert(key, value.clone());
        value
    }

    pub fn int(&mut self, value: i64) -> Value {
        self.constant(Kind::I64, &[], value.to_le_bytes().to_vec())
    }

    pub fn ints(&mut self, values: &[i64]) -> Value {
        self.constant(Kind::I64, &[values.len()], bytes(values, i64::to_le_bytes))
    }

    pub fn float(&mut self, value: f64) -> Value {
        self.constant(Kind::F32, &[], (value as f32).to_le_bytes().to_vec())
    }

    pub fn double(&mut self, value: f64) -> Value {
        self.constant(Kind::F64, &[], value.to_le_bytes().to_vec())
    }

    pub fn floats(&mut self, shape: &[usize], values: &[f32]) -> Value {
        self.constant(Kind::F32, shape, bytes(values, f32::to_le_bytes))
    }

    pub fn add(&mut self, a: &Value, b: &Value) -> Value {
        self.op("Add", &[a, b], vec![])
    }

    pub fn sub(&mut self, a: &Value, b: &Value) -> Value {
        self.op("Sub", &[a, b], vec![])
    }

    pub fn mul(&mut self, a: &Value, b: &Value) -> Value {
        self.op("Mul", &[a, b], vec![])
    }

    pub fn cast(&mut self, x: &Value, kind: Kind) -> Value {
        self.op("Cast", &[x], vec![("to", Attribute::Int(wire::number(kind)))])
    }

    pub fn gather(&mut self, table: &Value, index: &Value) -> Value {
        self.op("Gather", &[table, index], vec![("axis", Attribute::Int(0))])
    }

    pub fn concat(&mut self, parts: &[&Value], axis: i64) -> Value {
        self.op("Concat", parts, vec![("axis", Attribute::Int(axis))])
    }

    pub fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.ints(shape);
        self.op("Reshape", &[x, &shape], vec![])
    }

    pub fn transpose(&mut self, x: &Value, order: &[i64]) -> Value {
        self.op("Transpose", &[x], vec![("perm", Attribute::Ints(order.to_vec()))])
    }

    pub fn unsqueeze(&mut self, x: &Value, axis: i64) -> Value {
        let axes = self.ints(&[axis]);
        self.op("Unsqueeze", &[x, &axes], vec![])
    }

    pub fn squeeze(&mut self, x: &Value, axis: i64) -> Value {
        let axes = self.ints(&[axis]);
        self.op("Squeeze", &[x, &axes], vec![])
    }

    /// Parts of these sizes along an axis.
    pub fn split(&mut self, x: &Value, sizes: &[i64], axis: i64) -> Vec<Value> {
        let parts = self.ints(sizes);
        self.ops("Split", &[x, &parts], sizes.len(), vec![("axis", Attribute::Int(axis))])
    }

    /// From `start` up to `end` (`[1]` each) along an axis.
    pub fn slice(&mut self, x: &Value, start: &Value, end: &Value, axis: i64) -> Value {
        let axes = self.ints(&[axis]);
        self.op("Slice", &[x, start, end, &axes], vec![])
    }

    /// The same between places that are known.
    pub fn part(&mut self, x: &Value, start: i64, end: i64, axis: i64) -> Value {
        let (start, end) = (self.ints(&[start]), self.ints(&[end]));
        self.slice(x, &start, &end, axis)
    }

    /// Length of an axis: `[1]`.
    pub fn len(&mut self, x: &Value, axis: i64) -> Value {
        self.op("Shape", &[x], vec![("start", Attribute::Int(axis)), ("end", Attribute::Int(axis + 1))])
    }

    /// 0, 1, 2 … up to `count` (`[1]`), without it.
    pub fn range(&mut self, count: &Value) -> Value {
        let (zero, one, count) = (self.int(0), self.int(1), self.squeeze(count, 0));
        self.op("Range", &[&zero, &count, &one], vec![])
    }

    /// Zeros (f32) of a shape that is computed.
    pub fn zeros(&mut self, shape: &Value) -> Value {
        self.op("ConstantOfShape", &[shape], vec![])
    }

    /// The same of integers.
    pub fn zeros_of_ints(&mut self, shape: &Value) -> Value {
        let zero = self.int(0);
        self.op("Expand", &[&zero, shape], vec![])
    }

    /// A function of the angle of every bin at every sample of a transform: `[bins, n_fft]`. Depends on constants alone, so
    /// that readers compute it once, and it takes no room in the file.
    pub fn fourier(&mut self, bins: i64, n_fft: i64, of: fn(f64) -> f64) -> Value {
        let angle = |i: i64| std::f64::consts::TAU * i as f64 / n_fft as f64;
        let table: Vec<f32> = (0..n_fft).map(|i| of(angle(i)) as f32).collect();
        let (bin, sample, period) = (self.ints(&[bins]), self.ints(&[n_fft]), self.int(n_fft));
        let (bin, sample) = (self.range(&bin), self.range(&sample));
        let bin = self.unsqueeze(&bin, 1);
        let place = self.mul(&bin, &sample);
        let place = self.op("Mod", &[&place, &period], vec![]);
        let table = self.floats(&[n_fft as usize], &table);
        self.gather(&table, &place)
    }

    /// Sums along an axis, which goes.
    pub fn sum(&mut self, x: &Value, axis: i64) -> Value {
        let axes = self.ints(&[axis]);
        self.op("ReduceSum", &[x, &axes], vec![("keepdims", Attribute::Int(0))])
    }
}

pub type Attributes = Vec<(&'static str, Attribute)>;

/// Numbers as a file has them.
pub fn bytes<T: Copy, const N: usize>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| of(*value)).collect()
}

/// The same in half precision.
pub fn halves(values: &[f32]) -> Vec<u8> {
    bytes(values, |value| f16::from_f32(value).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of `onnx.proto3`, by hand. Whole files go through onnx's own checker in `tests/cli/export.rs`.
    #[test]
    fn a_graph_is_written_field_by_field_as_the_format_says() {
        let mut graph = Graph::default();
        let (x, c) = (Value::named("x"), graph.tensor("c", Kind::F32, &[1], 2f32.to_le_bytes().to_vec()));
        let sum = graph.add(&x, &c);
        let inputs = vec![Port::new(&x, Kind::F32, ["n".into()])];
        let outputs = vec![Port::new(&sum, Kind::F32, ["n".into()])];
        let file = graph.finish("g", inputs, outputs, &[("k", "v".into())]);
        let head = [&[0x08, 8, 0x12, 6][..], b"myxtts", &[0x1a]].concat();
        assert!(file.starts_with(&head), "IR version, then the producer");
        // node { input x, c; output, name Add_1; op_type Add }
        let node = b"\x0a\x19\x0a\x01x\x0a\x01c\x12\x05Add_1\x1a\x05Add_1\x22\x03Add";
        // initializer { dims 1; data_type 1; name c; raw_data 2.0 }
        let tensor = b"\x2a\x0d\x08\x01\x10\x01\x42\x01c\x4a\x04\x00\x00\x00\x40";
        for (what, wanted) in [("node", &node[..]), ("tensor", tensor), ("opset", b"\x42\x04\x0a\x00\x10\x11")] {
            assert!(file.windows(wanted.len()).any(|part| part == wanted), "{what}: {file:02x?}");
        }
        assert!(file.ends_with(b"\x72\x06\x0a\x01k\x12\x01v"), "metadata");
    }

    #[test]
    fn a_constant_is_kept_once_and_lies_outside_of_bodies() {
        let mut graph = Graph::default();
        let one = graph.int(1);
        graph.begin_body();
        assert_eq!(graph.int(1), one);
        let two = graph.int(2);
        let body = graph.end_body("b", vec![], vec![(two, Kind::I64, vec![])]);
        assert_eq!((graph.tensors.len(), graph.nodes.len(), body.nodes.len()), (2, 0, 1));
        assert_ne!(graph.int(1), graph.ints(&[1]));
    }
}
