//! TensorBoard event files: length-framed records (the TFRecord format) that each hold one `Event` protobuf message.
//!
//! The few messages needed are encoded by hand from `event.proto`, `summary.proto` and `tensor.proto`; field numbers
//! are named beside each call.

use crate::picture::Picture;
use host::audio;
use host::run_log::unix_time_s;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Appends events to one file; what has been written is safe from a crash of the program after [`EventWriter::flush`].
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// Makes `events.out.tfevents.<secs>.<host>.<pid>` in `dir`. TensorBoard reads such files in order of their names.
    pub fn create(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(|e| at(dir, e))?;
        let (path, file) = new_file(dir)?;
        let mut writer = Self { file: BufWriter::new(file), path };
        writer.record(event(0).bytes(3, b"brain.Event:2"))?; // file_version
        writer.flush()?;
        Ok(writer)
    }

    /// Tells TensorBoard that a run starts over at `step`: what earlier files hold from there on is not shown.
    pub fn restart(&mut self, step: u64) -> io::Result<()> {
        const START: u64 = 1;
        self.record(event(step).message(7, Message::default().varint(1, START))) // session_log.status
    }

    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> io::Result<()> {
        self.summary(step, tagged(tag).float(2, value as f32)) // simple_value
    }

    pub fn image(&mut self, tag: &str, step: u64, picture: &Picture) -> io::Result<()> {
        const RGB: u64 = 3;
        let image = Message::default()
            .varint(1, u64::from(picture.height))
            .varint(2, u64::from(picture.width))
            .varint(3, RGB) // colorspace
            .bytes(4, &picture.png());
        self.summary(step, tagged(tag).message(4, image))
    }

    /// `samples`: mono, -1..1.
    pub fn audio(&mut self, tag: &str, step: u64, samples: &[f32], rate_hz: u32) -> io::Result<()> {
        let audio = Message::default()
            .float(1, rate_hz as f32)
            .varint(2, 1) // num_channels
            .varint(3, samples.len() as u64)
            .bytes(4, &audio::wav_bytes(samples, rate_hz))
            .bytes(5, b"audio/wav");
        self.summary(step, tagged(tag).message(6, audio))
    }

    /// TensorBoard shows `text` as Markdown.
    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> io::Result<()> {
        const DT_STRING: u64 = 7;
        let plugin = Message::default().bytes(1, b"text"); // plugin_name
        let tensor = Message::default().varint(1, DT_STRING).bytes(2, &[]).bytes(8, text.as_bytes()); // a 0-d string
        self.summary(step, tagged(tag).message(9, Message::default().message(1, plugin)).message(8, tensor))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|e| at(&self.path, e))
    }

    fn summary(&mut self, step: u64, value: Message) -> io::Result<()> {
        self.record(event(step).message(5, Message::default().message(1, value)))
    }

    fn record(&mut self, event: Message) -> io::Result<()> {
        let length = (event.0.len() as u64).to_le_bytes();
        [&length[..], &masked_crc32c(&length).to_le_bytes(), &event.0, &masked_crc32c(&event.0).to_le_bytes()]
            .into_iter()
            .try_for_each(|part| self.file.write_all(part))
            .map_err(|e| at(&self.path, e))
    }
}

/// A second writer of one process in one second gets a name of its own that sorts after the first.
fn new_file(dir: &Path) -> io::Result<(PathBuf, File)> {
    let name = format!("events.out.tfevents.{:010}.{}.{}", unix_time_s() as u64, host(), std::process::id());
    for attempt in 0.. {
        let path = dir.join(if attempt == 0 { name.clone() } else { format!("{name}.{attempt}") });
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            opened => return opened.map_err(|e| at(&path, e)).map(|file| (path, file)),
        }
    }
    unreachable!("the attempts do not end")
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn event(step: u64) -> Message {
    Message::default().double(1, unix_time_s()).varint(2, step)
}

fn tagged(tag: &str) -> Message {
    Message::default().bytes(1, tag.as_bytes())
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(self, field: u8, value: u64) -> Self {
        self.key(field, 0).raw_varint(value)
    }

    fn double(mut self, field: u8, value: f64) -> Self {
        self = self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        self = self.key(field, 2).raw_varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u8, inner: Message) -> Self {
        self.bytes(field, &inner.0)
    }

    fn float(mut self, field: u8, value: f32) -> Self {
        self = self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn key(self, field: u8, wire_type: u64) -> Self {
        self.raw_varint(u64::from(field) << 3 | wire_type)
    }

    fn raw_varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
}

/// Rotated and shifted, because a CRC stored inside data that is itself checked by a CRC weakens both.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    const CASTAGNOLI_REVERSED: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ CASTAGNOLI_REVERSED } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4; the last one is the check value of the CRC catalogues.
    #[test]
    fn crc32c_matches_the_published_vectors() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(&(0..32).rev().collect::<Vec<u8>>()), 0x113f_db5c);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_was_written_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let picture = Picture::heatmap(&[0.0, 1.0, 2.0, 3.0], 2, 2);
        let samples = [0.0, 0.5, -0.5];
        let mut writer = EventWriter::create(dir.path()).unwrap();
        writer.scalar("loss", 300, 1.5).unwrap();
        writer.image("mel", 301, &picture).unwrap();
        writer.audio("voice", 302, &samples, 22_050).unwrap();
        writer.text("config", 303, "a: 1").unwrap();
        writer.restart(304).unwrap();
        writer.flush().unwrap();

        let events = read(&writer.path);
        let steps: Vec<u64> = events.iter().map(|e| e.number(2)).collect();
        assert_eq!(steps, [0, 300, 301, 302, 303, 304]);
        assert!((f64::from_bits(events[1].number(1)) - unix_time_s()).abs() < 60.0);
        assert_eq!(events[0].bytes(3), b"brain.Event:2");

        let value = |i: usize| events[i].inner(5).inner(1);
        assert_eq!((value(1).bytes(1), f32::from_bits(value(1).number(2) as u32)), (&b"loss"[..], 1.5));
        let image = value(2).inner(4);
        assert_eq!((image.number(1), image.number(2)), (picture.height.into(), picture.width.into()));
        assert_eq!(image.bytes(4), picture.png());
        let audio = value(3).inner(6);
        assert_eq!((f32::from_bits(audio.number(1) as u32), audio.number(3)), (22_050.0, 3));
        assert_eq!(audio.bytes(4), audio::wav_bytes(&samples, 22_050));
        assert_eq!(value(4).inner(8).bytes(8), b"a: 1");
        assert_eq!(value(4).inner(9).inner(1).bytes(1), b"text");
        assert_eq!(events[5].inner(7).number(1), 1);
    }

    #[test]
    fn two_writers_in_one_second_get_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (EventWriter::create(dir.path()).unwrap(), EventWriter::create(dir.path()).unwrap());
        assert!(first.path < second.path);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let dir = file.path().join("logs");
        let error = EventWriter::create(&dir).err().unwrap();
        assert!(error.to_string().starts_with(&dir.display().to_string()), "{error}");
    }

    /// A reader written from the format descriptions, sharing nothing with the writer but the tested CRC.
    #[derive(Debug, Default)]
    struct Fields(Vec<(u64, u64, Vec<u8>)>);

    impl Fields {
        fn parse(mut bytes: &[u8]) -> Self {
            let mut fields = Self::default();
            while !bytes.is_empty() {
                let key = take_varint(&mut bytes);
                let (number, payload) = match key & 7 {
                    0 => (take_varint(&mut bytes), vec![]),
                    1 => (u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap()), vec![]),
                    5 => (u32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap()).into(), vec![]),
                    _ => {
                        let length = take_varint(&mut bytes) as usize;
                        (0, take(&mut bytes, length).to_vec())
                    }
                };
                fields.0.push((key >> 3, number, payload));
            }
            fields
        }

        fn get(&self, field: u64) -> &(u64, u64, Vec<u8>) {
            self.0.iter().find(|f| f.0 == field).unwrap_or_else(|| panic!("field {field} in {self:?}"))
        }

        fn number(&self, field: u64) -> u64 {
            self.get(field).1
        }

        fn bytes(&self, field: u64) -> &[u8] {
            &self.get(field).2
        }

        fn inner(&self, field: u64) -> Fields {
            Fields::parse(self.bytes(field))
        }
    }

    fn read(path: &Path) -> Vec<Fields> {
        let file = fs::read(path).unwrap();
        let (mut rest, mut events) = (&file[..], vec![]);
        while !rest.is_empty() {
            let length = checked(&mut rest, 8);
            let event = checked(&mut rest, u64::from_le_bytes(length.try_into().unwrap()) as usize);
            events.push(Fields::parse(&event));
        }
        events
    }

    /// Takes `length` bytes and the CRC after them, unmasked as the format describes it.
    fn checked(rest: &mut &[u8], length: usize) -> Vec<u8> {
        let data = take(rest, length).to_vec();
        let masked = u32::from_le_bytes(take(rest, 4).try_into().unwrap()).wrapping_sub(0xa282_ead8);
        assert_eq!(masked.rotate_left(15), crc32c(&data));
        data
    }

    fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (head, tail) = rest.split_at(count);
        *rest = tail;
        head
    }

    fn take_varint(rest: &mut &[u8]) -> u64 {
        let byte = take(rest, 1)[0];
        let more = if byte < 0x80 { 0 } else { take_varint(rest) };
        more << 7 | u64::from(byte & 0x7f)
    }
}
