//! The utterances of a corpus, in bounded memory: eight bytes each, the rest lies in a [`Spill`].

use super::AudioSource;
use super::shards::Shard;
use super::source::Member;
use crate::spill::{self, Spill};
use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A recording and what is said in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    pub id: String,
    pub audio: AudioSource<'static>,
    pub text: String,
    pub speaker: String,
    /// A code in lower case such as `en` or `pt-br`; none where the metadata name none.
    pub language: Option<String>,
}

/// An [`Utterance`] that lies elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct UtteranceRef<'a> {
    pub id: &'a str,
    pub audio: AudioSource<'a>,
    pub text: &'a str,
    pub speaker: &'a str,
    pub language: Option<&'a str>,
}

impl Utterance {
    pub fn borrowed(&self) -> UtteranceRef<'_> {
        let Utterance { id, audio, text, speaker, language } = self;
        UtteranceRef { id, audio: audio.borrowed(), text, speaker, language: language.as_deref() }
    }
}

impl UtteranceRef<'_> {
    pub fn into_owned(self) -> Utterance {
        let UtteranceRef { id, audio, text, speaker, language } = self;
        Utterance {
            id: id.into(),
            audio: audio.into_owned(),
            text: text.into(),
            speaker: speaker.into(),
            language: language.map(Into::into),
        }
    }
}

/// Utterances in the order in which they were added.
#[derive(Clone, Default)]
pub struct Utterances {
    records: Spill,
    places: Vec<u64>,
    /// Shards that some of their sound lies in; neighbours share one.
    shards: Vec<Arc<Shard>>,
}

impl Utterances {
    pub fn push(&mut self, utterance: &UtteranceRef) {
        let UtteranceRef { id, audio, text, speaker, language } = utterance;
        if let AudioSource::Member(Member { shard, .. }) = audio
            && self.shards.last().is_none_or(|last| !Arc::ptr_eq(last, shard))
        {
            self.shards.push(shard.clone());
        }
        // The number of the shard, counted from 1; 0 for a file.
        let shard = if audio.member().is_some() { self.shards.len() as u64 } else { 0 };
        let place = self.records.push(|record| {
            spill::put_number(record, shard);
            match audio {
                AudioSource::File(path) => spill::put_bytes(record, path.as_os_str().as_bytes()),
                AudioSource::Member(Member { at, bytes, .. }) => {
                    [*at, *bytes].iter().for_each(|number| spill::put_number(record, *number));
                }
            }
            [id, text, speaker].iter().for_each(|text| spill::put_bytes(record, text.as_bytes()));
            // No language is named by nothing.
            spill::put_bytes(record, language.unwrap_or_default().as_bytes());
        });
        self.places.push(place);
    }

    pub fn get(&self, index: usize) -> UtteranceRef<'_> {
        let record = &mut self.records.get(self.places[index]);
        let audio = match spill::take_number(record) {
            0 => AudioSource::File(Path::new(OsStr::from_bytes(spill::take_bytes(record))).into()),
            number => {
                let [at, bytes] = [(); 2].map(|()| spill::take_number(record));
                AudioSource::Member(Member { shard: self.shards[number as usize - 1].clone(), at, bytes })
            }
        };
        let [id, text, speaker, language] = [(); 4].map(|()| spill::take_text(record));
        UtteranceRef { id, audio, text, speaker, language: Some(language).filter(|code| !code.is_empty()) }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = UtteranceRef<'_>> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// All of them, or some neighbours.
    pub fn rows(&self, range: Range<usize>) -> Rows<'_> {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        Rows { utterances: self, first: range.start, len: range.len() }
    }
}

/// Neighbours among the utterances of a corpus, counted from 0.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    utterances: &'a Utterances,
    first: usize,
    len: usize,
}

impl<'a> Rows<'a> {
    pub fn get(self, index: usize) -> UtteranceRef<'a> {
        assert!(index < self.len, "row {index} of {}", self.len);
        self.utterances.get(self.first + index)
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    pub fn iter(self) -> impl ExactSizeIterator<Item = UtteranceRef<'a>> + Clone {
        (0..self.len).map(move |index| self.get(index))
    }
}

impl<'a> FromIterator<UtteranceRef<'a>> for Utterances {
    fn from_iter<I: IntoIterator<Item = UtteranceRef<'a>>>(utterances: I) -> Self {
        let mut all = Utterances::default();
        utterances.into_iter().for_each(|utterance| all.push(&utterance));
        all
    }
}

impl FromIterator<Utterance> for Utterances {
    fn from_iter<I: IntoIterator<Item = Utterance>>(utterances: I) -> Self {
        let mut all = Utterances::default();
        utterances.into_iter().for_each(|utterance| all.push(&utterance.borrowed()));
        all
    }
}

impl PartialEq for Utterances {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Utterances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    #[test]
    fn utterances_come_out_as_they_went_in() {
        let utterance = |number: usize| Utterance {
            id: format!("clip {number}"),
            // No text, as names of files may be.
            audio: PathBuf::from(OsString::from_vec(vec![b'/', 0xff, b'a' + number as u8])).into(),
            text: "größer ".repeat(100 * number),
            speaker: ["", "anna"][number % 2].into(),
            language: number.is_multiple_of(3).then(|| "pt-br".into()),
        };
        let given: Vec<Utterance> = (0..9).map(utterance).collect();
        let kept: Utterances = given.iter().map(Utterance::borrowed).collect();
        let back = |rows: Rows| rows.iter().map(UtteranceRef::into_owned).collect::<Vec<_>>();
        assert_eq!((kept.len(), back(kept.rows(0..9))), (9, given.clone()));
        let some = kept.rows(3..7);
        assert_eq!((back(some), some.get(1).id), (given[3..7].to_vec(), "clip 4"));
        assert!(kept == given.into_iter().collect() && kept.rows(9..9).is_empty());
    }
}
