//! Protobuf's wire format, as far as a writer of ONNX needs it: numbers, floats, bytes and messages in messages. Tags are
//! those of `onnx.proto3`. By hand, because a derive would bring three crates for what is sixty lines.

use super::{Attribute, Body, Dimension, Kind, Model, Node, Port, Tensor};

/// Fields of one message, as bytes.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(&mut self, field: u32, value: i64) -> &mut Self {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    fn float(&mut self, field: u32, value: f32) -> &mut Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    fn texts<'a>(&mut self, field: u32, texts: impl IntoIterator<Item = &'a str>) -> &mut Self {
        texts.into_iter().for_each(|text| {
            self.text(field, text);
        });
        self
    }

    fn messages(&mut self, field: u32, messages: impl IntoIterator<Item = Message>) -> &mut Self {
        messages.into_iter().for_each(|message| {
            self.bytes(field, &message.0);
        });
        self
    }

    fn made(&mut self) -> Message {
        Message(std::mem::take(&mut self.0))
    }
}

pub fn encode(model: &Model) -> Vec<u8> {
    let opset = Message::default().text(1, "").int(2, super::OPSET).made();
    let entry = |(key, value): &(String, String)| Message::default().text(1, key).text(2, value).made();
    let graph = Message::default()
        .messages(1, model.nodes.iter().map(node))
        .text(2, &model.name)
        .messages(5, model.tensors.iter().map(tensor))
        .messages(11, model.inputs.iter().map(port))
        .messages(12, model.outputs.iter().map(port))
        .made();
    let mut whole = Message::default();
    whole.int(1, super::IR_VERSION).text(2, "myxtts").text(3, env!("CARGO_PKG_VERSION"));
    whole.messages(7, [graph]).messages(8, [opset]).messages(14, model.metadata.iter().map(entry));
    whole.0
}

fn node(node: &Node) -> Message {
    Message::default()
        .texts(1, node.inputs.iter().map(|value| &*value.0))
        .texts(2, node.outputs.iter().map(|value| &*value.0))
        .text(3, &node.outputs[0].0)
        .text(4, node.operator)
        .messages(5, node.attributes.iter().map(|(name, value)| attribute(name, value)))
        .made()
}

fn attribute(name: &str, value: &Attribute) -> Message {
    let mut message = Message::default();
    message.text(1, name);
    let kind = match value {
        Attribute::Float(value) => message.float(2, *value).int(20, 1),
        Attribute::Int(value) => message.int(3, *value).int(20, 2),
        Attribute::Body(inner) => message.messages(6, [body(inner)]).int(20, 5),
        Attribute::Ints(values) => {
            values.iter().for_each(|value| {
                message.int(8, *value);
            });
            message.int(20, 7)
        }
    };
    kind.made()
}

fn body(body: &Body) -> Message {
    Message::default()
        .messages(1, body.nodes.iter().map(node))
        .text(2, body.name)
        .messages(11, body.inputs.iter().map(port))
        .messages(12, body.outputs.iter().map(port))
        .made()
}

fn tensor(tensor: &Tensor) -> Message {
    let mut message = Message::default();
    tensor.shape.iter().for_each(|size| {
        message.int(1, *size as i64);
    });
    message.int(2, number(tensor.kind)).text(8, &tensor.name.0).bytes(9, &tensor.bytes).made()
}

fn port(port: &Port) -> Message {
    let dimension = |dimension: &Dimension| match dimension {
        Dimension::Fixed(size) => Message::default().int(1, *size).made(),
        Dimension::Named(name) => Message::default().text(2, name).made(),
    };
    let shape = Message::default().messages(1, port.shape.iter().map(dimension)).made();
    let of_tensor = Message::default().int(1, number(port.kind)).messages(2, [shape]).made();
    let kind = Message::default().messages(1, [of_tensor]).made();
    Message::default().text(1, &port.value.0).messages(2, [kind]).made()
}

/// Numbers of `TensorProto.DataType`.
pub fn number(kind: Kind) -> i64 {
    match kind {
        Kind::F32 => 1,
        Kind::I8 => 3,
        Kind::I64 => 7,
        Kind::Bool => 9,
        Kind::F16 => 10,
        Kind::F64 => 11,
    }
}
