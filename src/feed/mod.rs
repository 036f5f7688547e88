//! From host batches to batches on the model device: mel features on the data device, then a ring of slots.

mod batch;
mod mel;
mod packed;
mod ring;
mod roles;

pub use batch::Batch;
pub use mel::{MelExtractor, MelStats, mel_filters, stft};
pub use packed::Packed;
pub use ring::{Delivery, Feed, Options, Producer};
pub use roles::{Roles, apply_caps};
