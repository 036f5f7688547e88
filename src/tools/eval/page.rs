//! A page to listen with: recordings and what became of them, side by side, in one file. It holds its sound and asks nothing
//! of anybody: no script, no address.

use super::evaluation::SharedFigure;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use host::audio::{self, AudioFormat, Encoder, Waveform};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

const TEMPLATE: &str = include_str!("page.html");
/// Players on a page, about.
const PLAYERS: usize = 12;

/// One way in which every sentence can be heard.
pub struct Column {
    pub name: &'static str,
    pub about: &'static str,
    /// Id and file of each sentence.
    pub files: Vec<(String, PathBuf)>,
}

/// A sentence that can be heard.
pub struct Sentence {
    pub id: String,
    pub text: String,
    pub speaker: String,
    pub language: Option<String>,
}

/// Writes the page: about a dozen players, for sentences that all columns have, from all over the list.
pub fn page(
    path: &Path,
    title: &str,
    columns: &[Column],
    sentences: &[Sentence],
    figures: &[SharedFigure],
) -> Result<()> {
    let in_all = |sentence: &&Sentence| columns.iter().all(|column| column.file(&sentence.id).is_some());
    let whole: Vec<&Sentence> = sentences.iter().filter(in_all).collect();
    let mut body = String::from("<dl>");
    for Column { name, about, .. } in columns {
        let _ = write!(body, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(about));
    }
    body += "</dl>\n";
    for sentence in spread(&whole, PLAYERS.div_ceil(columns.len().max(1))) {
        body += &section(sentence, columns)?;
    }
    body += &table(columns, figures);
    // Styles carry a number that no text can know, so nothing that was spoken can become one.
    let nonce = format!("{:016x}", RandomState::new().hash_one(0u8));
    let page = TEMPLATE.replace("{nonce}", &nonce).replace("{title}", &escaped(title)).replace("{body}", &body);
    fs::write(path, page).with_context(|| format!("{}: cannot be written", path.display()))
}

impl Column {
    fn file(&self, id: &str) -> Option<&Path> {
        self.files.iter().find(|(other, _)| other == id).map(|(_, path)| path.as_path())
    }
}

/// Some of them, as far from each other as can be.
fn spread<'a>(sentences: &[&'a Sentence], count: usize) -> Vec<&'a Sentence> {
    let (all, count) = (sentences.len(), count.min(sentences.len()));
    let places: BTreeSet<usize> = (0..count).map(|number| number * all / count).collect();
    places.into_iter().map(|at| sentences[at]).collect()
}

fn section(sentence: &Sentence, columns: &[Column]) -> Result<String> {
    let Sentence { id, text, speaker, language } = sentence;
    let language = language.as_ref().map(|code| format!(" lang=\"{}\"", escaped(code))).unwrap_or_default();
    let text = escaped(text);
    let mut section = format!("<section><h2 dir=\"auto\"{language}>{text}</h2>\n<ul class=\"players\">\n");
    for column in columns {
        let Some(file) = column.file(id) else { continue };
        let (name, sound) = (escaped(column.name), STANDARD.encode(flac(file)?));
        // A screen reader says which one it is; a browser's own player has its keys.
        let _ = writeln!(
            section,
            "<li><span class=\"label\" aria-hidden=\"true\">{name}</span><audio controls preload=\"metadata\" \
             aria-label=\"{name}: {text}\" src=\"data:audio/flac;base64,{sound}\"></audio></li>"
        );
    }
    let _ = writeln!(section, "</ul><p class=\"speaker\">{} · {}</p></section>", escaped(speaker), escaped(id));
    Ok(section)
}

/// Lossless, so that what is heard is what was made; every browser plays it.
fn flac(path: &Path) -> Result<Vec<u8>> {
    let Waveform { samples, rate_hz } = audio::decode(path)?;
    let mut encoder = Encoder::new(AudioFormat::Flac, rate_hz, rate_hz)?;
    let frames = [encoder.push(&samples), encoder.finish()].concat();
    Ok([encoder.header(), frames].concat())
}

/// The first column is the recordings, which figures are of the others.
fn table(columns: &[Column], figures: &[SharedFigure]) -> String {
    let mut table = String::from("<section><table><caption>Means over all sentences</caption><thead><tr><td></td>");
    for column in &columns[1..] {
        let _ = write!(table, "<th scope=\"col\">{}</th>", escaped(column.name));
    }
    table += "<td></td></tr></thead><tbody>\n";
    let mut above = "";
    for SharedFigure { name, unit, means } in figures {
        // In the text a row is told by the one above it; read aloud it must say all.
        let whole = match name.trim_start() {
            "" => format!("{above} ({unit})"),
            inner if inner.len() < name.len() => format!("{above}: {inner}"),
            _ => (*name).to_owned(),
        };
        above = if name.starts_with(' ') || name.is_empty() { above } else { name };
        let cells: String = means.iter().map(|mean| format!("<td>{mean}</td>")).collect();
        let _ = writeln!(table, "<tr><th scope=\"row\">{}</th>{cells}<td>{}</td></tr>", escaped(&whole), escaped(unit));
    }
    table + "</tbody></table></section>"
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Braces stand for what the template is filled with.
            '{' => out += "&#123;",
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::audio::write_wav;

    fn sentence(id: &str, text: &str) -> Sentence {
        Sentence { id: id.into(), text: text.into(), speaker: "anna".into(), language: Some("en".into()) }
    }

    #[test]
    fn a_page_holds_its_sound_and_no_text_becomes_markup() {
        let dir = tempfile::tempdir().unwrap();
        let samples: Vec<f32> = (0..8000).map(|n| (n as f32 / 20.0).sin() * 0.3).collect();
        let wav = dir.path().join("a.wav");
        write_wav(&wav, &samples, 16_000).unwrap();
        let column = |name| Column { name, about: "about", files: vec![("a".into(), wav.clone())] };
        let path = dir.path().join("listen.html");
        let figure = SharedFigure { name: "word error, spoken", unit: "%", means: vec!["2.5".into()] };
        let below = SharedFigure { name: "  recorded", unit: "%", means: vec!["1.5".into()] };
        let sentences = [sentence("a", "<script>alert(\"{body}\")</script>"), sentence("b", "not heard")];
        page(&path, "A & B", &[column("recording"), column("spoken")], &sentences, &[figure, below]).unwrap();
        let page = fs::read_to_string(path).unwrap();
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(&quot;&#123;body}"), "{page}");
        assert!(page.contains("<title>A &amp; B</title>") && !page.contains("not heard") && !page.contains("http://"));
        assert!(page.contains("word error, spoken: recorded</th><td>1.5</td>"), "{page}");
        let sound = page.split("base64,").nth(1).unwrap().split('"').next().unwrap();
        let decoded = audio::decode_bytes(STANDARD.decode(sound).unwrap(), 60.0).unwrap().0;
        assert_eq!((decoded.samples.len(), decoded.rate_hz), (8000, 16_000));
    }

    #[test]
    fn sentences_come_from_all_over_the_list() {
        let all: Vec<Sentence> = (0..10).map(|n| sentence(&n.to_string(), "")).collect();
        let all: Vec<&Sentence> = all.iter().collect();
        let ids = |count| spread(&all, count).iter().map(|one| one.id.clone()).collect::<Vec<_>>();
        assert_eq!((ids(3), ids(99).len()), (vec!["0".into(), "3".into(), "6".into()], 10));
        assert!(spread(&[], 3).is_empty());
    }
}
