//! Which clips are spoken by whom.

use crate::rng::Rng;
use std::collections::HashMap;

/// Clips of the cache by speaker: four bytes a clip, and four for its speaker.
pub(super) struct Speakers {
    /// Speaker of each clip of the cache.
    speaker: Vec<u32>,
    /// Clips in use, speaker after speaker, ascending; where each speaker starts, and the end.
    clips: Vec<u32>,
    starts: Vec<u32>,
}

impl Speakers {
    /// `names`: of every clip of the cache. `used`: clips, ascending.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>, used: &[u32]) -> Self {
        let mut numbers = HashMap::new();
        let mut number = |name: &'a str| {
            let next = numbers.len() as u32;
            *numbers.entry(name).or_insert(next)
        };
        let speaker: Vec<u32> = names.map(&mut number).collect();
        let mut clips = used.to_vec();
        clips.sort_by_key(|&clip| speaker[clip as usize]); // stable: clips of one speaker stay ascending
        let before = |number: u32| clips.partition_point(|&clip| speaker[clip as usize] < number) as u32;
        let starts = (0..=numbers.len() as u32).map(before).collect();
        Speakers { speaker, clips, starts }
    }

    /// Another clip of the same speaker; the clip itself where there is no other.
    pub fn another(&self, clip: usize, rng: &mut Rng) -> usize {
        let number = self.speaker[clip] as usize;
        let own = &self.clips[self.starts[number] as usize..self.starts[number + 1] as usize];
        match own.binary_search(&(clip as u32)) {
            Ok(at) if own.len() > 1 => {
                let other = rng.below(own.len() - 1);
                own[other + usize::from(other >= at)] as usize
            }
            _ => clip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn another_clip_is_any_other_of_the_same_speaker() {
        let speakers = Speakers::new(["a", "b", "a", "a", "c", "a"].into_iter(), &[0, 1, 2, 4, 5]);
        let mut rng = Rng::new(&[1]);
        let mut drawn = |clip| (0..50).map(|_| speakers.another(clip, &mut rng)).collect::<BTreeSet<_>>();
        assert_eq!(drawn(0), [2, 5].into());
        assert_eq!(drawn(2), [0, 5].into(), "clip 3 is not in use");
        assert_eq!((drawn(1), drawn(4)), ([1].into(), [4].into()), "alone");
    }
}
