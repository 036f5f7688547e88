//! Answers by text, so that fitting, encoding and checking a corpus detect each sentence once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Answers that are kept, some 3 MB; then the cache starts anew.
const MOST: usize = 65_536;

type Key = [u8; 16];

/// Remembers the language of each text.
#[derive(Debug, Default)]
pub(super) struct DetectionCache(Mutex<HashMap<Key, Option<&'static str>>>);

impl DetectionCache {
    /// The answer for a text, made where it is not known. The lock is not held while the answer is made: two threads
    /// may make the same one.
    pub fn get_or(&self, text: &str, make: impl FnOnce() -> Option<&'static str>) -> Option<&'static str> {
        let key = key(text);
        if let Some(answer) = self.lock().get(&key) {
            return *answer;
        }
        let answer = make();
        let mut answers = self.lock();
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, answer);
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Option<&'static str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(text: &str) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_made_once_and_the_cache_stays_bounded() {
        let cache = DetectionCache::default();
        assert_eq!(cache.get_or("a", || Some("en")), Some("en"));
        assert_eq!(cache.get_or("a", || panic!("made again")), Some("en"));
        for index in 0..MOST + 10 {
            cache.get_or(&index.to_string(), || None);
        }
        assert!(cache.lock().len() <= MOST);
    }
}
