//! German: ones before tens, everything below a million in one word; ordinals end as the word before them asks.

use super::numbers::{digits, join, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never_counted, one_or_many};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static GERMAN: Language = Language {
    code: "de",
    cardinal,
    marked,
    dot_ordinals: Some(&[
        "am", "der", "die", "das", "dem", "den", "des", "vom", "zum", "zur", "im", "beim", "ab", "bis", "seit",
    ]),
    before,
    year,
    plural: one_or_many,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &['.', '\''],
    point: "komma",
    fraction: Fraction::Digits,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "minus",
    to: "bis",
    over: "durch",
    fractions: ["ein halb", "ein viertel", "drei viertel"],
    and: "und",
    symbols: ["und", "plus", "gleich", "ät"],
    currencies: &[
        ("€", Noun("m:euro"), Noun("m:cent")),
        ("$", Noun("m:dollar"), Noun("m:cent")),
        ("£", Noun("n:pfund"), Noun("m:penny|pence")),
        ("¥", Noun("m:yen"), Noun("")),
        ("₽", Noun("m:rubel"), Noun("f:kopeke|kopeken")),
        ("chf", Noun("m:franken"), Noun("m:rappen")),
    ],
    magnitudes: &["tausend", "million", "millionen", "milliarde", "milliarden", "billion", "billionen"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "zenti", "milli", "mega", "giga", "tera"],
        metre: Noun("m:meter"),
        gram: Noun("n:gramm"),
        tonne: Noun("f:tonne|tonnen"),
        litre: Noun("m:liter"),
        second: Noun("f:sekunde|sekunden"),
        minute: Noun("f:minute|minuten"),
        hour: Noun("f:stunde|stunden"),
        hertz: Noun("n:hertz"),
        byte: Noun("n:byte"),
        watt: Noun("n:watt"),
        watt_hour: Noun("f:wattstunde|wattstunden"),
        volt: Noun("n:volt"),
        hectare: Noun("m:hektar"),
        degree: Noun("m:grad"),
        percent: Noun("n:prozent"),
        per_mille: Noun("n:promille"),
        square: "quadrat{}",
        cubic: "kubik{}",
        per_hour: "pro stunde",
        per_second: "pro sekunde",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[("km/h", Noun("m:kilometer pro stunde"))],
    },
    months: [
        "januar|jan|jänner", "februar|feb", "märz|mär", "april|apr", "mai", "juni|jun", "juli|jul", "august|aug",
        "september|sept|sep", "oktober|okt", "november|nov", "dezember|dez",
    ],
    month_links: &[],
    month_first: false,
    day: day_of_month,
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: Some("."),
    time_words: &["uhr"],
    abbreviations: &[
        ("z.b.", "zum beispiel"), ("z. b.", "zum beispiel"), ("d.h.", "das heißt"), ("d. h.", "das heißt"),
        ("u.a.", "unter anderem"), ("u. a.", "unter anderem"), ("usw.", "und so weiter"), ("bzw.", "beziehungsweise"),
        ("ca.", "circa"), ("evtl.", "eventuell"), ("ggf.", "gegebenenfalls"), ("inkl.", "inklusive"),
        ("dr.", "doktor"), ("prof.", "professor"), ("hr.", "herr"), ("fr.", "frau"), ("st.", "sankt"),
        ("str.", "straße"), ("nr.#", "nummer"), ("s.#", "seite"), ("bd.#", "band"), ("kap.#", "kapitel"),
        ("abs.#", "absatz"), ("vgl.", "vergleiche"), ("sog.", "sogenannte"), ("mio.", "millionen"),
        ("mrd.", "milliarden"), ("tel.", "telefon"), ("v. chr.", "vor christus"), ("n. chr.", "nach christus"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "dreizehn",
    "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
];
const TENS: [&str; 10] =
    ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"];
const SCALES: [&str; 5] = ["", "tausend", "million|millionen", "milliarde|milliarden", "billion|billionen"];

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "null".into();
    }
    let large: Vec<String> = thousands(number)
        .filter(|(_, power)| *power >= 2)
        .map(|(group, power)| {
            format!("{} {}", small(group, Gender::Feminine), super::form(SCALES[power], one_or_many(group)))
        })
        .collect();
    let rest = small(number % 1_000_000, gender);
    join(large.iter().map(String::as_str).chain([rest.as_str()]), " ")
}

/// A cardinal below a million, in one word; only a one at the very end agrees.
fn small(number: u64, gender: Gender) -> String {
    let (thousands, rest) = (number / 1000, number % 1000);
    let thousands = if thousands > 0 { below_thousand(thousands, "ein") + SCALES[1] } else { String::new() };
    let one = match gender {
        Gender::Bare => "eins",
        Gender::Feminine if number == 1 => "eine",
        Gender::Feminine => "eins",
        Gender::Masculine | Gender::Neuter => "ein",
    };
    thousands + &below_thousand(rest, one)
}

fn below_thousand(group: u64, one: &str) -> String {
    let (hundreds, tens, ones) = digits(group);
    let hundreds = if hundreds > 0 { format!("{}hundert", ONES[hundreds]) } else { String::new() };
    let rest = match (tens, ones) {
        (0, 1) => one.to_owned(),
        (0 | 1, _) => ONES[tens * 10 + ones].to_owned(),
        (_, 0) => TENS[tens].to_owned(),
        _ => format!("{}und{}", ONES[ones], TENS[tens]),
    };
    hundreds + &rest
}

fn ordinal(number: u64, after: &str) -> String {
    let stem = match number {
        1 => "erst".into(),
        3 => "dritt".into(),
        7 => "siebt".into(),
        8 => "acht".into(),
        _ => ordinal_stem(number),
    };
    let ending = match after {
        "am" | "dem" | "den" | "des" | "vom" | "zum" | "zur" | "im" | "beim" | "ab" | "bis" | "seit" => "en",
        "ein" | "kein" | "mein" | "sein" | "ihr" | "unser" => "er",
        _ => "e",
    };
    stem + ending
}

fn ordinal_stem(number: u64) -> String {
    let words = cardinal(number, Gender::Bare);
    match (number % 100, words.strip_suffix("eins"), words.strip_suffix("drei")) {
        (1, Some(head), _) => format!("{head}erst"),
        (3, _, Some(head)) => format!("{head}dritt"),
        (7, ..) => words.trim_end_matches("en").to_owned() + "t",
        (8, ..) => words,
        (1..=19, ..) => words + "t",
        _ => words + "st",
    }
}

/// A day before its month: "fünfter März", but "der fünfte" and "am fünften".
fn day_of_month(day: u64, after: &str) -> String {
    let words = ordinal(day, after);
    if matches!(after, "der" | "die" | "das") || words.ends_with("en") { words } else { ordinal(day, "ein") }
}

/// A number that agrees with the next word, whose gender is guessed by its ending.
fn before(number: u64, next: &str, _: &str) -> Option<String> {
    let feminine = ["e", "ung", "heit", "keit", "ion", "tät"].iter().any(|ending| next.ends_with(ending));
    (number == 1 && next.len() > 2).then(|| if feminine { "eine".into() } else { "ein".into() })
}

fn marked(number: u64, mark: &str, after: &str) -> Option<String> {
    match mark {
        "." => Some(ordinal(number, after)),
        "te" | "ste" if number > 0 => Some(ordinal(number, "")),
        "ten" | "sten" => Some(ordinal(number, "am")),
        "er" if number.is_multiple_of(10) => Some(cardinal(number, Gender::Bare) + "er"),
        _ => None,
    }
}

fn year(number: u64) -> String {
    match number {
        1100..=1999 => {
            let rest = number % 100;
            let rest = if rest == 0 { String::new() } else { cardinal(rest, Gender::Bare) };
            format!("{}hundert{rest}", cardinal(number / 100, Gender::Bare))
        }
        _ => cardinal(number, Gender::Bare),
    }
}

fn date(date: &Date) -> String {
    format!("{} {} {}", day_of_month(date.day, date.after), GERMAN.month(date.month), year(date.year))
}

fn time(time: &Time) -> String {
    let minutes = if time.minute > 0 { cardinal(time.minute, Gender::Bare) } else { String::new() };
    let seconds = time.second.map(|second| format!("und {}", GERMAN.counted(second, GERMAN.units.second)));
    let hour = format!("{} uhr", cardinal(time.hour, Gender::Masculine));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
