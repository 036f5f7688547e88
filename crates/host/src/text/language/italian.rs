//! Italian: one word below a million; where vowels meet one goes ("ventuno", "centotto").

use super::numbers::{digits, join, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never_counted, one_or_many};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static ITALIAN: Language = Language {
    code: "it",
    cardinal,
    marked,
    dot_ordinals: None,
    before: |number, next, _| {
        let gender = if next.ends_with('a') { Gender::Feminine } else { Gender::Masculine };
        (number == 1 && next.len() > 3).then(|| cardinal(1, gender))
    },
    year: |number| cardinal(number, Gender::Bare),
    plural: one_or_many,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &['.', '\''],
    point: "virgola",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "meno",
    to: "a",
    over: "fratto",
    fractions: ["un mezzo", "un quarto", "tre quarti"],
    and: "e",
    symbols: ["e", "più", "uguale", "chiocciola"],
    currencies: &[
        ("€", Noun("m:euro"), Noun("m:centesimo|centesimi")),
        ("$", Noun("m:dollaro|dollari"), Noun("m:centesimo|centesimi")),
        ("£", Noun("f:sterlina|sterline"), Noun("m:penny|pence")),
        ("¥", Noun("m:yen"), Noun("")),
        ("₽", Noun("m:rublo|rubli"), Noun("m:copeco|copechi")),
    ],
    magnitudes: &["mila", "milione", "milioni", "miliardo", "miliardi"],
    magnitude_link: "di ",
    units: Units {
        prefixes: ["chilo", "centi", "milli", "mega", "giga", "tera"],
        metre: Noun("m:metro|metri"),
        gram: Noun("m:grammo|grammi"),
        tonne: Noun("f:tonnellata|tonnellate"),
        litre: Noun("m:litro|litri"),
        second: Noun("m:secondo|secondi"),
        minute: Noun("m:minuto|minuti"),
        hour: Noun("f:ora|ore"),
        hertz: Noun("m:hertz"),
        byte: Noun("m:byte"),
        watt: Noun("m:watt"),
        watt_hour: Noun("m:wattora"),
        volt: Noun("m:volt"),
        hectare: Noun("m:ettaro|ettari"),
        degree: Noun("m:grado|gradi"),
        percent: Noun("m:per cento"),
        per_mille: Noun("m:per mille"),
        square: "{} quadrato|{} quadrati",
        cubic: "{} cubo|{} cubi",
        per_hour: "all'ora",
        per_second: "al secondo",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[],
    },
    months: [
        "gennaio|gen", "febbraio|feb", "marzo|mar", "aprile|apr", "maggio|mag", "giugno|giu", "luglio|lug",
        "agosto|ago", "settembre|sett", "ottobre|ott", "novembre|nov", "dicembre|dic",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| if day == 1 { "primo".into() } else { cardinal(day, Gender::Bare) },
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &["h"],
    abbreviations: &[
        ("sig.", "signor"), ("sig.ra", "signora"), ("sigg.", "signori"), ("dott.", "dottor"), ("dr.", "dottor"),
        ("dott.ssa", "dottoressa"), ("prof.", "professor"), ("prof.ssa", "professoressa"), ("ing.", "ingegner"),
        ("avv.", "avvocato"), ("on.", "onorevole"), ("ecc.", "eccetera"), ("es.", "esempio"), ("p.es.", "per esempio"),
        ("a.c.", "avanti cristo"), ("d.c.", "dopo cristo"), ("s.", "san"), ("v.le", "viale"), ("p.zza", "piazza"),
        ("n.#", "numero"), ("nº#", "numero"), ("pag.#", "pagina"), ("pagg.#", "pagine"), ("vol.#", "volume"),
        ("cap.#", "capitolo"), ("art.#", "articolo"), ("tel.", "telefono"), ("ca.", "circa"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "uno", "due", "tre", "quattro", "cinque", "sei", "sette", "otto", "nove", "dieci", "undici", "dodici",
    "tredici", "quattordici", "quindici", "sedici", "diciassette", "diciotto", "diciannove",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "venti", "trenta", "quaranta", "cinquanta", "sessanta", "settanta", "ottanta", "novanta",
];
const SCALES: [&str; 5] = ["", "", "milione|milioni", "miliardo|miliardi", "bilione|bilioni"];

fn cardinal(number: u64, gender: Gender) -> String {
    match (number, gender) {
        (0, _) => return "zero".into(),
        (1, Gender::Feminine) => return "una".into(),
        (1, Gender::Masculine | Gender::Neuter) => return "un".into(),
        _ => {}
    }
    let large: Vec<String> = thousands(number)
        .filter(|(_, power)| *power >= 2)
        .map(|(group, power)| match group {
            1 => format!("un {}", form(SCALES[power], 0)),
            _ => format!("{} {}", accented(below_thousand(group), group), form(SCALES[power], 1)),
        })
        .collect();
    let rest = below_million(number % 1_000_000);
    join(large.iter().map(String::as_str).chain([rest.as_str()]), " ")
}

fn below_million(number: u64) -> String {
    let thousands = match number / 1000 {
        0 => String::new(),
        1 => "mille".into(),
        many => below_thousand(many) + "mila",
    };
    accented(thousands + &below_thousand(number % 1000), number)
}

/// Number words with their accent: "tre" takes one at the end of a longer word.
fn accented(words: String, number: u64) -> String {
    if number > 3 { swap_end(&words, "tre", "tré").unwrap_or(words) } else { words }
}

fn below_thousand(group: u64) -> String {
    let (hundreds, tens, ones) = digits(group);
    let mut hundred = match hundreds {
        0 => String::new(),
        1 => "cento".into(),
        many => format!("{}cento", ONES[many]),
    };
    if tens == 8 || (tens, ones) == (0, 8) {
        hundred = hundred.trim_end_matches('o').to_owned();
    }
    let rest = match (tens, ones) {
        (0 | 1, _) => ONES[tens * 10 + ones].to_owned(),
        (_, 1 | 8) => format!("{}{}", &TENS[tens][..TENS[tens].len() - 1], ONES[ones]),
        _ => format!("{}{}", TENS[tens], ONES[ones]),
    };
    hundred + &rest
}

const ORDINALS: [&str; 11] =
    ["", "primo", "secondo", "terzo", "quarto", "quinto", "sesto", "settimo", "ottavo", "nono", "decimo"];

fn ordinal(number: u64) -> String {
    if number <= 10 {
        return ORDINALS[number as usize].to_owned();
    }
    let words = cardinal(number, Gender::Bare);
    let stem = match number % 10 {
        3 if number % 100 != 13 => words.trim_end_matches('é').to_owned() + "e",
        6 if number % 100 != 16 => words,
        _ if number.is_multiple_of(1000) => {
            words.trim_end_matches("mila").trim_end_matches("mille").to_owned() + "mill"
        }
        _ => words.trim_end_matches(['a', 'e', 'i', 'o']).to_owned(),
    };
    stem + "esimo"
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    match mark {
        "º" | "°" | "o" if number > 0 => Some(ordinal(number)),
        "ª" | "a" if number > 0 => Some(ordinal(number).trim_end_matches('o').to_owned() + "a"),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let year = cardinal(date.year, Gender::Bare);
    format!("{} {} {year}", (ITALIAN.day)(date.day, ""), ITALIAN.month(date.month))
}

fn time(time: &Time) -> String {
    let hour = cardinal(time.hour, if time.hour == 1 { Gender::Feminine } else { Gender::Bare });
    let minutes = match time.minute {
        0 => "in punto".into(),
        minute => format!("e {}", cardinal(minute, Gender::Bare)),
    };
    let seconds = time.second.map(|second| format!("e {}", ITALIAN.counted(second, ITALIAN.units.second)));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
