//! The few LibTorch features that `tch` does not bind: CUDA graphs, streams and events, the caching allocator, fused
//! AdamW, gradient clipping without a host round trip, attention over packed sequences, run-time kernels, a few
//! operations fused by them, collectives over several processes, and a record of what the GPUs ran. Also kernels for the CPU,
//! where LibTorch's own are slow.
//!
//! The program links to LibTorch's CPU library alone. [`cuda::load`] opens the CUDA library where there is one: call
//! it first thing. No C++ exception gets out: each becomes an [`Error`].

pub mod activity;
pub mod adamw;
mod attention;
mod clip;
pub mod collectives;
mod cpu;
pub mod cuda;
mod determinism;
mod error;
mod ffi;
mod foreach;
pub mod fused;
pub mod gradients;
mod graph;
mod host;
mod kernel;
pub mod memory;
mod named;
mod narrow;
mod panic;
mod shim;
pub mod stream;

pub use adamw::AdamW;
pub use attention::varlen_attention;
pub use clip::clip_grad_norm;
pub use cpu::int8::{Int8Weight, Then, has_int8};
pub use cpu::parallel::compute_alone;
pub use determinism::{is_deterministic, require_deterministic, require_full_f32, with_rounded_products};
pub use error::{Error, Unavailable};
pub use foreach::{lerp, scale_grad};
pub use graph::{Graph, Pool};
pub use host::{HostBytes, keep_freed_memory};
pub use kernel::{Arg, Kernel};
pub use named::named_parameters;
pub use narrow::{Copies, Narrowed, narrowed, product, with_products};
pub use panic::{Unfinished, exception, exit_now, finish};
pub use stream::{Event, Stream, StreamGuard};
