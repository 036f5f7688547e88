use super::*;

/// Ten sentences of each language, known while the hints were written.
const SENTENCES: &str = include_str!("sentences.tsv");
/// Five of two to seven words of each, written after the hints and never used to change them.
const SHORT: &str = include_str!("short.tsv");

fn right(lines: &str) -> (usize, usize) {
    let rows: Vec<_> = lines.lines().filter_map(|line| line.split_once('\t')).collect();
    (rows.iter().filter(|(code, text)| detect(text) == Some(code)).count(), rows.len())
}

/// The floors are what was measured: fewer right answers than these would be a step back.
#[test]
fn accuracy_does_not_fall() {
    let ((known, of_known), (short, of_short)) = (right(SENTENCES), right(SHORT));
    assert_eq!((of_known, of_short), (170, 85));
    assert!(known >= 167 && short >= 73, "{known} of 170, {short} of 85");
}

#[test]
fn scripts_and_letters_settle_it() {
    assert_eq!(detect("안녕"), Some("ko"));
    assert_eq!(detect("おはよう世界"), Some("ja"));
    assert_eq!(detect("世界"), Some("zh"));
    assert_eq!(detect("چ"), Some("fa"));
    assert_eq!(detect("مدرسة"), Some("ar"));
    assert_eq!(detect("1469, 1470;"), None);
    assert_eq!(detect(""), None);
}

#[test]
fn only_the_languages_asked_for_are_found() {
    let detector = Detector::of(&["de", "pt-br"]);
    assert_eq!(detector.detect("안녕하세요"), None);
    assert_eq!(detector.detect("O meu irmão trabalha numa pequena padaria."), Some("pt"));
    assert_eq!(Detector::of(&["sv"]).detect("hej"), None);
    assert_eq!(Detector::of(&["sv", "en"]).detect("hej"), Some("en"));
}
