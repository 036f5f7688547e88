//! Long text in pieces that a voice can say in one breath: sentences, clauses where those are too long, words where
//! there is no punctuation, and graphemes where there are no words. It looks at a window of the text only, so a book
//! costs no more memory than a line.

use super::language::Language;
use unicode_segmentation::UnicodeSegmentation;

/// Characters below which a sentence is said together with the next: alone it sounds clipped.
const SHORT: usize = 40;
/// Least and most characters of a stream's first piece: soon said, and not so short that it sounds clipped.
const EARLY: (usize, usize) = (12, 48);
/// Characters below which a line ends a piece (a title, a verse); longer ones may just be wrapped.
const SHORT_LINE: usize = 40;
/// Length of a window as a multiple of the longest piece: enough to halve a sentence that is too long in its middle.
const WINDOW: usize = 3;
/// Abbreviations that may also end a sentence; the others of a language never do.
const MAY_END: &str =
    "etc. usw. u.s.w. jr. sr. inc. ltd. co. a.m. p.m. т.д. т.п. др. г. гг. itd. itp. atd. enz. vb. stb.";
/// Marks behind which a clause ends. Those of East Asia need no space behind them, nor does a dash.
const SPACED: &str = ",;:–…،؛﹔·";
const CLOSE: &str = "、，；：—";

/// How a piece ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The piece ends between words, or inside one: it had to end somewhere.
    Cut,
    Clause,
    Sentence,
    Paragraph,
}

/// A part of a text that is said in one breath.
#[derive(Debug, PartialEq)]
pub struct Piece<'a> {
    pub text: &'a str,
    pub end: End,
    /// Where the next piece begins, in bytes of the whole text.
    pub next: usize,
}

/// Cuts texts of one language into pieces.
#[derive(Clone)]
pub struct Splitter {
    language: Option<&'static Language>,
    /// Characters of the longest piece.
    most: usize,
}

impl Splitter {
    pub fn new(language: &str, most: usize) -> Self {
        Splitter { language: Language::of(language), most: most.max(1) }
    }

    /// A splitter for pieces half as long.
    pub fn halved(&self) -> Self {
        Splitter { most: (self.most / 2).max(1), ..self.clone() }
    }

    /// The piece from `at` on; none where only white space is left. `early`: as short as it may be.
    pub fn next<'a>(&self, text: &'a str, at: usize, early: bool) -> Option<Piece<'a>> {
        let start = text.len() - text[at..].trim_start().len();
        let rest = &text[start..];
        if rest.is_empty() {
            return None;
        }
        let window = first_characters(rest, WINDOW * self.most);
        let hard = hard_end(text, start, window.len());
        let body = &window[..hard.unwrap_or(window.len())];
        let sure = hard.is_some() || window.len() == rest.len();
        let (least, most) = if early { EARLY } else { (SHORT, self.most) };
        let (len, end) = self.choose(body, sure, least, most.min(self.most), early);
        let behind = &rest[len..];
        let space = behind.len() - behind.trim_start().len();
        let lines = behind[..space].matches('\n').count();
        let end = match lines {
            0 => end,
            1 => {
                if hard == Some(len) {
                    end.max(End::Sentence)
                } else {
                    end
                }
            }
            _ => End::Paragraph,
        };
        Some(Piece { text: rest[..len].trim_end(), end, next: start + len + space })
    }

    /// Bytes of the first piece of `body`, and how it ends. `sure`: the body ends where something ends.
    fn choose(&self, body: &str, sure: bool, least: usize, most: usize, early: bool) -> (usize, End) {
        let flat = flat(body);
        let fit = first_characters(&flat, most).len();
        let sentences = self.sentence_ends(&flat, sure);
        let mut ends: Vec<(usize, End)> = sentences.iter().map(|&at| (at, End::Sentence)).collect();
        if early {
            ends.extend(clause_ends(&flat).map(|at| (at, End::Clause)));
            ends.sort_unstable();
        }
        let fitting = || ends.iter().copied().filter(|(at, _)| *at <= fit);
        let long_enough = |(at, _): &(usize, End)| flat[..*at].chars().count() >= least;
        if let Some(found) = fitting().find(long_enough).or_else(|| fitting().next_back()) {
            return found;
        }
        // One sentence that is too long: in parts of about the same length.
        let whole = sentences.first().copied().unwrap_or(flat.len());
        let parts = flat[..whole].chars().count().div_ceil(most).max(1);
        let middle = whole / parts;
        let clauses = clause_ends(&flat).filter(|at| (fit / 4..=fit).contains(at));
        if let Some(at) = clauses.min_by_key(|at| at.abs_diff(middle)) {
            return (at, End::Clause);
        }
        (word_end(&flat, fit), End::Cut)
    }

    /// Bytes at which sentences end; the last one is the end of the text where that is `sure`.
    fn sentence_ends(&self, flat: &str, sure: bool) -> Vec<usize> {
        let bounds = flat.split_sentence_bound_indices().map(|(start, sentence)| start + sentence.len());
        let real = |at: &usize| if *at == flat.len() { sure } else { self.ends_sentence(&flat[..*at], &flat[*at..]) };
        bounds.filter(real).map(|at| flat[..at].trim_end().len()).collect()
    }

    /// Whether a full stop is one, and not part of an abbreviation, an initial or an ordinal.
    fn ends_sentence(&self, before: &str, after: &str) -> bool {
        let before = before.trim_end().trim_end_matches(['"', '\'', ')', '”', '’', '»']);
        let Some(stem) = before.strip_suffix('.') else { return true };
        let word =
            stem.rsplit(char::is_whitespace).next().unwrap_or(stem).trim_start_matches(|c: char| !c.is_alphanumeric());
        if word.chars().count() == 1 && word.chars().all(char::is_alphabetic) {
            return false;
        }
        let Some(language) = self.language else { return true };
        let counted = !word.is_empty() && word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
        if counted && language.dot_ordinals.is_some() {
            return false;
        }
        let numbered = after.starts_with(|c: char| c.is_ascii_digit());
        let tail: String = before.chars().rev().take(24).collect::<Vec<_>>().into_iter().rev().collect();
        let tail = tail.to_lowercase();
        let written = |(written, _): &&(&str, &str)| {
            let bare = written.trim_end_matches('#');
            let alone = tail.strip_suffix(bare).is_some_and(|rest| !rest.ends_with(char::is_alphanumeric));
            bare.ends_with('.') && alone && (bare.len() == written.len() || numbered)
        };
        match language.abbreviations.iter().find(written) {
            Some((written, _)) => {
                let closed: String = written.split_whitespace().collect();
                MAY_END.split(' ').any(|known| known == closed) && after.starts_with(char::is_uppercase)
            }
            None => true,
        }
    }
}

/// A text's beginning, of no more than so many characters.
fn first_characters(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| &text[..at])
}

/// A text in one line. Line breaks are spaces: where a line ends a piece, `hard_end` has found it. Bytes stay where
/// they are.
fn flat(text: &str) -> String {
    text.chars().map(|letter| if matches!(letter, '\n' | '\r' | '\t') { ' ' } else { letter }).collect()
}

/// Bytes behind `start` where a paragraph or a short line ends, within a window.
fn hard_end(text: &str, start: usize, window: usize) -> Option<usize> {
    let mut ends = text[start..start + window].match_indices('\n').map(|(at, _)| start + at);
    let short = |at: usize| {
        let line = text[..at].chars().rev().take(SHORT_LINE).take_while(|letter| *letter != '\n');
        line.count() < SHORT_LINE
    };
    ends.find(|&at| short(at) || is_blank(&text[at + 1..])).map(|at| text[start..at].trim_end().len())
}

/// Whether the next line has nothing in it.
fn is_blank(behind: &str) -> bool {
    behind.trim_start_matches([' ', '\t', '\r']).starts_with('\n')
}

/// Bytes behind the marks that end clauses.
fn clause_ends(flat: &str) -> impl Iterator<Item = usize> + '_ {
    flat.char_indices().filter_map(|(at, mark)| {
        let end = at + mark.len_utf8();
        let behind = flat[end..].chars().next();
        let spaced = SPACED.contains(mark) && behind.is_none_or(char::is_whitespace);
        let hyphen = mark == '-' && flat[..at].ends_with(' ') && behind == Some(' ');
        (spaced || hyphen || CLOSE.contains(mark)).then_some(end)
    })
}

/// The last end of a word within `fit` bytes; where words have no spaces between them, the last bound of one; inside an
/// endless one, of a grapheme.
fn word_end(flat: &str, fit: usize) -> usize {
    if fit == flat.len() || flat[fit..].starts_with(char::is_whitespace) {
        return fit;
    }
    let head = &flat[..fit];
    if let Some(space) = head.rfind(char::is_whitespace).filter(|space| !head[..*space].trim().is_empty()) {
        return head[..space].trim_end().len();
    }
    // Segments from the start: the bounds of a text do not depend on what lies far behind them.
    let last = |bounds: &mut dyn Iterator<Item = usize>| bounds.take_while(|at| *at <= fit).last().filter(|at| *at > 0);
    last(&mut flat.split_word_bound_indices().map(|(at, _)| at))
        .or_else(|| last(&mut flat.grapheme_indices(true).map(|(at, _)| at)))
        .unwrap_or(fit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split<'a>(text: &'a str, language: &str, most: usize, early: bool) -> Vec<Piece<'a>> {
        let splitter = Splitter::new(language, most);
        let (mut at, mut pieces) = (0, Vec::new());
        while let Some(piece) = splitter.next(text, at, early && pieces.is_empty()) {
            at = piece.next;
            pieces.push(piece);
        }
        pieces
    }

    fn texts<'a>(text: &'a str, language: &str, most: usize) -> Vec<&'a str> {
        split(text, language, most, false).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn sentences_end_where_a_reader_would_end_them() {
        let cases: [(&str, &str, &[&str]); 12] = [
            (
                "en",
                "Dr. Smith paid $3.50 to J. R. R. Tolkien, Jr. of No. 5 today. He left at 5 p.m. and went home.",
                &["Dr. Smith paid $3.50 to J. R. R. Tolkien, Jr. of No. 5 today.", "He left at 5 p.m. and went home."],
            ),
            (
                "en",
                "We have bread, butter, cheese, wine and tea, etc. Then we had nothing left to eat at all!",
                &["We have bread, butter, cheese, wine and tea, etc.", "Then we had nothing left to eat at all!"],
            ),
            (
                "en",
                "He said: \"I shall come tomorrow, whatever comes.\" And so, at long last, he really did come?",
                &["He said: \"I shall come tomorrow, whatever comes.\"", "And so, at long last, he really did come?"],
            ),
            (
                "de",
                "Am 5. Mai kam z. B. Herr Dr. Müller um 9.30 Uhr zu uns. Danach gingen wir alle zusammen nach Hause.",
                &[
                    "Am 5. Mai kam z. B. Herr Dr. Müller um 9.30 Uhr zu uns.",
                    "Danach gingen wir alle zusammen nach Hause.",
                ],
            ),
            (
                "fr",
                "M. Dupont a payé 3,50 euros pour le pain et le vin ! Est-ce que vous le saviez, madame, ou non ?",
                &[
                    "M. Dupont a payé 3,50 euros pour le pain et le vin !",
                    "Est-ce que vous le saviez, madame, ou non ?",
                ],
            ),
            (
                "ru",
                "Он родился в 1990 г. в Москве, на ул. Тверской, и т. д. и т. п. вот так. Потом он уехал жить в Париж.",
                &[
                    "Он родился в 1990 г. в Москве, на ул. Тверской, и т. д. и т. п. вот так.",
                    "Потом он уехал жить в Париж.",
                ],
            ),
            (
                "fa",
                "آیا شما امروز صبح زود به مدرسه رفتید یا در خانه ماندید؟ من امروز تمام روز را در خانه ماندم و کتاب خواندم.",
                &[
                    "آیا شما امروز صبح زود به مدرسه رفتید یا در خانه ماندید؟",
                    "من امروز تمام روز را در خانه ماندم و کتاب خواندم.",
                ],
            ),
            (
                "ar",
                "هل ذهبت اليوم إلى المدرسة في الصباح الباكر يا صديقي؟ لا، بقيت في البيت طوال اليوم وقرأت كتابا جديدا.",
                &[
                    "هل ذهبت اليوم إلى المدرسة في الصباح الباكر يا صديقي؟",
                    "لا، بقيت في البيت طوال اليوم وقرأت كتابا جديدا.",
                ],
            ),
            (
                "zh",
                "今天早上天气很好，我们一起去公园散步，看到了很多漂亮的花，还有小鸟在唱歌，大家都非常高兴。后来下雨了，我们就跑回家里喝热茶，一边聊天一边听着窗外的雨声，真的很舒服，大家都笑了起来！",
                &[
                    "今天早上天气很好，我们一起去公园散步，看到了很多漂亮的花，还有小鸟在唱歌，大家都非常高兴。",
                    "后来下雨了，我们就跑回家里喝热茶，一边聊天一边听着窗外的雨声，真的很舒服，大家都笑了起来！",
                ],
            ),
            (
                "hi",
                "आज सुबह मौसम बहुत अच्छा था और हम सब बाहर घूमने गए। फिर शाम को बारिश हुई और हम घर वापस आ गए।",
                &["आज सुबह मौसम बहुत अच्छा था और हम सब बाहर घूमने गए।", "फिर शाम को बारिश हुई और हम घर वापस आ गए।"],
            ),
            (
                "en",
                "Yes. No. Perhaps. That is all that I am able to say about this matter. Ask somebody else, I beg you.",
                &[
                    "Yes. No. Perhaps. That is all that I am able to say about this matter.",
                    "Ask somebody else, I beg you.",
                ],
            ),
            (
                "en",
                "The wrapped line of a letter goes on and on and\non in the next one. A second sentence follows it here.",
                &[
                    "The wrapped line of a letter goes on and on and\non in the next one.",
                    "A second sentence follows it here.",
                ],
            ),
        ];
        for (language, text, wanted) in cases {
            assert_eq!(texts(text, language, 200), wanted, "{language}");
        }
    }

    #[test]
    fn paragraphs_and_short_lines_end_pieces() {
        let pieces = split("A title\nThe text under it, which is one line.\n\n  Next one.\n", "en", 200, false);
        let told: Vec<(&str, End)> = pieces.iter().map(|piece| (piece.text, piece.end)).collect();
        let wanted = [
            ("A title", End::Sentence),
            ("The text under it, which is one line.", End::Paragraph),
            ("Next one.", End::Sentence),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_long_sentence_is_cut_near_its_middle_and_a_stream_begins_with_a_clause() {
        let text =
            "When the sun rises over the hill, and the birds begin to sing, the old fox wakes, and looks around.";
        let halves = split(text, "en", 70, false);
        assert_eq!(halves.len(), 2);
        assert_eq!((halves[0].text, halves[0].end), (&text[..62], End::Clause));
        let early = split(text, "en", 200, true);
        assert_eq!((early[0].text, early[0].end), ("When the sun rises over the hill,", End::Clause));
        assert_eq!(early.len(), 2, "the rest is one sentence");
        let digits = split("It cost 1,000,000 dollars and 3,5 more or so they say.", "en", 30, true);
        assert!(digits.iter().all(|piece| !piece.text.ends_with(',')), "{digits:?}");
    }

    #[test]
    fn what_has_no_ends_is_cut_between_words_or_graphemes() {
        let words = "word ".repeat(100);
        assert!(texts(&words, "en", 52).iter().all(|piece| piece.ends_with("word") && piece.len() <= 52));
        let family = "👨‍👩‍👧".repeat(50);
        let whole = "👨‍👩‍👧".chars().count();
        assert!(texts(&family, "en", 52).iter().all(|piece| piece.chars().count() % whole == 0));
        assert_eq!(texts(&"a".repeat(100_000), "en", 200).len(), 500);
        let marks = "e".to_owned() + &"\u{301}".repeat(1000);
        assert!(texts(&marks, "en", 200).iter().all(|piece| piece.chars().count() <= 200));
    }

    #[test]
    fn megabytes_take_linear_time() {
        for text in [" \n".repeat(1 << 20), "no end in sight ".repeat(1 << 16), "Dr. ".repeat(1 << 18)] {
            let began = std::time::Instant::now();
            split(&text, "en", 200, false);
            assert!(began.elapsed().as_secs() < 60, "{} bytes", text.len());
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_limits_hold(
            text in r"([a-z]{1,12}|[A-Z][a-z]{0,6}|[0-9]{1,5}|[.,;:!?…—، 、。؟।\n-]|Dr\.|\u{301}|🙂|日本|\t|\u{2029}){0,80}",
            most in 1usize..120, early: bool, code in prop::sample::select(vec!["en", "de", "zh", "xx"]),
        ) {
            let pieces = split(&text, code, most, early);
            let said: String = pieces.iter().flat_map(|piece| piece.text.split_whitespace()).collect();
            let given: String = text.split_whitespace().collect();
            prop_assert_eq!(said, given);
            for piece in &pieces {
                prop_assert!(!piece.text.is_empty() && piece.text.chars().count() <= most, "{:?}", piece);
            }
        }

        #[test]
        fn any_text_is_safe(text in any::<String>(), most in 1usize..50, early: bool) {
            let said: String = split(&text, "en", most, early).iter().flat_map(|p| p.text.split_whitespace()).collect();
            prop_assert_eq!(said, text.split_whitespace().collect::<String>());
        }
    }
}
