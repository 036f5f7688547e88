//! Dutch: ones before tens with a diaeresis where vowels meet ("tweeëntwintig"), one word below a million.

use super::numbers::{digits, join, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never, never_counted, one_or_many};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static DUTCH: Language = Language {
    code: "nl",
    cardinal,
    marked,
    dot_ordinals: None,
    before: never,
    year: |number| cardinal(number, Gender::Bare),
    plural: one_or_many,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &['.'],
    point: "komma",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "min",
    to: "tot",
    over: "gedeeld door",
    fractions: ["een half", "een kwart", "driekwart"],
    and: "en",
    symbols: ["en", "plus", "is", "apenstaartje"],
    currencies: &[
        ("€", Noun("euro"), Noun("cent")),
        ("$", Noun("dollar"), Noun("cent")),
        ("£", Noun("pond"), Noun("penny|pence")),
        ("¥", Noun("yen"), Noun("")),
        ("₽", Noun("roebel"), Noun("kopeke|kopeken")),
    ],
    magnitudes: &["duizend", "miljoen", "miljard", "biljoen"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "centi", "milli", "mega", "giga", "tera"],
        metre: Noun("meter"),
        gram: Noun("gram"),
        tonne: Noun("ton"),
        litre: Noun("liter"),
        second: Noun("seconde|seconden"),
        minute: Noun("minuut|minuten"),
        hour: Noun("uur"),
        hertz: Noun("hertz"),
        byte: Noun("byte"),
        watt: Noun("watt"),
        watt_hour: Noun("wattuur"),
        volt: Noun("volt"),
        hectare: Noun("hectare"),
        degree: Noun("graad|graden"),
        percent: Noun("procent"),
        per_mille: Noun("promille"),
        square: "vierkante {}",
        cubic: "kubieke {}",
        per_hour: "per uur",
        per_second: "per seconde",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[],
    },
    months: [
        "januari|jan", "februari|feb", "maart|mrt", "april|apr", "mei", "juni|jun", "juli|jul", "augustus|aug",
        "september|sept|sep", "oktober|okt", "november|nov", "december|dec",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| cardinal(day, Gender::Bare),
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: Some("."),
    time_words: &["uur", "u"],
    abbreviations: &[
        ("dhr.", "de heer"), ("mevr.", "mevrouw"), ("mw.", "mevrouw"), ("dr.", "dokter"), ("drs.", "doctorandus"),
        ("prof.", "professor"), ("ir.", "ingenieur"), ("st.", "sint"), ("bijv.", "bijvoorbeeld"),
        ("bv.", "bijvoorbeeld"), ("enz.", "enzovoort"), ("etc.", "et cetera"), ("d.w.z.", "dat wil zeggen"),
        ("m.a.w.", "met andere woorden"), ("o.a.", "onder andere"), ("a.u.b.", "alstublieft"), ("ca.", "circa"),
        ("i.p.v.", "in plaats van"), ("t.o.v.", "ten opzichte van"), ("m.b.t.", "met betrekking tot"),
        ("v.chr.", "voor christus"), ("v. chr.", "voor christus"), ("n.chr.", "na christus"), ("nr.#", "nummer"),
        ("blz.#", "bladzijde"), ("hfst.#", "hoofdstuk"), ("art.#", "artikel"), ("tel.", "telefoon"),
        ("mln.", "miljoen"), ("mld.", "miljard"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "een", "twee", "drie", "vier", "vijf", "zes", "zeven", "acht", "negen", "tien", "elf", "twaalf", "dertien",
    "veertien", "vijftien", "zestien", "zeventien", "achttien", "negentien",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "twintig", "dertig", "veertig", "vijftig", "zestig", "zeventig", "tachtig", "negentig",
];
const SCALES: [&str; 5] = ["", "duizend", "miljoen", "miljard", "biljoen"];

fn cardinal(number: u64, _: Gender) -> String {
    if number == 0 {
        return "nul".into();
    }
    let large: Vec<String> = thousands(number)
        .filter(|(_, power)| *power >= 2)
        .map(|(group, power)| format!("{} {}", below_thousand(group, "een"), SCALES[power]))
        .collect();
    let rest = below_million(number % 1_000_000);
    join(large.iter().map(String::as_str).chain([rest.as_str()]), " ")
}

/// A cardinal below a million; eleven to nineteen hundred are counted in hundreds, as years and sums are said.
fn below_million(number: u64) -> String {
    match number {
        1100..=1999 => format!("{}honderd{}", ONES[number as usize / 100], below_thousand(number % 100, "één")),
        1000..=1099 => format!("duizend{}", below_thousand(number % 1000, "één")),
        2000.. => format!("{}duizend{}", below_thousand(number / 1000, "een"), below_thousand(number % 1000, "één")),
        _ => below_thousand(number, "één"),
    }
}

fn below_thousand(group: u64, one: &str) -> String {
    let (hundreds, tens, ones) = digits(group);
    let hundreds = match hundreds {
        0 => String::new(),
        1 => "honderd".into(),
        many => format!("{}honderd", ONES[many]),
    };
    let rest = match (tens, ones) {
        (0, 1) => one.to_owned(),
        (0 | 1, _) => ONES[tens * 10 + ones].to_owned(),
        (_, 0) => TENS[tens].to_owned(),
        (_, 2 | 3) => format!("{}ën{}", ONES[ones], TENS[tens]),
        _ => format!("{}en{}", ONES[ones], TENS[tens]),
    };
    hundreds + &rest
}

fn ordinal(number: u64) -> String {
    let words = cardinal(number, Gender::Bare);
    let head = |cut: &str, ending: &str| words.trim_end_matches(cut).to_owned() + ending;
    match number % 100 {
        1 => head("één", "eerste"),
        3 => head("drie", "derde"),
        0 | 8 | 20..=99 => words + "ste",
        _ => words + "de",
    }
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    match mark {
        "e" | "de" | "ste" | "ᵉ" if number > 0 => Some(ordinal(number)),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let (day, year) = (cardinal(date.day, Gender::Bare), cardinal(date.year, Gender::Bare));
    format!("{day} {} {year}", DUTCH.month(date.month))
}

fn time(time: &Time) -> String {
    let minutes = if time.minute > 0 { cardinal(time.minute, Gender::Bare) } else { String::new() };
    let seconds = time.second.map(|second| format!("en {}", DUTCH.counted(second, DUTCH.units.second)));
    let hour = format!("{} uur", cardinal(time.hour, Gender::Bare));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
