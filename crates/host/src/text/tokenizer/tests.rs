use super::*;
use crate::corpus::Utterance;
use proptest::prelude::*;

fn english() -> Tokenizer {
    Tokenizer::fit([("Hello, world.", "en")].into_iter())
}

fn utterance(text: &str, language: Option<&str>) -> Utterance {
    Utterance {
        id: text.into(),
        audio: "a.wav".into(),
        text: text.into(),
        speaker: "s".into(),
        language: language.map(String::from),
    }
}

/// Truth: the order of ids in the module's first lines; the base vocabulary in code-point order starts with " !\"'".
#[test]
fn ids_are_tag_then_characters() {
    let tokenizer = english();
    assert_eq!(tokenizer.encode(" !\"'", "en").unwrap(), [2, 4, 5, 6], "the leading space is no part of the text");
    assert_eq!(tokenizer.encode("A b", ""), tokenizer.encode("a  b", "en"));
    assert_eq!(tokenizer.encode("ß", "de").unwrap(), [1, 1]);
    assert_eq!(tokenizer.encode("5", "en"), tokenizer.encode("five", "en"));
    assert_eq!(tokenizer.vocab_size(), 2 + 1 + BASE.chars().count());
    assert_eq!(tokenizer.unknown("straße? ß!", "en"), ['ß']);
}

#[test]
fn persian_letters_are_learned() {
    let text = "می‌خواهم به خانه بروم؟";
    let tokenizer = Tokenizer::fit([(text, "fa"), ("Home.", "en")].into_iter());
    let ids = tokenizer.encode(text, "fa").unwrap();
    assert_eq!(ids.len(), 1 + text.chars().count());
    assert!(ids.iter().all(|&id| id > UNKNOWN) && ids[0] == 3);
    let letters = text.chars().filter(|c| *c != ' ').collect::<BTreeSet<_>>();
    assert_eq!(english().unknown(text, "fa").len(), letters.len());
}

#[test]
fn a_language_is_detected_among_those_of_the_corpus() {
    let texts =
        [("Wo sind meine Schlüssel?", "auto"), ("The train leaves in twenty minutes.", "auto"), ("1469", "auto")];
    let tokenizer = Tokenizer::fit(texts.into_iter());
    assert_eq!(tokenizer.languages, ["de", "en"]);
    assert_eq!(tokenizer.language("Das ist ja eine Überraschung!", "auto"), "de");
    assert_eq!(tokenizer.language("Où sont mes clés ?", "fr"), "fr", "what is named is not detected");
    assert_eq!(english().language("Das ist ja eine Überraschung!", "auto"), "en", "there is no other");
}

#[test]
fn a_language_detected_once_in_a_hundred_is_a_mistake() {
    let english = std::iter::repeat_n(("The train leaves in twenty minutes.", "auto"), 99);
    let tokenizer = Tokenizer::fit(english.chain([("Das ist ja eine Überraschung!", "auto")]));
    assert_eq!(tokenizer.languages, ["en"]);
}

#[test]
fn json_round_trip_and_order() {
    let tokenizer = Tokenizer::fit([("Grüße", "de"), ("été", "fr")].into_iter());
    let json = serde_json::to_string(&tokenizer).unwrap();
    assert!(json.contains(r#""kind":"characters""#));
    assert_eq!(serde_json::from_str::<Tokenizer>(&json).unwrap(), tokenizer);
    let shuffled = r#"{"kind":"characters","languages":["fr","de"],"usual":"fr","characters":["a"]}"#;
    assert!(serde_json::from_str::<Tokenizer>(shuffled).unwrap_err().to_string().contains("sorted"));
}

#[test]
fn fingerprint_follows_the_vocabulary() {
    assert_eq!(english().fingerprint(), Tokenizer::fit([("World, hello!", "en")].into_iter()).fingerprint());
    assert_ne!(english().fingerprint(), Tokenizer::fit([("Hello", "de")].into_iter()).fingerprint());
    assert_ne!(english().fingerprint(), Tokenizer::fit([("Grüße", "en")].into_iter()).fingerprint());
}

#[test]
fn phonemes_are_taken_where_they_can_be() {
    let corpus = Utterances::from_iter([utterance("Hello, world.", Some("en"))]);
    let chosen = Tokenizer::of_corpus(&corpus, "auto", TokenizerKind::Auto).unwrap();
    if POOL.version().is_err() {
        assert!(chosen.describe().starts_with("characters (espeak-ng: not found"), "{}", chosen.describe());
        assert_eq!(Tokenizer::of_corpus(&corpus, "auto", TokenizerKind::Phonemes), Err(Error::Absent));
        return crate::skipped("espeak-ng is not installed");
    }
    assert!(chosen.describe().starts_with("phonemes, by espeak-ng "));
    let ids = chosen.encode("Hello, world.", "en").unwrap();
    assert_eq!((ids[0] as usize, ids.len() % 2), (chosen.vocab_size() - 1, 0));
    assert!(ids.chunks(2).all(|pair| pair[0] > UNKNOWN && pair[1] == BLANK), "a blank behind every token: {ids:?}");
    let other =
        Tokenizer::of_corpus(&Utterances::from_iter([utterance("Bye", Some("en"))]), "auto", TokenizerKind::Phonemes)
            .unwrap();
    assert_eq!(other.encode("Hello, world.", "en").unwrap(), ids, "ids do not depend on the corpus");
    let stored: Tokenizer = serde_json::from_str(&serde_json::to_string(&chosen).unwrap()).unwrap();
    assert_eq!((stored.check(), &stored), (Ok(None), &chosen));
    // A language that cannot be read: chosen characters say why, asked-for phonemes are refused.
    let unreadable = Utterances::from_iter([utterance("abc", Some("xx"))]);
    assert!(Tokenizer::of_corpus(&unreadable, "auto", TokenizerKind::Auto).unwrap().describe().contains("no voice"));
    assert!(matches!(Tokenizer::of_corpus(&unreadable, "auto", TokenizerKind::Phonemes), Err(Error::NoVoice { .. })));
}

#[test]
fn a_language_without_a_voice_is_spelled_and_the_others_are_not() {
    let Ok(_) = POOL.version() else { return crate::skipped("espeak-ng is not installed") };
    let clips =
        [utterance("Hello, world.", Some("en")), utterance("Zo żyć.", Some("xx")), utterance("Ja.", Some("de"))];
    let corpus = Utterances::from_iter(clips.clone());
    let mixed = Tokenizer::of_corpus(&corpus, "auto", TokenizerKind::Auto).unwrap();
    assert_eq!(["de", "en", "xx"].map(|code| mixed.symbols_of(code)), ["phonemes", "phonemes", "characters"]);
    assert!(
        mixed.describe().ends_with("for 2 languages; characters for xx, which it cannot read"),
        "{}",
        mixed.describe()
    );
    let plain = Tokenizer::of_corpus(&clips.into_iter().take(1).collect(), "auto", TokenizerKind::Auto).unwrap();
    let body = |tokenizer: &Tokenizer| tokenizer.encode("Hello, world.", "en").unwrap()[1..].to_vec();
    assert_eq!(body(&mixed), body(&plain), "phonemes keep their ids");
    let ids = mixed.encode("zo żyć", "xx").unwrap();
    assert!(ids.chunks(2).all(|pair| pair[0] > UNKNOWN && pair[1] == BLANK) && ids.len() == 2 + 2 * 6, "{ids:?}");
    let last = *ids.iter().max().unwrap() as usize;
    assert!(last < mixed.vocab_size() && mixed.names().len() == mixed.vocab_size(), "{last}");
    assert_eq!((mixed.unknown("żq", "xx"), mixed.unknown("żq", "en")), (vec!['q'], vec![]));
    let stored: Tokenizer = serde_json::from_str(&serde_json::to_string(&mixed).unwrap()).unwrap();
    assert_eq!((stored.check(), &stored, stored.fingerprint()), (Ok(None), &mixed, mixed.fingerprint()));
    assert_ne!(mixed.fingerprint(), plain.fingerprint());
    let joined = plain.joined(&mixed).unwrap();
    assert_eq!((joined.symbols_of("xx"), joined.unknown("ż", "xx")), ("characters", vec![]));
}

/// Features that were cached before some languages could be spelled are found again.
#[test]
fn the_name_of_cached_tokens_is_what_it_was() {
    let stored = r#"{"kind":"phonemes","languages":["en"],"usual":"en","espeak_ng":"0.1"}"#;
    let tokenizer: Tokenizer = serde_json::from_str(stored).unwrap();
    assert_eq!(serde_json::to_string(&tokenizer).unwrap(), stored);
    let version = POOL.version().unwrap_or_else(|_| "0.1".into());
    let content = (normalize::VERSION, ["en"], "en", None::<Vec<char>>, version, *phonemes::COUNT, 2);
    assert_eq!(tokenizer.fingerprint(), blake3::hash(format!("{content:?}").as_bytes()).to_hex()[..32]);
}

#[test]
fn another_version_of_the_program_is_told() {
    let stored = r#"{"kind":"phonemes","languages":["en"],"usual":"en","espeak_ng":"0.1"}"#;
    let tokenizer: Tokenizer = serde_json::from_str(stored).unwrap();
    match tokenizer.check() {
        Ok(note) => assert!(note.is_some_and(|note| note.contains("0.1"))),
        Err(error) => assert_eq!(error, Error::Absent),
    }
}

proptest! {
    #[test]
    fn ids_stay_inside_the_vocabulary(seen in any::<String>(), text in any::<String>(), language in "[a-z]{0,3}") {
        let tokenizer = Tokenizer::fit([(seen.as_str(), "en")].into_iter());
        let ids = tokenizer.encode(&text, &language).unwrap();
        prop_assert!(ids.iter().all(|&id| id >= 1 && (id as usize) < tokenizer.vocab_size()));
        prop_assert!(tokenizer.unknown(&seen, "en").is_empty());
    }
}

#[test]
fn a_text_may_be_cut_behind_spaces_and_punctuation() {
    let breaks = english().breaks();
    let ids = english().encode("it's, we'll", "en").unwrap();
    let found: Vec<bool> = ids.iter().map(|id| breaks.binary_search(id).is_ok()).collect();
    assert_eq!(found.iter().enumerate().filter(|(_, b)| **b).map(|(at, _)| at).collect::<Vec<_>>(), [5, 6]);
}
