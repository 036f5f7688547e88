//! The fused operations as the GPU tests and the benchmark call them: inputs, and both ways to compute.

use tch::{Device, Kind, Tensor};
use torchx::Error;
use torchx::fused::{self, Dropout, Infill, Spans, Weights, plain};

/// Of the rotary case.
const HEAD_DIM: i64 = 64;
/// The longest utterance of the recordings that the trainer takes, and the gap between two.
const LONGEST: i64 = 800;
const GAP: i64 = 4;

/// Of the table of the case of embeddings: more than a block of its backward pass holds.
const ENTRIES: i64 = 300;

pub struct Case {
    pub name: &'static str,
    /// Columns of the output, in widths.
    pub parts: i64,
    /// Which inputs stay f32, as weights do.
    weights: &'static [usize],
    sizes: fn(rows: i64, width: i64, utterances: i64) -> Vec<Vec<i64>>,
    pub compute: Compute,
}

type Compute = fn(&[Tensor], &Batch, Way) -> Result<Vec<Tensor>, Error>;

/// What is no input of its own.
pub struct Batch {
    pub spans: Spans,
    pub cos: Tensor,
    pub sin: Tensor,
    /// `[rows]` each, i32.
    token_of_frame: Tensor,
    entry_of_row: Tensor,
    /// `[rows, 1]` each, f32: rows of utterances, and every third of them.
    pub mask: Tensor,
    except: Tensor,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Fused,
    Plain,
}

pub fn all() -> [Case; 17] {
    [
        Case {
            name: "adaln",
            parts: 1,
            weights: &[],
            sizes: |rows, width, utterances| vec![vec![rows, width], vec![utterances + 1, 6 * width]],
            compute: |inputs, batch, way| {
                let table = &inputs[1].split(2 * inputs[0].size()[1], 1)[0];
                let [normal, beside] = match way {
                    Way::Fused => fused::adaln(&inputs[0], table, &batch.spans)?,
                    Way::Plain => [plain::adaln(&inputs[0], table, &batch.spans)?, inputs[0].shallow_clone()],
                };
                Ok(vec![normal.f_add(&beside)?])
            },
        },
        Case {
            name: "gated_add",
            parts: 1,
            weights: &[],
            sizes: |rows, width, utterances| {
                vec![vec![rows, width], vec![rows, width], vec![utterances + 1, 6 * width]]
            },
            compute: |inputs, batch, way| {
                let parts = inputs[2].chunk(6, 1);
                let gated_add = if way == Way::Fused { fused::gated_add } else { plain::gated_add };
                Ok(vec![gated_add(&inputs[0], &inputs[1], &parts[2], &batch.spans)?])
            },
        },
        Case {
            name: "depthwise",
            parts: 1,
            weights: &[1, 2],
            sizes: |rows, width, _| vec![vec![rows, width], vec![width, 1, 7], vec![width]],
            compute: |inputs, batch, way| {
                let depthwise = if way == Way::Fused { fused::depthwise } else { plain::depthwise };
                Ok(vec![depthwise(&inputs[0], &inputs[1], &inputs[2], &batch.spans)?])
            },
        },
        Case {
            name: "rotary",
            parts: 3,
            weights: &[],
            sizes: |rows, width, _| vec![vec![rows, 3 * width]],
            compute: |inputs, batch, way| {
                let rotary = if way == Way::Fused { fused::rotary } else { plain::rotary };
                let qkv = inputs[0].f_view([inputs[0].size()[0], 3, -1, HEAD_DIM])?;
                Ok(rotary(&qkv, &batch.cos, &batch.sin)?.into())
            },
        },
        Case {
            name: "norm",
            parts: 2,
            weights: &[1, 2],
            sizes: |rows, width, _| vec![vec![rows, width], vec![width], vec![width]],
            compute: |inputs, _, way| {
                let norm = if way == Way::Fused { fused::norm } else { plain::norm };
                Ok(norm(&inputs[0], weights(inputs, 1))?.into())
            },
        },
        Case {
            name: "residual",
            parts: 1,
            weights: &[],
            sizes: |rows, width, _| vec![vec![rows, width]; 2],
            compute: |inputs, _, way| {
                let residual = if way == Way::Fused { fused::residual } else { plain::residual };
                Ok(vec![residual(&inputs[0], &inputs[1], &kept(&inputs[0])?)?])
            },
        },
        Case {
            name: "feed_forward",
            parts: 1,
            weights: &[1, 2, 3, 4, 5, 6],
            sizes: |rows, width, _| {
                let [widen, narrow] = [vec![4 * width, width, 3], vec![width, 4 * width, 3]];
                vec![vec![rows, width], vec![width], vec![width], widen, vec![4 * width], narrow, vec![width]]
            },
            compute: |inputs, batch, way| {
                let feed_forward = if way == Way::Fused { fused::feed_forward } else { plain::feed_forward };
                let [norm, widen, narrow] = [1, 3, 5].map(|at| weights(inputs, at));
                let (widen, narrow) = (scaled(widen)?, scaled(narrow)?);
                let made = feed_forward(&inputs[0], norm, of(&widen), of(&narrow), &kept(&inputs[0])?, &batch.spans)?;
                Ok(vec![made.f_mul(&batch.mask(&made)?)?])
            },
        },
        Case {
            name: "conv_norm",
            parts: 2,
            weights: &[1, 2, 3, 4],
            sizes: |rows, width, _| {
                vec![vec![rows, width], vec![width, width, 5], vec![width], vec![width], vec![width]]
            },
            compute: |inputs, batch, way| {
                let conv_norm = if way == Way::Fused { fused::conv_norm } else { plain::conv_norm };
                let (conv, dropout) = (scaled(weights(inputs, 1))?, kept(&inputs[0])?);
                [true, false]
                    .map(|add| {
                        let made = conv_norm(&inputs[0], of(&conv), weights(inputs, 3), add, &dropout, &batch.spans)?;
                        Ok(made.f_mul(&batch.mask(&made)?)?)
                    })
                    .into_iter()
                    .collect()
            },
        },
        Case {
            name: "bias_gelu",
            parts: 4,
            weights: &[1],
            sizes: |rows, width, _| vec![vec![rows, 4 * width], vec![4 * width]],
            compute: |inputs, _, way| {
                let bias_gelu = if way == Way::Fused { fused::bias_gelu } else { plain::bias_gelu };
                Ok(vec![bias_gelu(&inputs[0], &inputs[1])?])
            },
        },
        Case {
            name: "linear",
            parts: 1,
            weights: &[],
            // Few channels go in, so that rounding the sums of the output stays small.
            sizes: |rows, width, _| vec![vec![rows, 16], vec![width, 16], vec![width]],
            compute: |inputs, _, way| {
                let linear = if way == Way::Fused { fused::linear } else { plain::linear };
                Ok(vec![linear(&inputs[0], &inputs[1], Some(&inputs[2]))?])
            },
        },
        Case {
            name: "infill",
            parts: 1,
            weights: &[],
            sizes: |rows, width, _| vec![vec![rows, width], vec![width, 80], vec![width], vec![width, 80], vec![width]],
            compute: |inputs, _, way| {
                let infill = if way == Way::Fused { fused::infill } else { plain::infill };
                let (rows, like) = (inputs[0].size()[0], (Kind::Float, inputs[0].device()));
                let even =
                    |step: i64| Tensor::arange(rows, like).f_remainder(step as f64)?.f_lt(2.0)?.f_to_kind(Kind::Float);
                let frames = (Tensor::arange(rows * 80, like) * 0.37).f_sin()?.f_view([rows, 80])?;
                let (given, said) = (even(3)?.f_unsqueeze(1)?, even(5)?.f_unsqueeze(1)?);
                Ok(vec![infill(&Infill {
                    noisy: &frames,
                    clean: &frames.f_cos()?,
                    given: &given,
                    content: &inputs[0],
                    said: &said,
                    noisy_layer: [&inputs[1], &inputs[2]],
                    clean_layer: [&inputs[3], &inputs[4]],
                })?])
            },
        },
        Case {
            name: "bias_leaky",
            parts: 1,
            weights: &[1],
            sizes: |rows, width, _| vec![vec![rows, width], vec![width]],
            compute: |inputs, _, way| {
                let bias_leaky = if way == Way::Fused { fused::bias_leaky } else { plain::bias_leaky };
                Ok(vec![bias_leaky(&inputs[0], &inputs[1], 0.1)?])
            },
        },
        // The distance times a row of its own, so that it has as many columns as a benchmark wants.
        Case {
            name: "bias_leaky_matched",
            parts: 2,
            weights: &[1],
            sizes: |rows, width, _| vec![vec![rows, width], vec![width], vec![rows, width]],
            compute: |inputs, _, way| {
                let matched = if way == Way::Fused { fused::bias_leaky_matched } else { plain::bias_leaky_matched };
                let [made, distance] = matched(&inputs[0], &inputs[1], 0.1, &inputs[2].f_detach()?)?;
                let spread = inputs[2].f_mul(&distance.f_to_kind(inputs[2].kind())?)?;
                Ok(vec![made, spread])
            },
        },
        // Tokens of three frames each; a token's frames show as a factor of its row.
        Case {
            name: "lay",
            parts: 3,
            weights: &[],
            sizes: |rows, width, _| vec![vec![rows, 2 * width]],
            compute: |inputs, batch, way| {
                let (spans, width) = (&batch.spans, inputs[0].size()[1] / 2);
                let laid = match way {
                    Way::Fused => fused::lay(&inputs[0], &batch.token_of_frame, width, spans, spans)?,
                    Way::Plain => plain::lay(&inputs[0], &batch.token_of_frame, width, spans)?,
                };
                let kind = inputs[0].kind();
                let lasted = inputs[0].f_narrow(1, 0, width)?.f_mul(&laid.lasted.f_to_kind(kind)?)?;
                Ok(vec![laid.mean.f_to_kind(kind)?, laid.content, lasted])
            },
        },
        Case {
            name: "embed",
            parts: 1,
            weights: &[0],
            sizes: |rows, width, _| vec![vec![ENTRIES, width], vec![rows, width]],
            compute: |inputs, batch, way| {
                let embed = if way == Way::Fused { fused::embed } else { plain::embed };
                let rows = embed(&inputs[0], &batch.entry_of_row, 1.5, inputs[1].kind())?;
                Ok(vec![rows.f_add(&inputs[1])?])
            },
        },
        // Losses as the distance above.
        Case {
            name: "square_loss",
            parts: 1,
            weights: &[],
            sizes: |rows, width, _| vec![vec![rows, width], vec![rows, width]],
            compute: |inputs, batch, way| {
                let square_loss = if way == Way::Fused { fused::square_loss } else { plain::square_loss };
                let target = inputs[1].f_detach()?.f_to_kind(Kind::Float)?;
                // So large that its gradients are not lost beside the tolerance.
                let factor = target.numel() as f64;
                let loss = square_loss(&inputs[0], &target, &batch.mask, Some(&batch.except), factor)?;
                Ok(vec![spread(&loss, &inputs[1])?])
            },
        },
        Case {
            name: "count_loss",
            parts: 1,
            weights: &[0],
            sizes: |rows, width, _| vec![vec![rows, 1], vec![rows, width]],
            compute: |inputs, batch, way| {
                let count_loss = if way == Way::Fused { fused::count_loss } else { plain::count_loss };
                let counts = batch.entry_of_row.f_to_kind(Kind::Float)?.f_unsqueeze(1)?.f_mul(&batch.mask)?;
                let loss = count_loss(&inputs[0], &counts, &batch.mask)?.f_log()?;
                Ok(vec![spread(&loss, &inputs[1])?])
            },
        },
    ]
}

fn weights(inputs: &[Tensor], at: usize) -> Weights<'_> {
    Weights { weight: &inputs[at], bias: &inputs[at + 1] }
}

/// A convolution whose output is about as large as its input, as those of a network are; but its channels are well above
/// or below zero, for a rectifier's gradient at zero would hang on the last bit.
fn scaled(conv: Weights) -> Result<[Tensor; 2], Error> {
    let inputs = conv.weight.f_select(0, 0)?.numel() as f64;
    let bias = conv.bias.f_add(&conv.bias.f_sign()?.f_mul_scalar(8.0)?)?;
    Ok([conv.weight.f_mul_scalar(inputs.powf(-0.5))?, bias])
}

fn of([weight, bias]: &[Tensor; 2]) -> Weights<'_> {
    Weights { weight, bias }
}

/// Dropout that drops nothing.
fn kept(x: &Tensor) -> Result<Dropout, Error> {
    Dropout::new(0.0, x.device())
}

impl Batch {
    /// Nobody says what convolutions leave in gaps.
    fn mask(&self, like: &Tensor) -> Result<Tensor, Error> {
        Ok(self.spans.owner.f_lt(self.spans.utterances())?.f_unsqueeze(1)?.f_to_kind(like.kind())?)
    }
}

/// A number times a row of its own, in f32: the gradient of the number is a sum that bf16 would spoil.
fn spread(loss: &Tensor, rows: &Tensor) -> Result<Tensor, Error> {
    Ok(rows.f_to_kind(Kind::Float)?.f_mul(loss)?.f_to_kind(rows.kind())?)
}

impl Case {
    /// Numbers that `kind` holds exactly, on the CPU; the same for the same seed.
    pub fn inputs(&self, rows: i64, width: i64, batch: &Batch, kind: Kind) -> Vec<Tensor> {
        let sizes = (self.sizes)(rows, width, batch.spans.utterances());
        sizes.iter().map(|size| Tensor::randn(size, (Kind::Float, Device::Cpu)).to_kind(kind)).collect()
    }

    /// Inputs that collect gradients, of which weights are f32.
    pub fn leaves(&self, inputs: &[Tensor], kind: Kind, device: Device) -> Vec<Tensor> {
        let kind_of = |index| if self.weights.contains(&index) { Kind::Float } else { kind };
        let leaf = |(index, input): (usize, &Tensor)| {
            input.to_device(device).to_kind(kind_of(index)).copy().set_requires_grad(true)
        };
        inputs.iter().enumerate().map(leaf).collect()
    }

    /// Outputs, and gradients of a loss whose gradient by them is `upstream`.
    pub fn run(&self, leaves: &[Tensor], upstream: &Tensor, batch: &Batch, way: Way) -> Result<Vec<Tensor>, Error> {
        let mut results = (self.compute)(leaves, batch, way)?;
        let grads = backward(&results, leaves, upstream)?;
        results.extend(grads);
        Ok(results.iter().map(Tensor::detach).collect())
    }
}

/// `upstream`: `[rows, columns]`, of which each output takes its own columns, so that what is zero in gaps stays so.
pub fn backward(outputs: &[Tensor], leaves: &[Tensor], upstream: &Tensor) -> Result<Vec<Tensor>, Error> {
    let parts = upstream.f_chunk(outputs.len() as i64, 1)?;
    let mut losses = vec![];
    for (output, part) in outputs.iter().zip(&parts) {
        losses.push(output.f_reshape(-1)?.f_dot(&part.f_reshape(-1)?)?);
    }
    Ok(Tensor::f_run_backward(&losses, leaves, false, false)?)
}

/// As many utterances as fit into the rows, with lengths that vary, and one that is not there.
fn packed(rows: i64) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
    let lens: Vec<i64> = (0..)
        .map(|index| (index * 331) % LONGEST.min(rows / 3) + 1)
        .scan(0, |end, len| {
            *end += len + GAP;
            (*end <= rows).then_some(len)
        })
        .chain([0])
        .collect();
    let mut owner = vec![lens.len() as i64; rows as usize];
    let (mut starts, mut start) = (vec![], 0);
    for (index, &len) in lens.iter().enumerate() {
        starts.push(if len > 0 { start } else { 0 });
        owner[start as usize..][..len as usize].fill(index as i64);
        start += len + GAP * i64::from(len > 0);
    }
    (owner, starts, lens)
}

pub fn batch(rows: i64, device: Device) -> Batch {
    let (owner, starts, lens) = packed(rows);
    let list = |values: &[i64]| Tensor::from_slice(values).to_device(device);
    let spans = Spans::new(&list(&owner), &list(&starts), &list(&lens)).expect("three lists");
    let angle = Tensor::arange(rows * HEAD_DIM / 2, (Kind::Float, device)).view([rows, -1]) * 1e-3;
    let token = |row: usize| match owner[row] as usize {
        gap if gap == lens.len() => 0,
        // The first of each utterance lasts long, as with a model that is not trained yet.
        own => starts[own] as i32 + (row as i32 - starts[own] as i32 - 100).max(0) / 3,
    };
    let tokens: Vec<i32> = (0..rows as usize).map(token).collect();
    // Half of the rows take one entry, as texts are full of spaces.
    let entries: Vec<i32> =
        (0..rows as i32).map(|row| if row % 2 == 0 { 5 } else { row * 37 % ENTRIES as i32 }).collect();
    let ints = |values: &[i32]| Tensor::from_slice(values).to_device(device);
    let (token_of_frame, entry_of_row) = (ints(&tokens), ints(&entries));
    let mask = spans.owner.lt(spans.utterances()).to_kind(Kind::Float).unsqueeze(1);
    let third = Tensor::arange(rows, (Kind::Int, device)).remainder(3).eq(0).to_kind(Kind::Float).unsqueeze(1);
    let except = &mask * third;
    Batch { spans, cos: angle.cos(), sin: angle.sin(), token_of_frame, entry_of_row, mask, except }
}
