//! Lhotse's shar: `cuts.000000.jsonl.gz` says what is said, `recording.000000.tar` holds the sound of each cut in the same
//! order, cut already. Members are `<cut>.flac` and `<cut>.json`, or `<cut>.nodata` where there is none.

use super::gzip::Unpacked;
use super::rows::{Contents, RowAudio, ShardRow};
use super::webdataset::walk;
use super::{MAX_MEMBER_BYTES, Shard, why};
use crate::corpus::manifest::{Object, field};
use crate::corpus::recordings::{inside, without_extension};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

/// Far above any cut.
const MAX_LINE_BYTES: u64 = 1 << 20;
const MAX_CUTS: usize = 4_000_000;

pub(super) fn read(cuts: &Arc<Shard>, sound: &Arc<Shard>) -> Contents {
    let mut places = HashMap::new();
    let mut rows = vec![];
    let walked = walk(sound, &mut |_, member, number| {
        match inside(&member.name) {
            Ok(name) if places.len() < MAX_CUTS => {
                let place = Some((member.at, member.bytes)).filter(|(_, bytes)| *bytes <= MAX_MEMBER_BYTES);
                if let (Some(key), Some(place)) = (without_extension(&name), place) {
                    places.entry(key.to_owned()).or_insert(place);
                }
            }
            Ok(_) => return Err(std::io::Error::other(format!("more than {MAX_CUTS} cuts in a shard"))),
            Err(what) => rows.push((number, Err(what))),
        }
        Ok(())
    });
    let read = cuts.unpacked().map_err(|error| error.to_string()).and_then(|input| {
        each_line(input, |number, line| {
            rows.push((number, line.and_then(|line| row(&line, &places))));
        })
        .map_err(|what| format!("{}: {what}", cuts.name()))
    });
    Contents { rows, end: read.err().or(walked.err().map(|error| why(&error))) }
}

fn row(line: &str, places: &HashMap<String, (u64, u64)>) -> Result<ShardRow, String> {
    let cut: Object = serde_json::from_str(line).map_err(|_| "not a JSON object".to_owned())?;
    let key = field(&cut, "id").ok_or("a cut without an id")?;
    let said = match cut.get("supervisions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
        [Value::Object(only)] => only,
        all => return Err(format!("{} supervisions in a cut, expected 1", all.len())),
    };
    let recording = cut.get("recording").and_then(|recording| recording.get("id")).and_then(Value::as_str);
    let place = places.get(&key).or_else(|| places.get(recording?));
    let &(at, bytes) = place.ok_or_else(|| format!("`{key}`: a cut without a recording"))?;
    let text = field(said, "text").ok_or_else(|| format!("`{key}`: no `text`, or an empty one"))?;
    let audio = RowAudio::Here { at, bytes };
    Ok(ShardRow { key, audio, text, speaker: field(said, "speaker"), language: field(said, "language") })
}

/// Calls for every line that is not blank, with its number counted from 1.
fn each_line(input: Unpacked, mut each: impl FnMut(usize, Result<String, String>)) -> Result<(), String> {
    let (mut input, mut line) = (BufReader::new(input), vec![]);
    for number in 1.. {
        line.clear();
        let read =
            (&mut input).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        if read == 0 {
            break;
        }
        if number > MAX_CUTS {
            return Err(format!("more than {MAX_CUTS} cuts in a shard"));
        }
        if read as u64 > MAX_LINE_BYTES {
            each(number, Err(format!("longer than {} KiB", MAX_LINE_BYTES >> 10)));
            input.skip_until(b'\n').map_err(|error| error.to_string())?;
        } else if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
            each(number, String::from_utf8(line.clone()).map_err(|_| "not UTF-8".into()));
        }
    }
    Ok(())
}
