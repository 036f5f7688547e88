//! Corpora with known faults, and what is said about them.

use super::*;
use crate::audio;
use crate::config::TokenizerKind;
use crate::corpus::{self, Origin, ReadOptions, Utterance, UtteranceRef, Utterances};
use std::f32::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};

const RATE_HZ: u32 = 16_000;

fn tone(seconds: f32, gain: f32, hz: f32) -> Vec<f32> {
    let samples = (seconds * RATE_HZ as f32) as usize;
    (0..samples).map(|n| (gain * (TAU * hz * n as f32 / RATE_HZ as f32).sin()).clamp(-1.0, 1.0)).collect()
}

/// 24 good clips of one second and 17 to 18 characters, then the given ones.
fn clips(odd: &[(&str, Vec<f32>, &str)]) -> Vec<(String, Vec<f32>, String)> {
    let good = (0..24).map(|index| {
        let text = format!("fifteen letters {}", char::from(b'a' + index as u8));
        (format!("good{index}"), tone(1.0, 0.5, 200.0 + index as f32), text)
    });
    good.chain(odd.iter().map(|(id, samples, text)| ((*id).into(), samples.clone(), (*text).into()))).collect()
}

fn corpus(dir: &Path, odd: &[(&str, Vec<f32>, &str)]) -> Corpus {
    let utterance = |(id, samples, text): (String, Vec<f32>, String)| {
        let audio = dir.join(format!("{id}.wav"));
        audio::write_wav(&audio, &samples, RATE_HZ).unwrap();
        Utterance { id, audio: audio.into(), text, speaker: "anna".into(), language: None }
    };
    let utterances: Utterances = clips(odd).into_iter().map(utterance).collect();
    let origins = (1..=utterances.len() as u32).map(|line| Origin { file: 0, line }).collect();
    Corpus { utterances, origins, files: vec![dir.join("metadata.csv")], ..Corpus::default() }
}

/// Of all clips behind the good ones.
fn name_language(corpus: &mut Corpus, code: &str) {
    let named = |(index, row): (usize, UtteranceRef)| {
        UtteranceRef { language: (index >= 24).then_some(code), ..row }.into_owned()
    };
    corpus.utterances = corpus.utterances.iter().enumerate().map(named).collect();
}

fn config() -> Config {
    let mut config = Config::default();
    (config.data.sample_rate, config.data.trim_silence) = (RATE_HZ, false);
    (config.data.max_mel_frames, config.data.max_text_length) = (400, 60);
    (config.data.language, config.data.tokenizer) = ("en".into(), TokenizerKind::Characters);
    config
}

fn found(corpus: &Corpus, config: &Config) -> CorpusSummary {
    check(corpus, config, 2, &|_| (), &AtomicBool::new(false)).unwrap().unwrap()
}

#[test]
fn a_good_corpus_has_no_problem() {
    let dir = tempfile::tempdir().unwrap();
    let summary = found(&corpus(dir.path(), &[]), &config());
    assert_eq!(summary.problems, []);
    assert_eq!((summary.rows, summary.clips, summary.sample_rates_hz[&RATE_HZ]), (24, 24, 24));
    assert_eq!((summary.speakers["anna"], summary.languages["en"], summary.characters[&'f']), (24, 24, 48 + 1));
    assert!((summary.hours - 24.0 / 3600.0).abs() < 1e-9 && (summary.pace["en"] - 17.0).abs() < 1e-9);
    assert_eq!(summary.symbols["en"], "characters");
    assert_eq!(summary.seconds.bins, [HistogramBin { from: 1.0, to: 1.25, clips: 24 }]);
    assert_eq!(summary.text_length.bins, [HistogramBin { from: 17.0, to: 17.25, clips: 24 }]);
    assert_eq!((summary.detected_languages, &*summary.tokenizer), (0, "characters"));
}

#[test]
fn a_pace_is_usual_or_odd_in_its_own_language() {
    let dir = tempfile::tempdir().unwrap();
    // 24 clips of 17 characters a second, and as many of 5: neither is odd, but one of the fast ones among the slow is.
    let slow: Vec<(String, Vec<f32>, String)> = (0..24)
        .map(|index| {
            (format!("slow{index}"), tone(1.0, 0.5, 400.0 + index as f32), format!("fünf{}", char::from(b'a' + index)))
        })
        .chain([("odd".to_owned(), tone(1.0, 0.5, 500.0), "siebzehn Zeichen!".to_owned())])
        .collect();
    let slow: Vec<_> = slow.iter().map(|(id, samples, text)| (id.as_str(), samples.clone(), text.as_str())).collect();
    let mut corpus = corpus(dir.path(), &slow);
    name_language(&mut corpus, "de");
    let summary = found(&corpus, &config());
    assert_eq!((summary.pace["en"], summary.pace["de"]), (17.0, 5.0));
    let [problem] = &summary.problems[..] else { panic!("{:#?}", summary.problems) };
    assert!(problem.path.ends_with("odd.wav") && problem.kind == ProblemKind::Pace, "{problem}");
    assert!(problem.what.contains("17.0 characters a second where 5.0 are usual in `de`"), "{problem}");
}

#[test]
fn every_kind_of_problem_is_found_with_its_path_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let silence = [tone(0.2, 0.5, 250.0), vec![0.0; 12_800]].concat();
    let offset: Vec<f32> = tone(1.0, 0.5, 260.0).iter().map(|sample| sample + 0.05).collect();
    let fifty = "x".repeat(50);
    let odd = [
        ("long", tone(20.0, 0.5, 251.0), "twenty seconds"),
        ("short", tone(0.1, 0.5, 252.0), "too many letters"),
        ("text", tone(3.0, 0.5, 253.0), &*"sixty letters and more ".repeat(3)),
        ("clipped", tone(1.0, 3.0, 254.0), "fifteen letters, 1"),
        ("silent", silence, "fifteen letters, 2"),
        ("wrong", tone(1.0, 0.5, 255.0), &*fifty),
        ("broken", tone(1.0, 0.5, 256.0), "fifteen letters, 3"),
        ("offset", offset, "fifteen letters, 4"),
        ("picture", tone(1.0, 0.5, 257.0), "fifteen ☠ letters"),
        ("again", tone(1.0, 0.5, 200.0), "fifteen letters, 5"),
        ("parrot", tone(1.0, 0.5, 258.0), "Fifteen  letters A"),
    ];
    let corpus = corpus(dir.path(), &odd);
    fs::write(dir.path().join("broken.wav"), b"RIFF").unwrap();
    let summary = found(&corpus, &config());
    let kinds = [
        ProblemKind::TooLong,
        ProblemKind::TooShort,
        ProblemKind::TextTooLong,
        ProblemKind::Clipping,
        ProblemKind::Silence,
        ProblemKind::Pace,
        ProblemKind::Unreadable,
        ProblemKind::DcOffset,
        ProblemKind::UnknownCharacters,
        ProblemKind::DuplicateAudio,
        ProblemKind::DuplicateText,
    ];
    for ((index, (id, ..)), kind) in odd.iter().enumerate().zip(kinds) {
        let path = dir.path().join(format!("{id}.wav"));
        let problem = summary.problems.iter().find(|p| p.path == path && p.kind == kind);
        let problem = problem.unwrap_or_else(|| panic!("{id}: {:?}", summary.problems));
        assert!(problem.to_string().ends_with(&format!("(metadata.csv:{})", 25 + index)), "{problem}");
        assert!(summary.problem_counts[&kind] >= 1);
    }
    let good = |problem: &&CorpusProblem| problem.path.to_string_lossy().contains("/good");
    assert_eq!(summary.problems.iter().filter(good).count(), 0, "{:?}", summary.problems);
    assert_eq!((summary.rows, summary.clips), (35, 34));
    assert!(summary.problems.iter().any(|p| p.what.contains("the same sound as") && p.what.contains("good0.wav")));
}

#[test]
fn languages_are_detected_and_numbers_without_words_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let odd = [("swedish", tone(2.0, 0.5, 255.0), "Jag är 25 år och bor i Stockholm")];
    let mut corpus = corpus(dir.path(), &odd);
    name_language(&mut corpus, "sv");
    let mut config = config();
    config.data.language = AUTO.into();
    let summary = found(&corpus, &config);
    assert_eq!((summary.languages["sv"], summary.detected_languages), (1, 24));
    let told = summary.problems.iter().find(|problem| problem.kind == ProblemKind::UncoveredNumbers).unwrap();
    assert_eq!(told.what, "no words are known in `sv` for 25: write them out");
}

#[test]
fn the_cleaned_copy_lacks_bad_rows_and_the_original_stays() {
    let dir = tempfile::tempdir().unwrap();
    let wavs = dir.path().join("wavs");
    fs::create_dir(&wavs).unwrap();
    let odd = [
        ("long", tone(20.0, 0.5, 251.0), "twenty seconds"),
        ("clipped", tone(1.0, 3.0, 254.0), "fifteen letters, 1"),
        ("broken", tone(1.0, 0.5, 256.0), "fifteen letters, 3"),
    ];
    let mut metadata = "\u{feff}".to_owned();
    for (id, samples, text) in clips(&odd) {
        audio::write_wav(&wavs.join(format!("{id}.wav")), &samples, RATE_HZ).unwrap();
        metadata += &format!("{id}|{text}\r\n");
    }
    metadata += "\r\nabsent|A recording that is not there\r\n";
    fs::write(wavs.join("broken.wav"), b"RIFF").unwrap();
    let original = dir.path().join("metadata.csv");
    fs::write(&original, &metadata).unwrap();

    let corpus = corpus::read(dir.path(), &ReadOptions::default()).unwrap();
    let summary = found(&corpus, &config());
    let fixed = fix(&corpus, &summary, dir.path()).unwrap();
    let cleaned = dir.path().join("metadata.cleaned.csv");
    assert_eq!(fixed, [CleanedMetadata { path: cleaned.clone(), dropped: 3 }]);
    assert_eq!(fs::read_to_string(&original).unwrap(), metadata);
    let kept: String =
        metadata.split_inclusive('\n').filter(|l| !["long", "brok", "abse"].contains(&head(l))).collect();
    assert_eq!(fs::read_to_string(&cleaned).unwrap(), kept);

    // It is read when it is named, and does not get in the way when it is not.
    let again = corpus::read(&cleaned, &ReadOptions::default()).unwrap();
    assert_eq!((again.utterances.len(), again.problems.len()), (25, 0));
    assert_eq!(corpus::read(dir.path(), &ReadOptions::default()).unwrap().utterances.len(), 27);
    let kinds: Vec<ProblemKind> = found(&again, &config()).problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [ProblemKind::Clipping]);
}

fn head(line: &str) -> &str {
    &line[..line.len().min(4)]
}

#[test]
fn a_layout_without_a_list_is_cleaned_into_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| -> PathBuf {
        let folder = dir.path().join(name).join("p225");
        fs::create_dir_all(&folder).unwrap();
        folder
    };
    let (texts, wavs) = (folder("txt"), folder("wav48"));
    for (index, (_, samples, text)) in clips(&[("long", tone(20.0, 0.5, 251.0), "twenty")]).into_iter().enumerate() {
        fs::write(texts.join(format!("p225_{index:03}.txt")), text).unwrap();
        audio::write_wav(&wavs.join(format!("p225_{index:03}.wav")), &samples, RATE_HZ).unwrap();
    }
    let corpus = corpus::read(dir.path(), &ReadOptions::default()).unwrap();
    assert_eq!((corpus.utterances.len(), corpus.format), (25, CorpusFormat::Vctk));
    let fixed = fix(&corpus, &found(&corpus, &config()), dir.path()).unwrap();
    assert_eq!(fixed[0].dropped, 1);
    let again = corpus::read(&fixed[0].path, &ReadOptions::default()).unwrap();
    assert_eq!(again.problems, []);
    assert_eq!(again.utterances, corpus.utterances.iter().take(24).collect());
}
