//! What a run trains on: corpus → split → tokenizer → cache → datasets and the batch budget.

use crate::cache::durations::{self, Durations};
use crate::cache::{self, BuildSeconds, Cache, CacheReport, CorpusKey, KnownCorpus};
use crate::config::{self, Config, Data, RunFacts, Start};
use crate::corpus::{self, Corpus, Utterance, UtteranceRef, Utterances};
use crate::error::hinted;
use crate::loader::{Budget, ClipLimits, Dataset, FitReport, Length, longest};
use crate::run_log::CorpusFacts;
use crate::simulate::Hook;
use crate::storage;
use crate::text::Tokenizer;
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Clips that speakers and languages are counted by: more are counted by every so many.
const MOST_COUNTED: usize = 200_000;
/// Speakers, and damaged clips, that are listed.
const MOST_LISTED: usize = 200;
/// Longer clips are counted with these.
const LONGEST_BIN_S: usize = 60;

/// Datasets, tokenizer and budget of a run, and what reading its corpus brought to light.
#[derive(Clone)]
pub struct TrainingData {
    pub train: Arc<Dataset>,
    /// Absent when nothing is held out.
    pub validation: Option<Arc<Dataset>>,
    /// Speakers by the corpus's own names, held-out ones included.
    pub speakers: usize,
    pub tokenizer: Tokenizer,
    pub budget: Budget,
    /// Rows and clips that are damaged and were left out, each with its place.
    pub findings: Vec<String>,
    /// Sound clips that this run's limits leave out.
    pub notes: Vec<String>,
    pub building: CacheBuild,
    /// Folder of the features.
    pub features: PathBuf,
    /// What the limits of the run did to its training clips.
    pub fit: FitReport,
    /// Those that batches hold; otherwise every step searches.
    pub durations: Option<Arc<Durations>>,
    /// Mean and deviation of log-mel values, once somebody with a device has measured them.
    pub mel_stats: OnceLock<[f64; 2]>,
}

/// What had to be made before the run could start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheBuild {
    /// Clips whose sound was made, whose tokens alone were, and that were there.
    pub built: usize,
    pub encoded: usize,
    pub reused: usize,
    /// Seconds until all of them were open, building included.
    pub open_seconds: f64,
    /// Seconds of speech in the whole corpus.
    pub audio_seconds: f64,
    pub seconds: BuildSeconds,
}

impl TrainingData {
    /// What a run on these clips is planned by.
    pub fn facts(&self, rate_hz: u32, start: Start) -> RunFacts {
        let held_out = self.validation.as_ref().map_or(0, |set| set.lengths().len());
        RunFacts { hours: self.train.seconds(rate_hz) / 3600.0, speakers: self.speakers, held_out, start }
    }

    /// What is told of the corpus beside the run's figures.
    pub fn corpus_facts(&self, rate_hz: u32) -> CorpusFacts {
        let (lengths, seconds) = (self.train.lengths(), |frames| frames * self.train.hop_samples() / rate_hz as usize);
        let mut durations = Vec::new();
        for length in lengths.iter() {
            let bin = seconds(length.frames).min(LONGEST_BIN_S);
            durations.resize(durations.len().max(bin + 1), 0);
            durations[bin] += 1;
        }
        let stride = lengths.len().div_ceil(MOST_COUNTED).max(1);
        let (mut speakers, mut languages) = (HashMap::new(), HashMap::new());
        for (speaker, language) in (0..lengths.len()).step_by(stride).map(|piece| self.train.labels(piece)) {
            *speakers.entry(speaker).or_insert(0) += 1;
            *languages.entry(language).or_insert(0) += 1;
        }
        CorpusFacts {
            clips: lengths.len(),
            held_out: self.validation.as_ref().map_or(0, |set| set.lengths().len()),
            hours: self.train.seconds(rate_hz) / 3600.0,
            durations,
            speaker_count: self.speakers,
            speakers: most_first(speakers),
            languages: most_first(languages),
            counted: (stride > 1).then(|| lengths.len().div_ceil(stride)),
            notes: self.notes.clone(),
            left_out: self.fit.refused(),
            damaged: self.findings.iter().take(MOST_LISTED).cloned().collect(),
            damaged_count: self.findings.len(),
        }
    }

    /// Where texts of held-out clips can be read again without being in the way of the run: features hold tokens alone. None
    /// where that is far away, or long.
    pub fn near_texts(&self, data: &Data) -> Option<PathBuf> {
        let clips = [Some(&self.train), self.validation.as_ref()].into_iter().flatten();
        let path = data.val_data.as_ref().or(data.dataset_path.as_ref())?;
        let is_near = path.to_str().is_none_or(|path| !storage::is_url(path));
        (is_near && clips.map(|set| set.lengths().len()).sum::<usize>() <= MOST_COUNTED).then(|| path.clone())
    }

    /// These clips in batches of another size.
    pub fn with_budget(&self, budget: Budget) -> TrainingData {
        self.with(self.train.clone(), budget)
    }

    /// Other clips for this voice, to try something with; nothing is held out.
    pub fn with(&self, train: Arc<Dataset>, budget: Budget) -> TrainingData {
        TrainingData { train, validation: None, budget, ..self.clone() }
    }
}

fn most_first(counts: HashMap<&str, usize>) -> Vec<(String, usize)> {
    let mut list: Vec<(String, usize)> = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    list.sort_by(|(a, most), (b, count)| count.cmp(most).then(a.cmp(b)));
    list.truncate(MOST_LISTED);
    list
}

/// What a run knows of its tokenizer beforehand.
pub enum KnownTokenizer<'a> {
    Nothing,
    /// The tokenizer of the run that is resumed.
    Exactly(&'a Tokenizer),
    /// The tokenizer of the voice it starts from: whatever that could read, this one shall.
    AtLeast(&'a Tokenizer),
    /// The tokenizer of the corpus that this one is held against.
    OfRun(&'a Tokenizer),
}

/// Reads the corpus and opens its cache, building what is missing.
pub fn prepare(
    config: &Config,
    known: KnownTokenizer,
    progress: &(dyn Fn(cache::Progress) + Sync),
    stop: &AtomicBool,
    hook: &Hook,
) -> Result<TrainingData> {
    let data = &config.data;
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let path = data.dataset_path.as_deref().ok_or_else(|| {
        hinted("no corpus was named", "`myxtts train --train-data DIR`; `myxtts sample-corpus DIR` makes one to try")
    })?;
    let run = (config, progress, stop, hook);
    let (mut building, mut features) = (CacheBuild::default(), PathBuf::new());
    let mut take = |opened: &mut Opened| {
        building.add(&opened.report, opened.took);
        features.clone_from(&opened.report.path);
        notes.append(&mut opened.known.notes);
        findings.append(&mut opened.known.findings);
        findings.extend(opened.report.failures.iter().map(ToString::to_string));
    };
    // One table for the whole corpus, the same that `myxtts prepare` fills; training and validation are views of it.
    let mut whole = open(path, known, run)?;
    take(&mut whole);
    let KnownCorpus { tokenizer, validation_from, speakers, .. } = whole.known;
    let (train, validation) = match data.val_data.as_deref() {
        Some(path) => {
            let mut held_out = open(path, KnownTokenizer::OfRun(&tokenizer), run)?;
            take(&mut held_out);
            (whole.cache.before(validation_from), held_out.cache)
        }
        None => whole.cache.parts(validation_from, data)?,
    };
    let mut fitting = |cache, config, name| fitting(cache, &tokenizer, config, name, &mut notes);
    let (mut train, fit) = fitting(train, config, "training")?;
    let (mut validation, _) = fitting(validation, &config.without_augmentation(), "validation")?;
    if train.lengths().is_empty() {
        let hint = "raise --max-mel-frames and --max-text-length, or see `myxtts check`";
        return Err(hinted(format!("no clip is left to train on: {fit}"), hint));
    }
    train.check_room(data.shuffle_shards)?;
    let durations = match data.durations {
        config::Durations::Search => None,
        config::Durations::Frozen => Some(freeze(config, &tokenizer, [&mut train, &mut validation])?),
    };
    notes.extend(durations.iter().map(|found| format!("durations: as in {}", found.path().display())));
    let budget = budget(data, &train, &validation, &mut notes);
    let validation = (!validation.lengths().is_empty()).then(|| Arc::new(validation));
    let (train, mel_stats) = (Arc::new(train), OnceLock::new());
    Ok(TrainingData {
        train,
        validation,
        speakers,
        tokenizer,
        budget,
        findings,
        notes,
        building,
        features,
        fit,
        durations,
        mel_stats,
    })
}

/// A corpus and its cache, open.
struct Opened {
    known: KnownCorpus,
    cache: Cache,
    report: CacheReport,
    /// Time until the cache was open, building included.
    took: Duration,
}

/// Settings, who watches, who ends it, and what is called at its moments.
type Run<'a> = (&'a Config, &'a (dyn Fn(cache::Progress) + Sync), &'a AtomicBool, &'a Hook);

/// Opens a corpus as it was when it was last opened or, where anything has changed, reads it and builds what is missing.
fn open(path: &Path, known: KnownTokenizer, run: Run) -> Result<Opened> {
    let (config, progress, stop, hook) = run;
    let check = match known {
        KnownTokenizer::Exactly(tokenizer) => tokenizer.check()?,
        _ => None,
    };
    let tokens = match known {
        // What the machine offers decides too, so it is asked; fitted to nothing, a tokenizer tells.
        KnownTokenizer::Nothing => offered(config)?.fingerprint(),
        KnownTokenizer::AtLeast(other) => format!("{} {}", offered(config)?.fingerprint(), other.fingerprint()),
        KnownTokenizer::Exactly(tokenizer) => format!("exactly {}", tokenizer.fingerprint()),
        KnownTokenizer::OfRun(tokenizer) => format!("of a run {}", tokenizer.fingerprint()),
    };
    let mut began = Instant::now();
    let key = CorpusKey::new(path, config, &tokens);
    if let Some(mut known) = key.as_ref().and_then(CorpusKey::find)
        && let Some((cache, report)) = cache::open_known(&known, config)?
    {
        known.notes.extend(check);
        return Ok(Opened { known, cache, report, took: began.elapsed() });
    }
    let corpus = corpus::read(path, &corpus::ReadOptions::of(&config.data)?)?;
    let mut notes = vec![format!("{}: read as {}: {}", path.display(), corpus.format, corpus.why)];
    let mut findings: Vec<String> = corpus.problems.iter().map(ToString::to_string).collect();
    let mut lasts = true;
    let tokenizer = match known {
        KnownTokenizer::Exactly(tokenizer) => {
            findings.extend(unknown(&corpus.utterances, tokenizer, &config.data.language));
            tokenizer.clone()
        }
        KnownTokenizer::OfRun(tokenizer) => tokenizer.clone(),
        _ => {
            let (tokenizer, told) = cache::tokenizer(&corpus.utterances, config)?;
            // Other symbols than the machine offers were chosen because a voice is missing, and that may change.
            lasts = told == offered(config)?.describe();
            notes.push(format!("tokens: {told}"));
            match known {
                KnownTokenizer::AtLeast(other) => tokenizer.joined(other).unwrap_or(tokenizer),
                _ => tokenizer,
            }
        }
    };
    began = Instant::now();
    let (cache, report) = cache::open(&corpus.utterances, &tokenizer, config, progress, stop, hook)?;
    let took = began.elapsed();
    let mut known = KnownCorpus::new(&corpus, &tokenizer, &findings, &notes);
    if let Some(key) = key.filter(|_| lasts) {
        key.remember(&corpus, path, config, known.clone());
    }
    known.notes.extend(check);
    Ok(Opened { known, cache, report, took })
}

/// Texts of some clips as a corpus has them, by id.
pub fn texts_of(path: &Path, ids: &HashSet<String>, data: &Data) -> HashMap<String, String> {
    let read = corpus::ReadOptions::of(data).ok().and_then(|options| corpus::read(path, &options).ok());
    let utterances = read.map(|corpus| corpus.utterances).unwrap_or_default();
    let wanted = utterances.iter().filter(|utterance| ids.contains(utterance.id));
    wanted.map(|utterance| (utterance.id.to_owned(), utterance.text.to_owned())).collect()
}

/// The tokenizer of no text: it tells which symbols this machine offers.
fn offered(config: &Config) -> Result<Tokenizer> {
    Ok(Tokenizer::of_corpus(&Utterances::default(), &config.data.language, config.data.tokenizer)?)
}

/// Part of a corpus that a voice is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Of the corpus that the voice was trained on those that were held out, of any other all
    Auto,
    /// Those that training would hold out
    HeldOut,
    All,
}

/// What a run trains on, and what it holds out: the corpus's own parts, or shares of it.
pub fn parts(corpus: Corpus, data: &Data) -> (Vec<Utterance>, Vec<Utterance>) {
    match corpus.into_parts() {
        (train, Some(validation)) => (train, validation),
        (all, None) => corpus::split(all, data),
    }
}

/// What a resumed run's voice cannot read in this corpus.
fn unknown(utterances: &Utterances, tokenizer: &Tokenizer, language: &str) -> Option<String> {
    let of = |utterance: UtteranceRef| tokenizer.unknown(utterance.text, utterance.language.unwrap_or(language));
    let unknown: BTreeSet<char> = utterances.iter().flat_map(of).collect();
    (!unknown.is_empty()).then(|| format!("the voice does not know these characters: {}", String::from_iter(unknown)))
}

fn fitting(
    cache: Cache,
    tokenizer: &Tokenizer,
    config: &Config,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<(Dataset, FitReport)> {
    let (dataset, fitting) = Dataset::new(cache, tokenizer, &ClipLimits::of(config))?;
    if !fitting.is_plain() {
        notes.push(format!("{name}: {fitting}"));
    }
    Ok((dataset, fitting))
}

impl TrainingData {
    /// Whether features were built or opened, how many, where, and how long it took.
    pub fn features_told(&self) -> String {
        let CacheBuild { built, encoded, reused, open_seconds, .. } = self.building;
        let parts = [(built, "built"), (encoded, "opened with new tokens"), (reused, "opened")];
        let parts: Vec<String> =
            parts.iter().filter(|(clips, _)| *clips > 0).map(|(clips, what)| format!("{clips} {what}")).collect();
        format!("features: {} in {open_seconds:.2} s: {}", parts.join(", "), self.features.display())
    }
}

impl CacheBuild {
    fn add(&mut self, report: &cache::CacheReport, open: Duration) {
        let cache::BuildSeconds { wall, read, sound, text } = report.work;
        self.built += report.built;
        self.encoded += report.encoded;
        self.reused += report.reused;
        self.open_seconds += open.as_secs_f64();
        self.audio_seconds += report.seconds;
        let total = &mut self.seconds;
        *total = BuildSeconds {
            wall: total.wall + wall,
            read: total.read + read,
            sound: total.sound + sound,
            text: total.text + text,
        };
    }
}

/// Lets batches hold the token of every frame.
fn freeze(config: &Config, tokenizer: &Tokenizer, sets: [&mut Dataset; 2]) -> Result<Arc<Durations>> {
    let wanted: Vec<_> = sets.iter().flat_map(|set| set.segments()).collect();
    let found = Arc::new(durations::find(config, tokenizer, &wanted)?);
    sets.into_iter().for_each(|set| set.freeze(found.clone()));
    Ok(found)
}

/// One budget for training and validation, so that shapes never change.
fn budget(data: &Data, train: &Dataset, validation: &Dataset, notes: &mut Vec<String>) -> Budget {
    let lengths = [train.lengths(), validation.lengths()];
    if data.pad_to_fixed_length {
        // A limit of characters says nothing of tokens: a slot has as many as the longest text. Clips that may be spoken
        // slower need more frames than the limit.
        let Length { frames, tokens } = longest(&lengths);
        let max = Length { frames: frames.max(data.max_mel_frames), tokens };
        return Budget::padded(data.batch_size.min(train.lengths().len()), max);
    }
    let Some(frames) = data.frame_budget else { return Budget::packed_for(&lengths, data.batch_size) };
    let budget = Budget::of_frames_for(&lengths, frames);
    if budget.frames != frames {
        notes.push(format!("frame_budget {frames}: {}", budget.why_not(frames)));
    }
    budget
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio;
    use std::fs::{self, File};
    use std::time::SystemTime;

    const RATE_HZ: u32 = 16_000;

    /// A corpus in the layout of LJSpeech whose last row has no recording, all of it an hour old.
    fn corpus(dir: &Path) -> Config {
        fs::create_dir_all(dir.join("wavs")).unwrap();
        let rows: String = (0..8).map(|clip| format!("clip{clip}|the größte text {clip}\n")).collect();
        fs::write(dir.join("metadata.csv"), rows).unwrap();
        (0..7).for_each(|clip| record(dir, clip));
        age(dir);
        let mut config = Config::default();
        (config.data.sample_rate, config.data.val_split) = (RATE_HZ, 0.2);
        (config.data.dataset_path, config.data.cache_dir) = (Some(dir.to_owned()), Some(dir.with_extension("cache")));
        config.data.tokenizer = config::TokenizerKind::Characters;
        (config.data.trim_silence, config.data.language) = (false, "en".into());
        config
    }

    fn record(dir: &Path, clip: usize) {
        let samples: Vec<f32> = (0..8000 + 100 * clip).map(|at| (at % (50 + clip)) as f32 / 100.0 - 0.2).collect();
        audio::write_wav(&dir.join(format!("wavs/clip{clip}.wav")), &samples, RATE_HZ).unwrap();
    }

    fn age(dir: &Path) {
        let wavs = fs::read_dir(dir.join("wavs")).unwrap().map(|entry| entry.unwrap().path());
        for path in wavs.chain([dir.join("metadata.csv"), dir.join("wavs"), dir.to_owned()]) {
            File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        }
    }

    fn run(config: &Config, known: KnownTokenizer) -> TrainingData {
        prepare(config, known, &|_| (), &AtomicBool::new(false), &Hook::NONE).unwrap()
    }

    fn key(config: &Config) -> CorpusKey {
        let path = config.data.dataset_path.as_deref().unwrap();
        CorpusKey::new(path, config, &offered(config).unwrap().fingerprint()).unwrap()
    }

    #[test]
    fn a_corpus_that_has_not_changed_is_opened_without_its_metadata() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("corpus");
        let config = corpus(&dir);
        assert!(key(&config).find().is_none());
        let cold = run(&config, KnownTokenizer::Nothing);
        assert_eq!((cold.building.built, cold.findings.len()), (7, 1));
        assert!(key(&config).find().is_some());
        let warm = run(&config, KnownTokenizer::Nothing);
        assert_eq!((warm.building.built, warm.building.reused), (0, 7));
        let told = |data: &TrainingData| (data.findings.clone(), data.notes.clone(), data.tokenizer.fingerprint());
        assert_eq!(told(&warm), told(&cold));
        let clips = |data: &TrainingData| [&data.train, data.validation.as_ref().unwrap()].map(|set| set.fingerprint());
        assert_eq!((clips(&warm), warm.budget), (clips(&cold), cold.budget));
        // A voice that is resumed asks whether it can read the texts, and is told so again.
        let other = Tokenizer::fit([("the tex", "en")].into_iter());
        let resumed = || run(&config, KnownTokenizer::Exactly(&other)).findings;
        let said = resumed();
        assert!(said.iter().any(|finding| finding.starts_with("the voice does not know these characters: ")));
        assert_eq!(resumed(), said);
    }

    /// A new recording, a recording that goes, a row that is edited in place: each is seen, however old its times say it is.
    #[test]
    fn a_corpus_that_changes_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("corpus");
        let config = corpus(&dir);
        let changes: [(&dyn Fn(), usize, usize); 3] = [
            (&|| record(&dir, 7), 8, 0),
            (&|| fs::remove_file(dir.join("wavs/clip2.wav")).unwrap(), 7, 1),
            (
                &|| {
                    let text = fs::read_to_string(dir.join("metadata.csv")).unwrap();
                    fs::write(dir.join("metadata.csv"), text.replace("text 3", "text 9")).unwrap();
                },
                7,
                1,
            ),
        ];
        run(&config, KnownTokenizer::Nothing);
        for (number, (change, clips, findings)) in changes.into_iter().enumerate() {
            assert!(key(&config).find().is_some(), "before change {number}");
            change();
            age(&dir);
            assert!(key(&config).find().is_none(), "change {number}");
            let data = run(&config, KnownTokenizer::Nothing);
            let CacheBuild { built, encoded, reused, .. } = data.building;
            assert_eq!((built + encoded + reused, data.findings.len()), (clips, findings), "change {number}");
        }
    }
}
