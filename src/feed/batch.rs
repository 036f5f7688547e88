//! One batch on a device.

use super::packed::Packed;
use tch::{Device, Tensor};

pub struct Batch {
    /// `[text]`, i64.
    pub tokens: Tensor,
    /// `[frames, n_mels]`, normalised log-mel, zero in gaps; f32.
    pub mel: Tensor,
    pub text: Packed,
    pub frames: Packed,
}

impl Batch {
    /// The same values in memory of their own on `device`.
    pub fn copy_to(&self, device: Device) -> Batch {
        let copy = |tensor: &Tensor| tensor.to_device_(device, tensor.kind(), false, true);
        Batch {
            tokens: copy(&self.tokens),
            mel: copy(&self.mel),
            text: self.text.copy_to(device),
            frames: self.frames.copy_to(device),
        }
    }

    /// Overwrites this batch's memory. Addresses stay, which is what a captured graph needs; the copies are ordered on
    /// the current streams and the host does not wait for them.
    pub fn fill_from(&mut self, other: &Batch) -> Result<(), torchx::Error> {
        for (into, from) in self.tensors().into_iter().zip(other.tensors()) {
            torchx::stream::copy_async(&mut into.shallow_clone(), from)?;
        }
        Ok(())
    }

    fn tensors(&self) -> Vec<&Tensor> {
        let own = [&self.tokens, &self.mel];
        own.into_iter().chain(self.text.tensors()).chain(self.frames.tensors()).collect()
    }
}
