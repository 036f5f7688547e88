//! With the real program where it is installed; what needs no program is tested everywhere.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn installed() -> bool {
    POOL.version().is_ok()
}

#[test]
fn every_symbol_has_one_position() {
    let symbols: std::collections::BTreeSet<char> = IPA.chars().collect();
    assert_eq!(symbols.len(), IPA.chars().count());
    assert_eq!(*COUNT, IPA.chars().count() + 10);
}

#[test]
fn text_is_cut_at_punctuation_and_not_inside_words() {
    let told = |text| {
        let mark = |mark: usize| PUNCTUATION.chars().nth(mark).map(String::from).unwrap_or_default();
        let told = |part: Part| {
            part.spoken().map_or_else(|| if let Part::Mark(at) = part { mark(at) } else { String::new() }, String::from)
        };
        parts(text).into_iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(told("well-known, don't: yes!"), ["well-known", ",", "don't", ":", "yes", "!"]);
    assert_eq!(told("so - he said"), ["so", "-", "he said"]);
    assert_eq!(told("سلام، خوبی؟"), ["سلام", ",", "خوبی", "?"]);
    assert_eq!(told("a 😀 b [[x]]"), ["a", "b", "x"]);
    assert!(told("").is_empty());
}

#[test]
fn notes_of_other_voices_are_no_phonemes() {
    assert_eq!(plain(" (en)hə-lˈoʊ(fa) a ").collect::<String>(), "həlˈoʊ a");
}

/// Truth: `echo 'hello world' | espeak-ng -q --ipa -v en-us` with 1.51.
#[test]
fn a_sentence_is_read_with_its_punctuation() {
    if !installed() {
        return crate::skipped("espeak-ng is not installed");
    }
    let positions = read("hello world, yes.", "en", &POOL).unwrap();
    let all: Vec<char> = IPA.chars().chain(PUNCTUATION.chars()).collect();
    let told: String = positions.into_iter().map(|at| at.map_or('\u{fffd}', |at| all[at])).collect();
    assert_eq!(told, "həlˈoʊ wˈɜːld, jˈɛs.");
}

#[test]
fn long_clauses_come_back_whole() {
    if !installed() {
        return crate::skipped("espeak-ng is not installed");
    }
    let words =
        |text: &str| POOL.read(&[text, "end"], "en").unwrap().iter().map(|a| a.split(' ').count()).collect::<Vec<_>>();
    assert_eq!(words(&"word ".repeat(600)), [600, 1]);
    assert_eq!(words("zyxwv qjkxz").len(), 2, "the sentinel itself is a text like any other");
}

#[test]
fn threads_get_the_answers_to_their_own_questions() {
    if !installed() {
        return crate::skipped("espeak-ng is not installed");
    }
    let words = ["one", "two", "three", "four", "five", "six"];
    let alone: Vec<_> = words.iter().map(|word| POOL.read(&[word], "en").unwrap()).collect();
    std::thread::scope(|scope| {
        for (word, answer) in words.iter().zip(&alone) {
            scope.spawn(move || (0..20).for_each(|_| assert_eq!(POOL.read(&[word], "en").unwrap(), *answer)));
        }
    });
}

#[test]
fn languages_that_cannot_be_read_are_refused() {
    if !installed() {
        return crate::skipped("espeak-ng is not installed");
    }
    assert_eq!(POOL.check("xx"), Err(Error::NoVoice { language: "xx".into() }));
    for language in ["en", "de", "pt-br", "fa", "en-gb"] {
        POOL.check(language).unwrap();
    }
    // As 1.51 does; a later one may learn to.
    if POOL.version().unwrap() == "1.51" {
        assert_eq!(POOL.check("ja"), Err(Error::Unreadable { language: "ja".into() }));
        assert!(POOL.check("zh").is_ok());
    }
}

#[test]
fn an_absent_program_is_an_error() {
    let pool = Pool::new("no-such-espeak-ng");
    assert_eq!(pool.version(), Err(Error::Absent));
    assert_eq!(pool.read(&["a"], "en"), Err(Error::Absent));
    assert!(crate::error::Explained::of(&Error::Absent).to_string().contains("hint:"));
}

/// A stand-in that answers every line with itself, and ends when it reads `die`.
fn stand_in(folder: &std::path::Path) -> String {
    let path = folder.join("espeak");
    let script = "#!/bin/sh\nwhile read -r line; do [ \"$line\" = die ] && exit 0; echo \"$line\"; done\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_process_that_ends_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Pool::new(&stand_in(folder.path()));
    assert_eq!(pool.read(&["a", "b"], "en").unwrap(), ["a", "b"]);
    assert!(matches!(pool.read(&["die"], "en"), Err(Error::Failed(_))));
    assert_eq!(pool.read(&["c"], "en").unwrap(), ["c"], "with a new process");
}
