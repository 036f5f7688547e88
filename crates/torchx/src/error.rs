//! What can go wrong: split by what the caller can do about it.

use tch::TchError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// This machine cannot use CUDA: run on the CPU, or mend what the message names.
    #[error("CUDA is not available: {0}")]
    Unavailable(Unavailable),
    #[error("{device}: no such device: this machine has {count} CUDA device(s), counted from 0")]
    NoSuchDevice { device: String, count: usize },
    #[error("cuda:{device}: a memory cap of {cap_mib} MiB is outside 1 to {total_mib} MiB, what the card has")]
    Cap { device: usize, cap_mib: u64, total_mib: u64 },
    /// The closure failed, or did something that cannot be captured; the device is usable again.
    #[error("CUDA graph capture: {0}")]
    Capture(String),
    /// An allocator of LibTorch had no room: take less, or raise the cap. `on_gpu`: the caching allocator of a card, or
    /// the driver; else the host's. `asked_bytes`: where the allocator says how much it was asked for.
    #[error("{message}")]
    OutOfMemory { message: String, on_gpu: bool, asked_bytes: Option<u64> },
    /// Another process of a collective is gone or silent.
    #[error("{0}")]
    Peer(String),
    /// An argument does not fit.
    #[error("{0}")]
    Argument(String),
    /// What LibTorch said.
    #[error("{0}")]
    Torch(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("no NVIDIA driver: {0}")]
    NoDriver(String),
    #[error("the NVIDIA driver offers no GPU: {0}")]
    NoGpu(String),
    #[error("libtorch_cuda.so cannot be loaded: {0}")]
    NoLibrary(String),
    #[error("this program was built without CUDA headers")]
    BuiltWithout,
    #[error("{0}")]
    Start(String),
}

/// How LibTorch and the driver say that a card has no room.
const GPU_IS_FULL: &str = "out of memory";
/// How LibTorch and the system say that the host has none.
const HOST_IS_FULL: [&str; 3] = ["can't allocate memory", "not enough memory", "cannot allocate memory"];

impl Error {
    /// What LibTorch said. This is the one place that reads it: a lack of memory has no other sign.
    pub(crate) fn torch(message: &str) -> Self {
        let message = without_backtrace(message).to_owned();
        let said = message.to_lowercase();
        let on_gpu = said.contains(GPU_IS_FULL);
        if on_gpu || HOST_IS_FULL.iter().any(|full| said.contains(full)) {
            return Error::OutOfMemory { asked_bytes: asked_bytes(&message), on_gpu, message };
        }
        Error::Torch(message)
    }

    /// What a collective said, unless it is about memory.
    pub(crate) fn peer(self) -> Self {
        match self {
            Error::Torch(message) => Error::Peer(message),
            other => other,
        }
    }

    /// What ended a capture.
    pub(crate) fn capture(message: &str) -> Self {
        match Error::torch(message) {
            Error::OutOfMemory { message, on_gpu, asked_bytes } => {
                Error::OutOfMemory { message: format!("CUDA graph capture: {message}"), on_gpu, asked_bytes }
            }
            other => Error::Capture(other.to_string()),
        }
    }

    /// What to do about it, where one step mends it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Error::Unavailable(Unavailable::NoLibrary(_)) => {
                Some("`CUDA=1 scripts/libtorch.sh` fetches the CUDA libraries of LibTorch")
            }
            Error::Unavailable(Unavailable::BuiltWithout) => Some("run `scripts/libtorch.sh` and build again"),
            _ => None,
        }
    }
}

/// LibTorch says "Tried to allocate 20.00 MiB".
fn asked_bytes(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("Tried to allocate ")?;
    let mut words = rest.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit: u64 = match words.next()?.trim_end_matches(['.', ',']) {
        "GiB" => 1 << 30,
        "MiB" => 1 << 20,
        "KiB" => 1 << 10,
        _ => 1,
    };
    Some((number * unit as f64) as u64)
}

impl From<Unavailable> for Error {
    fn from(reason: Unavailable) -> Self {
        Error::Unavailable(reason)
    }
}

impl From<TchError> for Error {
    fn from(error: TchError) -> Self {
        match error {
            TchError::Torch(message) => Error::torch(&message),
            other => Error::Torch(other.to_string()),
        }
    }
}

/// LibTorch's message without the C++ frames that may follow it.
pub(crate) fn without_backtrace(message: &str) -> &str {
    let end = message.find("\nException raised from").unwrap_or(message.len());
    message[..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    #[test]
    fn a_torch_exception_keeps_its_message_and_loses_its_frames() {
        let a = Tensor::zeros([2, 3], (Kind::Float, tch::Device::Cpu));
        let error = Error::from(a.f_matmul(&a).unwrap_err());
        assert_eq!(error.to_string(), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
    }

    #[test]
    fn every_way_to_say_that_memory_is_short_is_understood() {
        let said = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB";
        let full = Error::OutOfMemory { message: said.into(), on_gpu: true, asked_bytes: Some(1536 << 20) };
        assert_eq!(Error::from(TchError::Torch(said.into())), full);
        let host = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried";
        assert!(matches!(Error::torch(host), Error::OutOfMemory { on_gpu: false, asked_bytes: None, .. }));
        assert_eq!(Error::torch("shapes do not match"), Error::Torch("shapes do not match".into()));
        let captured = Error::capture("CUDA error: out of memory\nException raised from x.cpp:3");
        assert!(matches!(&captured, Error::OutOfMemory { on_gpu: true, .. }));
        assert_eq!(captured.to_string(), "CUDA graph capture: CUDA error: out of memory");
    }
}
