//! Digit groups, for the languages to put words to.

/// Groups of three digits that are not zero, highest first, each with its power of a thousand.
pub(super) fn thousands(number: u64) -> impl Iterator<Item = (u64, usize)> {
    groups(number, 1000)
}

/// Groups of four digits that are not zero, highest first, each with its power of ten thousand.
pub(super) fn myriads(number: u64) -> impl Iterator<Item = (u64, usize)> {
    groups(number, 10_000)
}

fn groups(number: u64, base: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..5).rev().map(move |power| (number / base.pow(power) % base, power as usize)).filter(|(group, _)| *group > 0)
}

/// Hundreds, tens and ones of a group.
pub(super) fn digits(group: u64) -> (usize, usize, usize) {
    ((group / 100) as usize, (group / 10 % 10) as usize, (group % 10) as usize)
}

/// The parts that are not empty, with `between` between them.
pub(super) fn join<'a>(parts: impl IntoIterator<Item = &'a str>, between: &str) -> String {
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(between)
}

/// As most Slavic languages count: 1, 2 to 4, 5 and more; `ones_return` where 21 is like 1.
pub(super) fn slavic(number: u64, ones_return: bool) -> usize {
    match (number % 100, number % 10) {
        (11..=14, _) => 2,
        (_, 1) if ones_return || number == 1 => 0,
        (_, 2..=4) => 1,
        _ => 2,
    }
}

/// The last word replaced by what `change` makes of it; words end at a space or a hyphen.
pub(super) fn change_last(words: &str, change: impl Fn(&str) -> String) -> String {
    let at = words.rfind([' ', '-']).map_or(0, |index| index + 1);
    format!("{}{}", &words[..at], change(&words[at..]))
}

/// `ending` for `from` at the end of the word, where it ends so.
pub(super) fn swap_end(word: &str, from: &str, ending: &str) -> Option<String> {
    word.strip_suffix(from).map(|stem| format!("{stem}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_highest_first_without_the_empty_ones() {
        assert_eq!(thousands(5_000_042).collect::<Vec<_>>(), [(5, 2), (42, 0)]);
        assert_eq!(myriads(1_0000_0042).collect::<Vec<_>>(), [(1, 2), (42, 0)]);
        assert_eq!(thousands(0).count() + myriads(0).count(), 0);
        assert_eq!(thousands(999_999_999_999_999).count(), 5);
    }
}
