//! What became of each utterance while a corpus is built, in bounded memory: eight bytes each, the rest lies in a [`Spill`].

use super::digest::{self, Digest};
use super::file_stat::FileStat;
use super::packed::Packed;
use super::table::{ReadyClip, TableEntry, TokenizedText};
use crate::spill::{self, Spill};

/// Entries of some utterances, by their index.
pub(super) struct Entries {
    records: Spill,
    places: Vec<u64>,
}

/// Place of what is not known yet.
const NOWHERE: u64 = u64::MAX;

impl Entries {
    pub fn new(utterances: usize) -> Self {
        Entries { records: Spill::default(), places: vec![NOWHERE; utterances] }
    }

    pub fn set(&mut self, index: usize, entry: &TableEntry) {
        self.places[index] = self.records.push(|record| put(record, entry));
    }

    pub fn get(&self, index: usize) -> Option<TableEntry> {
        let place = Some(self.places[index]).filter(|place| *place != NOWHERE)?;
        Some(take(self.records.get(place)))
    }
}

fn put(record: &mut Vec<u8>, TableEntry { stat, outcome }: &TableEntry) {
    stat.numbers().iter().for_each(|number| spill::put_number(record, *number as u64));
    record.push(u8::from(outcome.is_ok()));
    match outcome {
        Ok(ReadyClip { source, text }) => {
            record.extend(source.bytes());
            spill::put_bytes(record, text.language.as_bytes());
            text.tokens.put(record);
        }
        Err(reason) => spill::put_bytes(record, reason.as_bytes()),
    }
}

fn take(mut record: &[u8]) -> TableEntry {
    let record = &mut record;
    let [bytes, modified_ns, changed_ns] = [(); 3].map(|()| spill::take_number(record) as i64);
    let stat = FileStat { bytes, modified_ns, changed_ns };
    if spill::take_number(record) == 0 {
        return TableEntry { stat, outcome: Err(spill::take_text(record).to_owned()) };
    }
    let (source, rest) = record.split_at(digest::BYTES);
    *record = rest;
    let source = Digest::from_bytes(source).expect("as many bytes as a digest has");
    let text = TokenizedText { language: spill::take_text(record).to_owned(), tokens: Packed::take(record) };
    TableEntry { stat, outcome: Ok(ReadyClip { source, text }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in() {
        let mut entries = Entries::new(4);
        let text = TokenizedText { language: "pt-br".into(), tokens: Packed::of(&[0, 127, 128, 70_000]) };
        let ready = ReadyClip { source: Digest::of(b"sound"), text };
        let stat = FileStat { bytes: i64::MAX, modified_ns: -1, changed_ns: 1_700_000_000_000_000_000 };
        entries.set(2, &TableEntry { stat, outcome: Ok(ready) });
        entries.set(0, &TableEntry { stat: FileStat::NEVER, outcome: Err("größer".into()) });
        assert!(entries.get(1).is_none() && entries.get(3).is_none());
        let failed = entries.get(0).unwrap();
        assert_eq!((failed.stat, failed.outcome.err().as_deref()), (FileStat::NEVER, Some("größer")));
        let there = entries.get(2).unwrap();
        let ReadyClip { source, text } = there.outcome.ok().unwrap();
        assert_eq!((there.stat, source, &*text.language), (stat, Digest::of(b"sound"), "pt-br"));
        assert_eq!(text.tokens.iter().collect::<Vec<_>>(), [0, 127, 128, 70_000]);
    }
}
