//! FLAC (RFC 9639): a small encoder, and a decoder for files in memory that is several times as fast as Symphonia's.

mod bits;
mod checksum;
mod decode;
mod encode;
mod frame;
mod predict;
mod residual;
mod streaminfo;
#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::FlacEncoder;
