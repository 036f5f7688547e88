//! The kernels of an operation, compiled once for each device, kind and whatever else its source depends on.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use tch::{Device, Kind};

use crate::error::Error;
use crate::kernel::compile;
use crate::shim::{Launch, Multiply, RawKernel, api};

const PRELUDE: &str = include_str!("prelude.cuh");
const TENSOR_CORES: &str = include_str!("mma.cuh");
const WARP_GROUPS: &str = include_str!("wgmma.cuh");
const ROW: &str = include_str!("row.cuh");
const DROPOUT: &str = include_str!("dropout.cuh");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Adaln { width: i64 },
    GatedAdd,
    Depthwise { taps: i64 },
    Rotary,
    BiasGelu,
    BiasLeaky { matched: bool },
    Attention,
    Plane(Plane),
    PlaneWeight(Plane),
    Linear,
    Infill,
    Norm { width: i64, taps: i64, rectified: bool },
    Fold { taps: i64 },
    Product { taps: i64 },
    Lay,
    Embed,
    SquareLoss,
    CountLoss,
}

/// A convolution over time and frequency: channels that lie in a place, kernel and strides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Plane {
    pub from: i64,
    pub kernel: [i64; 2],
    pub stride: [i64; 2],
}

impl Plane {
    fn text(self, kernels: &str) -> String {
        let Plane { from, kernel: [kt, kf], stride: [st, sf] } = self;
        let define =
            format!("#define FROM {from}\n#define KT {kt}\n#define KF {kf}\n#define ST {st}\n#define SF {sf}\n");
        [&define, PRELUDE, TENSOR_CORES, include_str!("plane.cuh"), kernels].concat()
    }
}

impl Source {
    /// A wider row would not fit a warp's registers.
    pub const WIDEST_NORM: i64 = 1024;

    fn text(self) -> String {
        let (define, text) = match self {
            Source::Adaln { width } => {
                return [&format!("#define WIDTH {width}\n"), PRELUDE, ROW, include_str!("adaln.cu")].concat();
            }
            Source::GatedAdd => (String::new(), include_str!("gated_add.cu")),
            Source::Depthwise { taps } => (format!("#define TAPS {taps}\n"), include_str!("depthwise.cu")),
            Source::Rotary => (String::new(), include_str!("rotary.cu")),
            Source::BiasGelu => (String::new(), include_str!("bias_gelu.cu")),
            Source::BiasLeaky { matched } => {
                (if matched { "#define MATCHED\n" } else { "" }.to_string(), include_str!("bias_leaky.cu"))
            }
            Source::Linear => (String::new(), include_str!("linear.cu")),
            Source::Infill => (String::new(), include_str!("infill.cu")),
            Source::Plane(plane) => return plane.text(include_str!("plane.cu")),
            Source::PlaneWeight(plane) => return plane.text(include_str!("plane_weight.cu")),
            Source::Attention => return [PRELUDE, TENSOR_CORES, WARP_GROUPS, include_str!("attention.cu")].concat(),
            Source::Norm { width, taps, rectified } => {
                let rectified = if rectified { "#define RECTIFIED\n" } else { "" };
                let define = format!("#define WHOLE_VECTORS\n#define WIDTH {width}\n#define TAPS {taps}\n{rectified}");
                return [define.as_str(), PRELUDE, ROW, DROPOUT, include_str!("norm.cu")].concat();
            }
            Source::Fold { taps } => {
                return [&format!("#define TAPS {taps}\n"), PRELUDE, DROPOUT, include_str!("fold.cu")].concat();
            }
            Source::Product { taps } => (format!("#define TAPS {taps}\n"), include_str!("product.cu")),
            Source::Lay => (String::new(), include_str!("lay.cu")),
            Source::Embed => (String::new(), include_str!("embed.cu")),
            Source::SquareLoss => (String::new(), include_str!("square_loss.cu")),
            Source::CountLoss => (String::new(), include_str!("count_loss.cu")),
        };
        [define.as_str(), PRELUDE, text].concat()
    }

    /// Forward, backward, and the kernel that adds up what the blocks of the backward pass summed; some sum nothing,
    /// attention has one that goes before its backward pass, and planes one that lays their weights.
    fn kernels(self) -> [&'static str; 3] {
        match self {
            Source::Adaln { .. } | Source::GatedAdd | Source::Rotary | Source::Lay | Source::CountLoss => {
                ["forward", "backward", "sum_segments"]
            }
            Source::Embed => ["forward", "backward", "sum_stretches"],
            Source::SquareLoss => ["forward", "backward", "finish"],
            Source::Depthwise { .. } => ["forward", "backward", "sum_taps"],
            Source::BiasGelu | Source::BiasLeaky { .. } | Source::Linear | Source::Infill | Source::Norm { .. } => {
                ["forward", "backward", "sum_bias"]
            }
            Source::Attention => ["forward", "backward", "prepare"],
            Source::Plane(_) => ["forward", "backward", "lay"],
            Source::PlaneWeight(_) => ["forward", "backward", "sum_bias"],
            Source::Fold { .. } => ["fold", "unfold", "sum_bias"],
            Source::Product { .. } => ["lay", "unlay", "rectify"],
        }
    }
}

/// Mirror of the C++ struct of the same name.
#[repr(C)]
pub(crate) struct Program {
    multiply: Multiply,
    launch: Launch,
    forward: RawKernel,
    backward: RawKernel,
    reduce: RawKernel,
}

// SAFETY: never written after it is made; loaded functions may be launched from any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

/// What is compiled, whether for bf16, and the device's number.
type Key = (Source, bool, i32);

/// Stays for good: autograd nodes point to it, and nobody knows when the last of them goes.
pub(super) fn program(source: Source, kind: Kind, device: Device) -> Result<&'static Program, Error> {
    static PROGRAMS: LazyLock<Mutex<HashMap<Key, &Program>>> = LazyLock::new(Default::default);
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (source, kind == Kind::BFloat16, crate::cuda::index(device)?);
    if let Some(&program) = programs.get(&key) {
        return Ok(program);
    }
    let define = if key.1 { "#define BF16\n" } else { "" };
    let [forward, backward, reduce] = compile(&[define, &source.text()].concat(), source.kernels(), device)?;
    let program = Box::leak(Box::new(Program {
        multiply: api()?.multiply,
        launch: api()?.kernel_launch,
        forward,
        backward,
        reduce,
    }));
    programs.insert(key, program);
    Ok(program)
}
