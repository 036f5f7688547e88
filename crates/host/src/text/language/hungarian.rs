//! Hungarian: one word up to two thousand, hyphens between thousands above it; "két" before what it counts.

use super::numbers::{digits, join, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never_counted, unchanging};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static HUNGARIAN: Language = Language {
    code: "hu",
    cardinal,
    marked,
    dot_ordinals: Some(&[]),
    before,
    year: |number| cardinal(number, Gender::Bare),
    plural: unchanging,
    plural_of_fractions: 0,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &[' ', '.'],
    point: "egész",
    fraction: Fraction::Named(fraction),
    joiner: " ",
    attached: false,
    ending_mark: Some('-'),
    minus: "mínusz",
    to: "",
    over: "per",
    fractions: ["egy ketted", "egy negyed", "három negyed"],
    and: "és",
    symbols: ["és", "plusz", "egyenlő", "kukac"],
    currencies: &[
        ("ft", Noun("forint"), Noun("")),
        ("huf", Noun("forint"), Noun("")),
        ("€", Noun("euró"), Noun("cent")),
        ("$", Noun("dollár"), Noun("cent")),
        ("£", Noun("font"), Noun("penny")),
        ("¥", Noun("jen"), Noun("")),
        ("₽", Noun("rubel"), Noun("kopejka")),
    ],
    magnitudes: &["ezer", "millió", "milliárd", "billió"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "centi", "milli", "mega", "giga", "tera"],
        metre: Noun("méter"),
        gram: Noun("gramm"),
        tonne: Noun("tonna"),
        litre: Noun("liter"),
        second: Noun("másodperc"),
        minute: Noun("perc"),
        hour: Noun("óra"),
        hertz: Noun("hertz"),
        byte: Noun("bájt"),
        watt: Noun("watt"),
        watt_hour: Noun("wattóra"),
        volt: Noun("volt"),
        hectare: Noun("hektár"),
        degree: Noun("fok"),
        percent: Noun("százalék"),
        per_mille: Noun("ezrelék"),
        square: "négyzet{}",
        cubic: "köb{}",
        per_hour: "per óra",
        per_second: "per másodperc",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[("°C", Noun("celsius-fok")), ("°F", Noun("fahrenheit-fok"))],
    },
    months: [
        "január|jan", "február|febr|feb", "március|márc", "április|ápr", "május|máj", "június|jún", "július|júl",
        "augusztus|aug", "szeptember|szept", "október|okt", "november|nov", "december|dec",
    ],
    month_links: &[],
    month_first: true,
    day: |day, _| day_of_month(day),
    date_order: DateOrder::YearMonth,
    date,
    time,
    time_mark: None,
    time_words: &["óra"],
    abbreviations: &[
        ("dr.", "doktor"), ("prof.", "professzor"), ("pl.", "például"), ("stb.", "és a többi"), ("ill.", "illetve"),
        ("kb.", "körülbelül"), ("ún.", "úgynevezett"), ("vö.", "vesd össze"), ("id.", "idősebb"), ("ifj.", "ifjabb"),
        ("özv.", "özvegy"), ("u.", "utca"), ("krt.", "körút"), ("sz.#", "szám"), ("o.#", "oldal"), ("tel.", "telefon"),
        ("i. e.", "időszámításunk előtt"), ("i. sz.", "időszámításunk szerint"), ("kr. e.", "krisztus előtt"),
        ("kr. u.", "krisztus után"), ("max.", "maximum"), ("min.", "minimum"),
    ],
};

const ONES: [&str; 10] = ["", "egy", "kettő", "három", "négy", "öt", "hat", "hét", "nyolc", "kilenc"];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "tíz", "húsz", "harminc", "negyven", "ötven", "hatvan", "hetven", "nyolcvan", "kilencven",
];
const SCALES: [&str; 5] = ["", "ezer", "millió", "milliárd", "billió"];

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "nulla".into();
    }
    let two = if gender == Gender::Bare { "kettő" } else { "két" };
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (0, _) => below_thousand(group, two),
            (1, 1) if number < 2000 => "ezer".into(),
            _ => below_thousand(group, "két") + SCALES[power],
        })
        .collect();
    groups.join(if number > 2000 { "-" } else { "" })
}

fn below_thousand(group: u64, two: &str) -> String {
    let (hundreds, tens, ones) = digits(group);
    let hundreds = match hundreds {
        0 => String::new(),
        1 => "száz".into(),
        2 => "kétszáz".into(),
        many => format!("{}száz", ONES[many]),
    };
    let tens = match (tens, ones) {
        (1, 1..) => "tizen",
        (2, 1..) => "huszon",
        _ => TENS[tens],
    };
    format!("{hundreds}{tens}{}", if ones == 2 { two } else { ONES[ones] })
}

/// A decimal number: "három egész tizennégy század".
fn fraction(whole: u64, digits: &str) -> Option<String> {
    let part = ["tized", "század", "ezred"].get(digits.len().checked_sub(1)?)?;
    let number = digits.parse().ok()?;
    Some(format!("{} egész {} {part}", cardinal(whole, Gender::Bare), cardinal(number, Gender::Masculine)))
}

#[rustfmt::skip]
const ORDINALS: [(&str, &str); 26] = [
    ("egy", "egyedik"), ("kettő", "kettedik"), ("három", "harmadik"), ("négy", "negyedik"), ("öt", "ötödik"),
    ("hat", "hatodik"), ("hét", "hetedik"), ("nyolc", "nyolcadik"), ("kilenc", "kilencedik"), ("tíz", "tizedik"),
    ("húsz", "huszadik"), ("harminc", "harmincadik"), ("negyven", "negyvenedik"), ("hatvan", "hatvanadik"),
    ("hetven", "hetvenedik"), ("nyolcvan", "nyolcvanadik"), ("kilencven", "kilencvenedik"), ("ötven", "ötvenedik"),
    ("száz", "századik"), ("ezer", "ezredik"), ("millió", "milliomodik"), ("milliárd", "milliárdodik"),
    ("billió", "billiomodik"), ("nulla", "nulladik"), ("ven", "venedik"), ("van", "vanadik"),
];

fn ordinal(number: u64) -> String {
    match number {
        1 => return "első".into(),
        2 => return "második".into(),
        _ => {}
    }
    let words = cardinal(number, Gender::Bare);
    let ends = ORDINALS.iter().filter(|(end, _)| words.ends_with(end)).max_by_key(|(end, _)| end.len());
    ends.and_then(|(end, ordinal)| swap_end(&words, end, ordinal)).unwrap_or(words)
}

/// A day of a month: "elseje", "ötödike", "harmadika".
fn day_of_month(day: u64) -> String {
    let ordinal = ordinal(day);
    match ordinal.as_str() {
        "első" => "elseje".into(),
        back if back.ends_with("adik") || back.ends_with("odik") => ordinal + "a",
        _ => ordinal + "e",
    }
}

fn marked(number: u64, mark: &str, after: &str) -> Option<String> {
    let month = HUNGARIAN.months.iter().any(|forms| forms.split('|').any(|form| form == after));
    match mark {
        // A year before its month.
        "." if number >= 1000 => Some(cardinal(number, Gender::Bare)),
        "." if month => Some(day_of_month(number)),
        "." => Some(ordinal(number)),
        "-e" | "-a" | "-je" if month => Some(day_of_month(number)),
        "-én" | "-án" | "-jén" if month => {
            let day = day_of_month(number);
            swap_end(&day, "e", "én").or_else(|| swap_end(&day, "a", "án"))
        }
        _ => None,
    }
}

fn before(number: u64, next: &str, _: &str) -> Option<String> {
    let counts = number % 10 == 2 && next.chars().next().is_some_and(char::is_alphabetic);
    counts.then(|| cardinal(number, Gender::Masculine))
}

fn date(date: &Date) -> String {
    let year = cardinal(date.year, Gender::Bare);
    format!("{year} {} {}", HUNGARIAN.month(date.month), day_of_month(date.day))
}

fn time(time: &Time) -> String {
    let units = &HUNGARIAN.units;
    let minutes = if time.minute > 0 { HUNGARIAN.counted(time.minute, units.minute) } else { String::new() };
    let seconds = time.second.map(|second| HUNGARIAN.counted(second, units.second));
    let hour = HUNGARIAN.counted(time.hour, units.hour);
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
