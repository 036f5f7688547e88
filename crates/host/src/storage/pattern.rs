//! Names with `{000..123}`, `{a,b}`, `*`, `?` and `[abc]`, as shells write them.

use regex::Regex;

/// Far above any number of shards, and far below what would fill memory.
const MAX_NAMES: usize = 1_000_000;

pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[']) || expand_braces(name).map_or(true, |names| names.len() > 1)
}

/// All names that braces stand for: ranges of numbers keep their leading zeros. Braces that are no pattern stay as they are.
pub fn expand_braces(name: &str) -> Result<Vec<String>, String> {
    let (mut done, mut open) = (vec![], vec![String::from(name)]);
    while let Some(name) = open.pop() {
        match choices(&name) {
            None => done.push(name),
            Some((before, choices, after)) => {
                let names = choices.iter().rev().map(|choice| format!("{before}{choice}{after}"));
                open.extend(names);
            }
        }
        if done.len() + open.len() > MAX_NAMES {
            return Err(format!("`{name}` stands for more than {MAX_NAMES} names", name = done[0]));
        }
    }
    Ok(done)
}

/// What is before the first braces that mean something, what they may be, and what is after them.
fn choices(name: &str) -> Option<(&str, Vec<String>, &str)> {
    let mut from = 0;
    while let Some(start) = name[from..].find('{').map(|at| from + at) {
        let end = start + closing(&name[start..])?;
        if let Some(choices) = inner(&name[start + 1..end]) {
            return Some((&name[..start], choices, &name[end + 1..]));
        }
        from = start + 1;
    }
    None
}

/// Where the brace that the text starts with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn inner(text: &str) -> Option<Vec<String>> {
    if let Some((first, last)) = text.split_once("..") {
        let is_number =
            |text: &str| !text.is_empty() && text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let width = if first.starts_with('0') || last.starts_with('0') { first.len().max(last.len()) } else { 0 };
        // One more than is allowed is enough to be refused.
        return (from <= to).then(|| (from..=to).take(MAX_NAMES + 1).map(|n| format!("{n:0width$}")).collect());
    }
    let (mut choices, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => choices.push(String::new()),
            c => choices.last_mut()?.push(c),
        }
    }
    (choices.len() > 1).then_some(choices)
}

/// A name without braces, in which `*`, `?` and `[…]` stand for other characters than `/`.
pub struct Pattern {
    regex: Regex,
    folder: String,
}

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, String> {
        let mut regex = String::from("^");
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' if rest.as_str().starts_with("*/") => {
                    rest.nth(1);
                    regex.push_str("(?:.*/)?");
                }
                '*' => regex.push_str("[^/]*"),
                '?' => regex.push_str("[^/]"),
                '[' if rest.as_str().contains(']') => {
                    let class: String = rest.by_ref().take_while(|c| *c != ']').collect();
                    let (not, class) = class.strip_prefix(['!', '^']).map_or(("", &*class), |class| ("^/", class));
                    regex.push_str(&format!(
                        "[{not}{}]",
                        class.replace('\\', "\\\\").replace('[', "\\[").replace('&', "\\&").replace('~', "\\~")
                    ));
                }
                c => regex.push_str(&regex_escape(c)),
            }
        }
        let regex = Regex::new(&(regex + "$")).map_err(|_| format!("`{pattern}` is no pattern"))?;
        let plain = &pattern[..pattern.find(['*', '?', '[']).unwrap_or(pattern.len())];
        let folder = plain.rsplit_once('/').map_or("", |(folder, _)| folder).into();
        Ok(Pattern { regex, folder })
    }

    pub fn matches(&self, key: &str) -> bool {
        self.regex.is_match(key)
    }

    /// The folder that every name it stands for lies below.
    pub fn folder(&self) -> &str {
        &self.folder
    }
}

fn regex_escape(c: char) -> String {
    if c.is_alphanumeric() || c == '/' || c == '_' || !c.is_ascii() { c.into() } else { format!("\\{c}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truth: what bash prints for `echo` of the same words.
    #[test]
    fn braces_stand_for_what_a_shell_makes_of_them() {
        let names = |text: &str| expand_braces(text).unwrap();
        assert_eq!(names("a-{08..11}.tar"), ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]);
        assert_eq!(names("{8..11}"), ["8", "9", "10", "11"]);
        assert_eq!(names("{en,de}/{0..1}"), ["en/0", "en/1", "de/0", "de/1"]);
        assert_eq!(names("{a,b{1,2}}c"), ["ac", "b1c", "b2c"]);
        for plain in ["{}", "{a}", "{a..b}", "{3..1}", "a}b", "{", "x{1..2"] {
            assert_eq!(names(plain), [plain]);
            assert!(!is_pattern(plain), "{plain}");
        }
        assert!(expand_braces("{0..999999999}").is_err() && expand_braces(&"{1,2}".repeat(64)).is_err());
        assert!(is_pattern("{1,2}") && is_pattern("a*"));
    }

    #[test]
    fn stars_stay_in_their_folder() {
        let matches = |pattern: &str, key: &str| Pattern::new(pattern).unwrap().matches(key);
        assert!(matches("data/train-*.parquet", "data/train-00000-of-00001.parquet"));
        assert!(!matches("data/train-*.parquet", "data/test-0.parquet") && !matches("*.tar", "a/b.tar"));
        assert!(matches("**/b.tar", "a/c/b.tar") && matches("**/b.tar", "b.tar"));
        assert!(matches("[0-9]?.tar", "1x.tar") && !matches("[!0-9]?.tar", "1x.tar") && matches("a+(b).t", "a+(b).t"));
        assert_eq!(Pattern::new("data/x/train-*.parquet").unwrap().folder(), "data/x");
        assert!(Pattern::new("[z-a]").is_err());
    }
}
