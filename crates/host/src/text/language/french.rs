//! French of France: seventy is "soixante-dix", ninety "quatre-vingt-dix".

use super::numbers::{change_last, digits, join, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never, never_counted};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static FRENCH: Language = Language {
    code: "fr",
    cardinal,
    marked,
    dot_ordinals: None,
    before: never,
    year: |number| cardinal(number, Gender::Bare),
    plural,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &[' ', '.'],
    point: "virgule",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "moins",
    to: "à",
    over: "sur",
    fractions: ["un demi", "un quart", "trois quarts"],
    and: "et",
    symbols: ["et", "plus", "égale", "arobase"],
    currencies: &[
        ("€", Noun("m:euro|euros"), Noun("m:centime|centimes")),
        ("$", Noun("m:dollar|dollars"), Noun("m:cent|cents")),
        ("£", Noun("f:livre|livres"), Noun("m:penny|pence")),
        ("¥", Noun("m:yen|yens"), Noun("")),
        ("₽", Noun("m:rouble|roubles"), Noun("m:kopeck|kopecks")),
        ("chf", Noun("m:franc|francs"), Noun("m:centime|centimes")),
    ],
    magnitudes: &["mille", "million", "millions", "milliard", "milliards", "billion", "billions"],
    magnitude_link: "de |d'",
    units: Units {
        prefixes: ["kilo", "centi", "milli", "méga", "giga", "téra"],
        metre: Noun("m:mètre|mètres"),
        gram: Noun("m:gramme|grammes"),
        tonne: Noun("f:tonne|tonnes"),
        litre: Noun("m:litre|litres"),
        second: Noun("f:seconde|secondes"),
        minute: Noun("f:minute|minutes"),
        hour: Noun("f:heure|heures"),
        hertz: Noun("m:hertz"),
        byte: Noun("m:octet|octets"),
        watt: Noun("m:watt|watts"),
        watt_hour: Noun("m:wattheure|wattheures"),
        volt: Noun("m:volt|volts"),
        hectare: Noun("m:hectare|hectares"),
        degree: Noun("m:degré|degrés"),
        percent: Noun("m:pour cent"),
        per_mille: Noun("m:pour mille"),
        square: "{} carré|{} carrés",
        cubic: "{} cube|{} cubes",
        per_hour: "par heure",
        per_second: "par seconde",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[("mo", "MB"), ("go", "GB"), ("ko", "kB")],
        irregular: &[("km/h", Noun("m:kilomètre-heure|kilomètres-heure"))],
    },
    months: [
        "janvier|janv", "février|févr", "mars", "avril|avr", "mai", "juin", "juillet|juil", "août", "septembre|sept",
        "octobre|oct", "novembre|nov", "décembre|déc",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| if day == 1 { "premier".into() } else { cardinal(day, Gender::Bare) },
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: Some("h"),
    time_words: &["heure", "heures", "h"],
    abbreviations: &[
        ("m.", "monsieur"), ("mm.", "messieurs"), ("mme", "madame"), ("mmes", "mesdames"), ("mlle", "mademoiselle"),
        ("dr", "docteur"), ("dr.", "docteur"), ("pr", "professeur"), ("me", "maître"), ("st", "saint"),
        ("ste", "sainte"), ("etc.", "et cetera"), ("p. ex.", "par exemple"), ("c.-à-d.", "c'est-à-dire"),
        ("env.", "environ"), ("bd", "boulevard"), ("av.", "avenue"), ("n°#", "numéro"), ("no#", "numéro"),
        ("nº#", "numéro"), ("p.#", "page"), ("pp.#", "pages"), ("vol.#", "volume"), ("chap.#", "chapitre"),
        ("av. j.-c.", "avant jésus-christ"), ("apr. j.-c.", "après jésus-christ"), ("tél.", "téléphone"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize",
    "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
];
const TENS: [&str; 10] = ["", "", "vingt", "trente", "quarante", "cinquante", "soixante", "", "", ""];
const SCALES: [&str; 5] = ["", "", "million|millions", "milliard|milliards", "billion|billions"];

fn plural(number: u64) -> usize {
    usize::from(number >= 2)
}

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "zéro".into();
    }
    let one = if gender == Gender::Feminine { "une" } else { "un" };
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (0, _) => below_thousand(group, one, true),
            (1, 1) => "mille".into(),
            // "mille" is no noun, so "cent" and "vingt" before it take no s.
            (1, _) => below_thousand(group, "un", false) + " mille",
            _ => format!("{} {}", below_thousand(group, "un", true), form(SCALES[power], plural(group))),
        })
        .collect();
    groups.join(" ")
}

fn below_thousand(group: u64, one: &str, last: bool) -> String {
    let (hundreds, rest) = (group / 100, group % 100);
    let hundreds = match hundreds {
        0 => String::new(),
        1 => "cent".into(),
        many if rest == 0 && last => format!("{} cents", ONES[many as usize]),
        many => format!("{} cent", ONES[many as usize]),
    };
    join([hundreds.as_str(), &below_hundred(rest, one, last)], " ")
}

fn below_hundred(rest: u64, one: &str, last: bool) -> String {
    let (_, tens, ones) = digits(rest);
    let unit = |index: usize| if index == 1 { one } else { ONES[index] };
    match (tens, ones) {
        (0 | 1, _) => unit(tens * 10 + ones).to_owned(),
        (2..=6, 1) => format!("{} et {one}", TENS[tens]),
        (2..=6, _) => join([TENS[tens], ONES[ones]], "-"),
        (7, 1) => "soixante et onze".into(),
        (7, _) => format!("soixante-{}", ONES[10 + ones]),
        (8, 0) => if last { "quatre-vingts" } else { "quatre-vingt" }.into(),
        (8, _) => format!("quatre-vingt-{}", unit(ones)),
        _ => format!("quatre-vingt-{}", ONES[10 + ones]),
    }
}

fn ordinal(number: u64) -> String {
    change_last(cardinal(number, Gender::Bare).trim_end_matches('s'), |last| match last {
        "troi" => "troisième".into(),
        "cinq" => "cinquième".into(),
        "neuf" => "neuvième".into(),
        _ => swap_end(last, "e", "ième").unwrap_or_else(|| format!("{last}ième")),
    })
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    match (mark, number) {
        ("er", 1) => Some("premier".into()),
        ("re" | "ère" | "ere", 1) => Some("première".into()),
        ("nd", 2) => Some("second".into()),
        ("nde", 2) => Some("seconde".into()),
        ("e" | "è" | "ème" | "eme" | "ième", 1..) => Some(ordinal(number)),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let year = cardinal(date.year, Gender::Bare);
    format!("{} {} {year}", (FRENCH.day)(date.day, ""), FRENCH.month(date.month))
}

fn time(time: &Time) -> String {
    let minutes = if time.minute > 0 { cardinal(time.minute, Gender::Feminine) } else { String::new() };
    let seconds = time.second.map(|second| format!("et {}", FRENCH.counted(second, FRENCH.units.second)));
    let hour = FRENCH.counted(time.hour, FRENCH.units.hour);
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
