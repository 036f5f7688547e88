//! WebDataset: files of a tar that have a name in common are a clip: `key.flac` with `key.json`, `key.txt` or `key.lab`.
//! So are folders of recordings with a text beside each, as LibriTTS has them (`key.wav`, `key.normalized.txt`).

use super::rows::{Contents, RowAudio, ShardRow};
use super::tar::{Tar, TarMember};
use super::{MAX_MEMBER_BYTES, Shard, why};
use crate::corpus::columns::{LANGUAGE, NORMALISED, SPEAKER, TEXT};
use crate::corpus::manifest::{Object, field};
use crate::corpus::recordings::{inside, without_extension};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Far above any transcript.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Clips of one shard; texts and places of each are held until the shard is read.
const MAX_CLIPS: usize = 4_000_000;
/// Endings of texts, the better one first.
const TEXTS: [&str; 4] = ["normalized.txt", "txt", "lab", "original.txt"];

/// What is known of a clip while its shard is read.
#[derive(Default)]
struct Clip {
    audio: Option<(u64, u64)>,
    /// A text, and how good it is: the place of its ending.
    text: Option<(usize, String)>,
    object: Option<Object>,
    problem: Option<String>,
}

/// What a member is to a clip.
enum Part {
    Audio,
    Text(usize),
    Json,
}

/// Reads a tar from front to back.
pub(super) fn read(shard: &Arc<Shard>) -> Contents {
    let (mut clips, mut numbers, mut rows) = (Vec::<(String, Clip)>::new(), HashMap::new(), Vec::new());
    let end = walk(shard, &mut |tar, member, number| {
        let name = match inside(&member.name) {
            Ok(name) => name,
            Err(what) => {
                rows.push((number, Err(what)));
                return Ok(());
            }
        };
        let Some((key, part)) = part(&name) else { return Ok(()) };
        let index = *numbers.entry(key.to_owned()).or_insert(clips.len());
        if index == clips.len() {
            if clips.len() == MAX_CLIPS {
                return Err(io::Error::other(format!("more than {MAX_CLIPS} clips in a shard")));
            }
            clips.push((key.to_owned(), Clip::default()));
        }
        clips[index].1.take(part, tar, &member)
    });
    let clips = clips.into_iter().enumerate().map(|(index, (key, clip))| (index + 1, clip.row(key)));
    rows.extend(clips);
    Contents { rows, end: end.err().map(|error| why(&error)) }
}

/// Calls for every file of a tar, with its number counted from 1.
pub(in crate::corpus) fn walk(
    shard: &Shard,
    each: &mut dyn FnMut(&mut Tar, TarMember, usize) -> io::Result<()>,
) -> io::Result<()> {
    let mut tar = Tar::new(shard.unpacked()?);
    let mut number = 0;
    while let Some(member) = tar.next()? {
        number += 1;
        each(&mut tar, member, number)?;
    }
    Ok(())
}

/// The key of a member, and what it is to the clip of that key.
fn part(name: &str) -> Option<(&str, Part)> {
    if let Some(key) = without_extension(name) {
        return Some((key, Part::Audio));
    }
    if let Some(key) = name.strip_suffix(".json") {
        return Some((key, Part::Json));
    }
    let text =
        |(quality, ending): (usize, &&str)| Some((name.strip_suffix(ending)?.strip_suffix('.')?, Part::Text(quality)));
    // `key.normalized.txt` ends in `txt` too: the longest ending is the right one.
    let mut endings: Vec<_> = TEXTS.iter().enumerate().collect();
    endings.sort_by_key(|(_, ending)| std::cmp::Reverse(ending.len()));
    endings.into_iter().find_map(text)
}

impl Clip {
    fn take(&mut self, part: Part, tar: &mut Tar, member: &TarMember) -> io::Result<()> {
        let is_long = member.bytes > if matches!(part, Part::Audio) { MAX_MEMBER_BYTES } else { MAX_TEXT_BYTES };
        if is_long {
            self.problem = Some(format!("{}: {} MiB are too long for a clip", member.name, member.bytes >> 20));
            return Ok(());
        }
        match part {
            Part::Audio => _ = self.audio.get_or_insert((member.at, member.bytes)),
            Part::Json => match serde_json::from_slice(&tar.read(member)?) {
                Ok(object) => self.object = Some(object),
                Err(_) => self.problem = Some(format!("{}: not a JSON object", member.name)),
            },
            Part::Text(quality) => {
                let is_better = self.text.as_ref().is_none_or(|(known, _)| quality < *known);
                match String::from_utf8(tar.read(member)?) {
                    Ok(text) if is_better => {
                        let text = text.trim_start_matches('\u{feff}').split_whitespace().collect::<Vec<_>>().join(" ");
                        self.text = Some((quality, text));
                    }
                    Ok(_) => {}
                    Err(_) => self.problem = Some(format!("{}: not UTF-8", member.name)),
                }
            }
        }
        Ok(())
    }

    fn row(self, key: String) -> Result<ShardRow, String> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let found =
            |names: &[&str]| self.object.as_ref().and_then(|object| names.iter().find_map(|name| field(object, name)));
        let told = found(&NORMALISED)
            .or_else(|| found(&TEXT))
            .or(self.text.map(|(_, text)| text).filter(|text| !text.is_empty()));
        let (speaker, language) = (found(&SPEAKER), found(&LANGUAGE));
        match (self.audio, told) {
            (Some((at, bytes)), Some(text)) => {
                Ok(ShardRow { key, audio: RowAudio::Here { at, bytes }, text, speaker, language })
            }
            (None, _) => Err(format!("`{key}`: a text without a recording")),
            (_, None) if self.object.is_some() => Err(format!("`{key}`: no `text` in its JSON")),
            (_, None) => Err(format!("`{key}`: a recording without a text")),
        }
    }
}
