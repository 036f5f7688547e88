//! What the limits of a run did to its clips. Reported, never silent, with the values that would do it to few.

use super::dataset::ClipLimits;
use crate::config::LongClips;
use std::collections::BTreeMap;
use std::fmt;

/// Share of the clips that a limit should keep.
const KEPT: f64 = 0.99;

/// Clips of a run against its limits.
#[derive(Clone, Debug)]
pub struct FitReport {
    pub limits: ClipLimits,
    /// Frames and characters of all clips, whatever became of them.
    frames: Counts,
    characters: Counts,
    /// Clips above a limit that are left out whole; a clip may be above both limits.
    pub above_limits: usize,
    /// Monotonic alignment gives every token at least one frame.
    pub fewer_frames_than_tokens: usize,
    /// Clips of which the first piece alone is used.
    pub cropped: usize,
    /// Clips in pieces, and how many these are.
    pub split: usize,
    pub pieces: usize,
}

/// A limit against the clips it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub name: &'static str,
    pub limit: usize,
    pub clips: usize,
    /// Clips above it.
    pub above: usize,
    /// The smallest value that keeps 99 % of the clips.
    pub keeps_most: usize,
}

impl FitReport {
    pub fn new(limits: &ClipLimits) -> Self {
        FitReport {
            limits: *limits,
            frames: Counts::default(),
            characters: Counts::default(),
            above_limits: 0,
            fewer_frames_than_tokens: 0,
            cropped: 0,
            split: 0,
            pieces: 0,
        }
    }

    /// Takes note of a clip: whether it is above a limit.
    pub(super) fn add(&mut self, frames: usize, characters: usize) -> bool {
        self.frames.add(frames);
        self.characters.add(characters);
        frames > self.limits.max_frames || characters > self.limits.max_characters
    }

    /// A clip is left out, because it is above a limit or has less sound than text.
    pub(super) fn refuse(&mut self, is_long: bool) {
        *(if is_long { &mut self.above_limits } else { &mut self.fewer_frames_than_tokens }) += 1;
    }

    /// Takes in what was noted of other clips.
    pub(super) fn merge(&mut self, other: FitReport) {
        self.frames.merge(other.frames);
        self.characters.merge(other.characters);
        self.above_limits += other.above_limits;
        self.fewer_frames_than_tokens += other.fewer_frames_than_tokens;
        self.cropped += other.cropped;
        self.split += other.split;
        self.pieces += other.pieces;
    }

    pub fn refused(&self) -> usize {
        self.above_limits + self.fewer_frames_than_tokens
    }

    /// Nothing to report.
    pub fn is_plain(&self) -> bool {
        self.refused() + self.cropped + self.split == 0
    }

    /// Both limits, that of the sound first.
    pub fn limits(&self) -> [LimitUse; 2] {
        [
            LimitUse::of("max_mel_frames", self.limits.max_frames, &self.frames),
            LimitUse::of("max_text_length", self.limits.max_characters, &self.characters),
        ]
    }
}

/// How many clips have each length: a few thousand numbers, whatever the size of the corpus.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Of usual lengths, by length: ten million are counted in no time.
    usual: Vec<usize>,
    longer: BTreeMap<usize, usize>,
}

/// Lengths below it are usual.
const USUAL: usize = 1 << 14;

impl Counts {
    fn add(&mut self, length: usize) {
        self.add_many(length, 1);
    }

    fn add_many(&mut self, length: usize, clips: usize) {
        if length >= USUAL {
            *self.longer.entry(length).or_default() += clips;
            return;
        }
        if length >= self.usual.len() {
            self.usual.resize(length + 1, 0);
        }
        self.usual[length] += clips;
    }

    fn merge(&mut self, other: Counts) {
        other.iter().for_each(|(length, clips)| self.add_many(length, clips));
    }

    /// Lengths that clips have, the shortest first, and how many have each.
    fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        let usual = self.usual.iter().copied().enumerate().filter(|(_, clips)| *clips > 0);
        usual.chain(self.longer.iter().map(|(length, clips)| (*length, *clips)))
    }

    fn clips(&self) -> usize {
        self.iter().map(|(_, clips)| clips).sum()
    }
}

impl FromIterator<usize> for Counts {
    fn from_iter<T: IntoIterator<Item = usize>>(lengths: T) -> Self {
        let mut counts = Counts::default();
        lengths.into_iter().for_each(|length| counts.add(length));
        counts
    }
}

impl LimitUse {
    /// `lengths` of all clips, in what the limit counts.
    pub fn of(name: &'static str, limit: usize, lengths: &Counts) -> Self {
        let clips = lengths.clips();
        let kept = (clips as f64 * KEPT).ceil() as usize;
        let mut so_far = 0;
        let reaches = |(_, clips): &(usize, usize)| {
            so_far += clips;
            so_far >= kept
        };
        let keeps_most = lengths.iter().find(reaches).map_or(limit, |(length, _)| length);
        let above = lengths.iter().filter(|(length, _)| *length > limit).map(|(_, clips)| clips).sum();
        LimitUse { name, limit, clips, above, keeps_most }
    }
}

impl fmt::Display for LimitUse {
    /// "12 above max_mel_frames 800 (864 keeps 99 %)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} above {} {}", self.above, self.name, self.limit)?;
        match self.keeps_most > self.limit {
            true => write!(f, " ({} keeps 99 %)", self.keeps_most),
            false => Ok(()),
        }
    }
}

impl fmt::Display for FitReport {
    /// "3 of 200 clips left out: 2 above max_mel_frames 800 (864 keeps 99 %), …; 4 cropped to …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClipLimits { max_frames, max_characters, long_clips, .. } = self.limits;
        let limits = format!("max_mel_frames {max_frames} and max_text_length {max_characters}");
        let mut reasons: Vec<String> = match self.above_limits {
            0 => Vec::new(),
            _ if long_clips == LongClips::Refuse => {
                self.limits().iter().filter(|limit| limit.above > 0).map(LimitUse::to_string).collect()
            }
            uncuttable => vec![format!("{uncuttable} above {limits} with no place to cut")],
        };
        if self.fewer_frames_than_tokens > 0 {
            reasons.push(format!("{} with less sound than text", self.fewer_frames_than_tokens));
        }
        let left_out = format!("{} of {} clips left out: {}", self.refused(), self.frames.clips(), reasons.join(", "));
        let parts = [
            (self.refused(), left_out),
            (self.cropped, format!("{} clips cropped to {limits}", self.cropped)),
            (self.split, format!("{} clips split into {} pieces within {limits}", self.split, self.pieces)),
        ];
        let said: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        f.write_str(&said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(clips: impl Iterator<Item = (usize, usize)>) -> FitReport {
        let limits = ClipLimits {
            max_frames: 800,
            max_characters: 200,
            long_clips: LongClips::Refuse,
            speed: 0.0,
            shuffle_shards: 1,
        };
        let mut report = FitReport::new(&limits);
        for (frames, characters) in clips {
            if report.add(frames, characters) {
                report.refuse(true);
            }
        }
        report
    }

    #[test]
    fn each_limit_is_counted_by_itself_and_the_value_that_keeps_most_is_the_percentile() {
        // Frames 1 to 1000 and texts of 1 to 250 characters: 200 clips above the one, 200 others above the other.
        let report = report((1..=1000).map(|clip| (clip, 1 + (1000 - clip) / 4)));
        let [frames, characters] = report.limits();
        assert_eq!((frames.above, frames.keeps_most), (200, 990));
        assert_eq!((characters.above, characters.keeps_most), (200, 248));
        let said = "400 of 1000 clips left out: 200 above max_mel_frames 800 (990 keeps 99 %), \
                    200 above max_text_length 200 (248 keeps 99 %)";
        assert_eq!(report.to_string(), said);
    }

    #[test]
    fn a_limit_that_keeps_most_is_not_to_be_raised() {
        let report = report((0..1000).map(|clip| (if clip == 7 { 801 } else { 10 }, 10)));
        assert_eq!(report.to_string(), "1 of 1000 clips left out: 1 above max_mel_frames 800");
        assert_eq!(
            LimitUse::of("max_text_length", 5, &Counts::default()).keeps_most,
            5,
            "nothing is above a limit of nothing"
        );
    }
}
