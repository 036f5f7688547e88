//! Durations that are found again, and files that must not be used.

use super::super::durations::{Aligned, ClipSegment, Durations, files, find, write};
use super::*;
use crate::error::Explained;

fn segments(cache: &Cache) -> Vec<(&str, ClipSegment)> {
    let whole = |clip| cache.segment(clip, 0..cache.length(clip).frames as u32, 1..cache.length(clip).tokens as u32);
    (0..cache.len()).map(|clip| (cache.source(clip).0, whole(clip))).collect()
}

/// Every token has one frame, the last one the rest.
fn plain(cache: &Cache) -> Vec<Aligned> {
    let durations = |clip| {
        let others = cache.length(clip).tokens - 1;
        [vec![1; others], vec![(cache.length(clip).frames - others) as i32]].concat()
    };
    let row = |(clip, (id, segment)): (usize, (&str, ClipSegment))| Aligned {
        id: id.to_owned(),
        segment,
        durations: durations(clip),
    };
    segments(cache).into_iter().enumerate().map(row).collect()
}

impl Case {
    /// Short texts, so that every token has a frame.
    fn aligned(clips: usize) -> (Self, Cache) {
        let mut case = Case::new(clips);
        case.utterances.iter_mut().for_each(|utterance| utterance.text = "ab".into());
        case.tokenizer = Tokenizer::fit([("ab", "en")].into_iter());
        let cache = case.run().unwrap().0;
        case.write(&plain(&cache));
        (case, cache)
    }

    fn write(&self, aligned: &[Aligned]) -> PathBuf {
        write(&self.config, &self.tokenizer, "weights".into(), aligned, &AtomicBool::new(false)).unwrap()
    }

    fn find(&self, cache: &Cache) -> Result<Durations, Error> {
        find(&self.config, &self.tokenizer, &segments(cache))
    }

    fn refused(&self, cache: &Cache) -> String {
        Explained::of(&self.find(cache).err().unwrap()).to_string()
    }
}

#[test]
fn what_was_found_is_found_again_and_replaced() {
    let (case, cache) = Case::aligned(3);
    let found = case.find(&cache).unwrap();
    assert_eq!(found.about().checkpoint, "weights");
    for (Aligned { segment, durations, .. }, clip) in plain(&cache).iter().zip(0..) {
        assert_eq!(found.of(segment), Some(&durations[..]));
        assert_eq!(durations.iter().sum::<i32>() as usize, cache.length(clip).frames);
    }
    // Another path, the same recording and text: the same clip.
    let mut moved = Case { utterances: case.utterances.clone(), root: tempfile::tempdir().unwrap(), ..case };
    let audio = moved.root.path().join("elsewhere.wav");
    fs::copy(moved.utterances[1].audio.file().unwrap(), &audio).unwrap();
    moved.utterances[1].audio = audio.into();
    moved.find(&moved.run().unwrap().0).unwrap();
    let mut others = plain(&cache);
    others[0].durations.reverse();
    moved.write(&others);
    assert_eq!(files(&moved.dir()).unwrap().len(), 1, "the earlier file is gone");
    let again = moved.find(&cache).unwrap();
    assert_eq!(again.of(&others[0].segment), Some(&others[0].durations[..]));
    assert_ne!(again.fingerprint(), found.fingerprint());
}

#[test]
fn durations_of_something_else_are_refused_with_the_reason() {
    let (mut case, cache) = Case::aligned(3);
    let hint = "hint: `myxtts align";
    let tokenizer = std::mem::replace(&mut case.tokenizer, Tokenizer::fit([("größe", "en")].into_iter()));
    let text = case.refused(&cache);
    assert!(text.contains("durations-") && text.contains("tokenizer is not the one") && text.contains(hint), "{text}");
    case.tokenizer = tokenizer;
    case.config.model.hop_length = 128;
    let text = case.refused(&cache);
    assert!(text.contains("in frames of 256 samples, and this run's `hop_length` is 128"), "{text}");
    case.config.model.hop_length = 256;
    case.utterances[1].text = "ba".into();
    let text = case.refused(&case.run().unwrap().0);
    assert!(text.contains("1 of 3 clips have no durations: clip1") && text.contains(hint), "{text}");
    fs::remove_file(&files(&case.dir()).unwrap()[0]).unwrap();
    assert!(case.refused(&cache).contains("no durations of this corpus are kept here"));
}

#[test]
fn a_damaged_file_of_durations_is_an_error() {
    let (case, cache) = Case::aligned(3);
    let path = files(&case.dir()).unwrap().remove(0);
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [&flipped[..], &whole[..whole.len() / 2], b"", b"ARROW1"] {
        fs::write(&path, bytes).unwrap();
        let text = case.refused(&cache);
        assert!(text.contains("not as they were written"), "{text}");
    }
    // With a name that suits its bytes, it must still be durations.
    let named =
        |bytes: &[u8]| path.with_file_name(format!("durations-{}-{}.arrow", "0".repeat(32), Digest::of(bytes).hex()));
    fs::remove_file(&path).unwrap();
    let table = fs::read(&case.tables()[0]).unwrap();
    for bytes in [&b"noise"[..], &table] {
        fs::write(named(bytes), bytes).unwrap();
        let text = case.refused(&cache);
        assert!(text.contains("hint: `myxtts align"), "{text}");
        fs::remove_file(named(bytes)).unwrap();
    }
}

#[test]
fn durations_stay_as_long_as_their_corpus_does() {
    let (case, cache) = Case::aligned(3);
    let dir = case.config.data.cache_dir.clone().unwrap();
    store::prune(&dir, &store::Retention::default(), false).unwrap();
    case.find(&cache).unwrap();
    store::prune(&dir, &store::Retention { bytes: Some(0), ..Default::default() }, false).unwrap();
    assert!(!case.dir().exists());
}
