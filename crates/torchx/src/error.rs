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
    #[error(
        "libtorch_cuda.so cannot be loaded: {0}\nhint: `CUDA=1 scripts/libtorch.sh` fetches the CUDA libraries of LibTorch"
    )]
    NoLibrary(String),
    #[error("this program was built without CUDA headers\nhint: run `scripts/libtorch.sh` and build again")]
    BuiltWithout,
    #[error("{0}")]
    Start(String),
}

impl From<Unavailable> for Error {
    fn from(reason: Unavailable) -> Self {
        Error::Unavailable(reason)
    }
}

impl From<TchError> for Error {
    fn from(error: TchError) -> Self {
        match error {
            TchError::Torch(message) => Error::Torch(without_backtrace(&message).to_owned()),
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
}
