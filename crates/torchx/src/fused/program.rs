//! The kernels of an operation, compiled once for each device, kind and whatever else its source depends on.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use tch::{Device, Kind};

use crate::error::Error;
use crate::kernel::compile;
use crate::shim::{Launch, RawKernel, api};

const PRELUDE: &str = include_str!("prelude.cuh");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Adaln { width: i64 },
    GatedAdd,
    Depthwise { taps: i64 },
    Rotary,
    BiasGelu,
    BiasLeaky { matched: bool },
    Lay,
    Embed,
    SquareLoss,
    CountLoss,
}

impl Source {
    /// A wider row would not fit a warp's registers.
    pub const WIDEST_NORM: i64 = 1024;

    fn text(self) -> String {
        let (define, text) = match self {
            Source::Adaln { width } => (format!("#define WIDTH {width}\n"), include_str!("adaln.cu")),
            Source::GatedAdd => (String::new(), include_str!("gated_add.cu")),
            Source::Depthwise { taps } => (format!("#define TAPS {taps}\n"), include_str!("depthwise.cu")),
            Source::Rotary => (String::new(), include_str!("rotary.cu")),
            Source::BiasGelu => (String::new(), include_str!("bias_gelu.cu")),
            Source::BiasLeaky { matched } => {
                (if matched { "#define MATCHED\n" } else { "" }.to_string(), include_str!("bias_leaky.cu"))
            }
            Source::Lay => (String::new(), include_str!("lay.cu")),
            Source::Embed => (String::new(), include_str!("embed.cu")),
            Source::SquareLoss => (String::new(), include_str!("square_loss.cu")),
            Source::CountLoss => (String::new(), include_str!("count_loss.cu")),
        };
        [define.as_str(), PRELUDE, text].concat()
    }

    /// The kernel that adds up what the blocks of a pass summed; some sum nothing.
    fn reduction(self) -> &'static str {
        match self {
            Source::Adaln { .. } | Source::GatedAdd | Source::Rotary | Source::Lay | Source::CountLoss => {
                "sum_segments"
            }
            Source::Depthwise { .. } => "sum_taps",
            Source::BiasGelu | Source::BiasLeaky { .. } => "sum_bias",
            Source::Embed => "sum_stretches",
            Source::SquareLoss => "finish",
        }
    }
}

/// Mirror of the C++ struct of the same name.
#[repr(C)]
pub(crate) struct Program {
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
    let names = ["forward", "backward", source.reduction()];
    let [forward, backward, reduce] = compile(&[define, &source.text()].concat(), names, device)?;
    let program = Box::leak(Box::new(Program { launch: api()?.kernel_launch, forward, backward, reduce }));
    programs.insert(key, program);
    Ok(program)
}
