//! From blocks in host memory to batches on the model device: features on the data device, then a ring of slots.

mod augment;
mod batch;
mod block;
mod caps;
mod channel;
mod event;
mod features;
mod mel;
mod mel_kernel;
mod packed;
mod producer;
mod ring;
mod roles;
mod route;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use block::{allocate, block_tensor};
pub use caps::{Caps, Role};
pub use event::{Event, Interval};
pub use features::{Features, Purpose};
pub use mel::{MelExtractor, MelStats, mel_filters, stft};
pub use packed::Packed;
pub use producer::{Delivery, Producer, Trace};
pub use ring::{Feed, FeedReading, FeedTimes, OnDataDevice};
pub use roles::{Roles, gpu_of_local_rank, name};
