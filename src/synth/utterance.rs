//! A request under way: the text still to speak, and the sound that is not final yet.

use super::join::Join;
use super::limiter::Limiter;
use super::network::Clause;
use super::voice::Prompt;
use super::{Options, Synthesizer};
use anyhow::Result;
use host::text::{End, Splitter, normalize};
use std::collections::{BTreeSet, VecDeque};

/// Unknown characters are named up to so many.
const MOST_NAMED: usize = 20;
/// Numbers and signs are written out, so a short text may have many tokens; beyond this share of the characters that a
/// piece may have, it is cut again.
const TOKENS_PER_CHARACTER: usize = 2;

/// A request under way: the clauses still to speak, and the tail held back for the next join.
pub struct Utterance {
    text: String,
    /// How much of the text was taken, in bytes.
    at: usize,
    splitter: Splitter,
    language: String,
    language_number: usize,
    prompt: Option<Prompt>,
    options: Options,
    /// Parts of a normalised piece that was too long.
    parts: VecDeque<(String, End)>,
    next: Option<(Clause, End)>,
    /// Clauses so far.
    clauses: u64,
    join: Join,
    gain: f32,
    limiter: Limiter,
    rate_hz: u32,
    samples: u64,
    peak: f32,
    unknown: BTreeSet<char>,
}

impl Utterance {
    pub(super) fn new(
        synthesizer: &Synthesizer,
        text: &str,
        (language, language_number): (&str, usize),
        prompt: Option<Prompt>,
        options: Options,
    ) -> Self {
        let rate_hz = synthesizer.rate_hz();
        Utterance {
            text: text.to_owned(),
            at: 0,
            splitter: Splitter::new(language, synthesizer.most_characters()),
            language: language.to_owned(),
            language_number,
            prompt,
            options,
            parts: VecDeque::new(),
            next: None,
            clauses: 0,
            join: Join::new(rate_hz, options.speed),
            gain: synthesizer.config.data.gain_to(options.loudness),
            limiter: Limiter::new(rate_hz),
            rate_hz,
            samples: 0,
            peak: 0.0,
            unknown: BTreeSet::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.next.is_none()
    }

    /// Seconds of speech so far.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(self.rate_hz)
    }

    /// Highest level so far; 1 is full scale.
    pub fn peak(&self) -> f32 {
        self.peak
    }

    /// Decibels by which the loudest moment so far was turned down to keep it from clipping.
    pub fn limited_db(&self) -> f32 {
        self.limiter.reduction_db()
    }

    /// Share of the text that was taken so far.
    pub fn progress(&self) -> f64 {
        self.at as f64 / self.text.len().max(1) as f64
    }

    pub fn notes(&self) -> Vec<String> {
        if self.unknown.is_empty() {
            return Vec::new();
        }
        let named: String = self.unknown.iter().take(MOST_NAMED).collect();
        let more = if self.unknown.len() > MOST_NAMED { " and others" } else { "" };
        vec![format!("the voice never heard these characters: {named}{more}")]
    }

    pub(super) fn next(&self) -> Option<&Clause> {
        self.next.as_ref().map(|(clause, _)| clause)
    }

    /// Takes the sound of the next clause; what is final now.
    pub(super) fn take(&mut self, mut wave: Vec<f32>, synthesizer: &Synthesizer) -> Result<Vec<f32>> {
        let Some((_, end)) = self.next.take() else { return Ok(Vec::new()) };
        // Finite weights can still overflow, and one such sample would silence everything behind it.
        wave.iter_mut().filter(|sample| !sample.is_finite()).for_each(|sample| *sample = 0.0);
        let (mut joined, mut out) = (Vec::new(), Vec::new());
        self.join.push(wave, end, &mut joined);
        self.prepare(synthesizer)?;
        if self.is_done() {
            self.join.finish(&mut joined);
        }
        joined.iter_mut().for_each(|sample| *sample *= self.gain);
        self.limiter.push(&joined, &mut out);
        if self.is_done() {
            self.limiter.finish(&mut out);
        }
        self.samples += out.len() as u64;
        self.peak = out.iter().fold(self.peak, |peak, sample| peak.max(sample.abs()));
        Ok(out)
    }

    #[cfg(test)]
    pub(super) fn skip(&mut self, synthesizer: &Synthesizer) -> Result<()> {
        self.next = None;
        self.prepare(synthesizer)
    }

    /// Finds the next clause that can be spoken, and encodes it.
    pub(super) fn prepare(&mut self, synthesizer: &Synthesizer) -> Result<()> {
        let tokenizer = &synthesizer.tokenizer;
        while let Some((plain, end)) = self.piece() {
            let unknown = tokenizer.unknown_normalized(&plain, &self.language);
            if !plain.chars().any(|letter| letter.is_alphanumeric() && !unknown.contains(&letter)) {
                continue;
            }
            // Emoji and the like are left out without a word; letters are not.
            self.unknown.extend(unknown.into_iter().filter(|letter| letter.is_alphanumeric()));
            let tokens = tokenizer.encode_normalized(&plain, &self.language)?;
            let most = synthesizer.most_characters();
            let long = TOKENS_PER_CHARACTER * tokenizer.states() * most;
            if tokens.len() > long && plain.chars().count() > most / 2 {
                self.cut(&plain, end);
                continue;
            }
            let (prompt, seed) = (self.prompt.clone(), [self.options.seed, self.clauses]);
            let clause = Clause { tokens, language: self.language_number, prompt, options: self.options, seed };
            self.clauses += 1;
            self.next = Some((clause, end));
            return Ok(());
        }
        Ok(())
    }

    /// The next clause, normalised, and how it ends.
    fn piece(&mut self) -> Option<(String, End)> {
        self.parts.pop_front().or_else(|| {
            let early = self.options.early && self.clauses == 0;
            let piece = self.splitter.next(&self.text, self.at, early)?;
            self.at = piece.next;
            Some((normalize(piece.text, &self.language), piece.end))
        })
    }

    /// A piece that is long once it is written out, in parts that are not.
    fn cut(&mut self, plain: &str, end: End) {
        let smaller = self.splitter.halved();
        let mut at = 0;
        while let Some(piece) = smaller.next(plain, at, false) {
            at = piece.next;
            let end = if at == plain.len() { end } else { piece.end };
            self.parts.push_back((piece.text.to_owned(), end));
        }
    }
}
