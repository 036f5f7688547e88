//! Opus in Ogg as it comes (RFC 7845), by `ruopus`: packets of 20 ms, ten of them a page.

use ruopus::ogg::{OpusHead, OpusTags, PageWriter};
use ruopus::{Bandwidth, OpusEncoder};

/// Samples of a packet, 20 ms.
const PACKET: usize = 960;
/// A page is sent when it has as many packets. Small, because its sound waits for it; libsndfile cannot seek in large ones.
const PAGE_PACKETS: u64 = 10;
/// Target; the codec gives speech some 80. Of LJSpeech PESQ gives 4.49 of 4.64 here and 4.34 at 48; libopus's 59 give 4.44.
const BITS_PER_SECOND: u32 = 64_000;
/// The most that a packet can have.
const MOST_BYTES: usize = 1275;
/// Names the stream where several share a file; ours is alone.
const SERIAL: u32 = 1;

/// Turns samples of one channel at 48 kHz into pages.
pub struct OggOpus {
    encoder: OpusEncoder,
    pages: PageWriter,
    /// Samples that do not fill a packet yet.
    waiting: Vec<f32>,
    packets: u64,
    samples: u64,
    /// Samples by which sound comes late out of the decoder.
    lookahead: u64,
    /// What a file begins with: both headers, each on a page of its own.
    pub header: Vec<u8>,
}

impl OggOpus {
    /// `wanted_hz`: rate of the sound before it was brought to 48 kHz, above half of which there is nothing to code.
    pub fn new(wanted_hz: u32) -> Self {
        let mut encoder = OpusEncoder::new(1);
        encoder.set_bitrate(Some(BITS_PER_SECOND));
        encoder.set_bandwidth(match wanted_hz {
            ..=8_000 => Bandwidth::NarrowBand,
            8_001..=16_000 => Bandwidth::WideBand,
            16_001..=24_000 => Bandwidth::SuperWideBand,
            _ => Bandwidth::FullBand,
        });
        let lookahead = u16::try_from(encoder.lookahead()).expect("the format has 16 bits for it");
        let head = OpusHead::family0(1, lookahead, wanted_hz);
        let tags = OpusTags { vendor: b"ruopus".to_vec(), comments: Vec::new() };
        let (mut pages, mut header) = (PageWriter::new(SERIAL), Vec::new());
        for packet in [head.to_bytes(), tags.to_bytes()] {
            pages.push(&mut header, &packet, 0, false);
            pages.flush(&mut header);
        }
        OggOpus { encoder, pages, waiting: Vec::new(), packets: 0, samples: 0, lookahead: lookahead.into(), header }
    }

    /// Appends the pages that are full.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<u8>) {
        self.samples += samples.len() as u64;
        self.waiting.extend_from_slice(samples);
        let whole = self.waiting.len() / PACKET * PACKET;
        let waiting = self.waiting.split_off(whole);
        for samples in std::mem::replace(&mut self.waiting, waiting).chunks_exact(PACKET) {
            self.packet(samples, out);
        }
    }

    /// Appends the last page, whose position cuts what fills its last packet.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let end = self.samples + self.lookahead;
        let missing = end.next_multiple_of(PACKET as u64) - self.packets * PACKET as u64;
        // At least one packet: the codec's delay is part of the end, and no packet has it yet.
        self.waiting.resize(missing as usize, 0.0);
        for samples in std::mem::take(&mut self.waiting).chunks_exact(PACKET) {
            self.packet(samples, out);
        }
    }

    fn packet(&mut self, samples: &[f32], out: &mut Vec<u8>) {
        let packet = self.encoder.encode(samples, MOST_BYTES).expect("a packet of 20 ms, and room for the largest");
        self.packets += 1;
        // Positions count samples with the codec's delay.
        let (here, end) = (self.packets * PACKET as u64, self.samples + self.lookahead);
        self.pages.push(out, &packet, here.min(end), here >= end);
        if self.packets.is_multiple_of(PAGE_PACKETS) {
            self.pages.flush(out);
        }
    }
}
