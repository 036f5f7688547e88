//! Spanish: long scale ("mil millones"), ones and hundreds agree with what they count.

use super::numbers::{digits, join};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never_counted, one_or_many};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static SPANISH: Language = Language {
    code: "es",
    cardinal,
    marked,
    dot_ordinals: None,
    before,
    year: |number| cardinal(number, Gender::Bare),
    plural: one_or_many,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &['.', ' '],
    point: "coma",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "menos",
    to: "a",
    over: "entre",
    fractions: ["un medio", "un cuarto", "tres cuartos"],
    and: "con",
    symbols: ["y", "más", "igual a", "arroba"],
    currencies: &[
        ("€", Noun("m:euro|euros"), Noun("m:céntimo|céntimos")),
        ("$", Noun("m:dólar|dólares"), Noun("m:centavo|centavos")),
        ("£", Noun("f:libra|libras"), Noun("m:penique|peniques")),
        ("¥", Noun("m:yen|yenes"), Noun("")),
        ("₽", Noun("m:rublo|rublos"), Noun("m:kopek|kopeks")),
    ],
    magnitudes: &["mil", "millón", "millones", "billón", "billones"],
    magnitude_link: "de ",
    units: Units {
        prefixes: ["kilo", "centi", "mili", "mega", "giga", "tera"],
        metre: Noun("m:metro|metros"),
        gram: Noun("m:gramo|gramos"),
        tonne: Noun("f:tonelada|toneladas"),
        litre: Noun("m:litro|litros"),
        second: Noun("m:segundo|segundos"),
        minute: Noun("m:minuto|minutos"),
        hour: Noun("f:hora|horas"),
        hertz: Noun("m:hercio|hercios"),
        byte: Noun("m:byte|bytes"),
        watt: Noun("m:vatio|vatios"),
        watt_hour: Noun("m:vatio hora|vatios hora"),
        volt: Noun("m:voltio|voltios"),
        hectare: Noun("f:hectárea|hectáreas"),
        degree: Noun("m:grado|grados"),
        percent: Noun("m:por ciento"),
        per_mille: Noun("m:por mil"),
        square: "{} cuadrado|{} cuadrados",
        cubic: "{} cúbico|{} cúbicos",
        per_hour: "por hora",
        per_second: "por segundo",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[
            ("km", Noun("m:kilómetro|kilómetros")), ("cm", Noun("m:centímetro|centímetros")),
            ("mm", Noun("m:milímetro|milímetros")),
        ],
    },
    months: [
        "enero|ene", "febrero|feb", "marzo|mar", "abril|abr", "mayo", "junio|jun", "julio|jul", "agosto|ago",
        "septiembre|sept|sep|setiembre", "octubre|oct", "noviembre|nov", "diciembre|dic",
    ],
    month_links: &["de"],
    month_first: false,
    day: |day, _| if day == 1 { "primero".into() } else { cardinal(day, Gender::Bare) },
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &["h", "horas"],
    abbreviations: &[
        ("sr.", "señor"), ("sra.", "señora"), ("srta.", "señorita"), ("sres.", "señores"), ("dr.", "doctor"),
        ("dra.", "doctora"), ("prof.", "profesor"), ("ud.", "usted"), ("uds.", "ustedes"), ("vd.", "usted"),
        ("d.", "don"), ("dña.", "doña"), ("etc.", "etcétera"), ("p. ej.", "por ejemplo"), ("p.ej.", "por ejemplo"),
        ("avda.", "avenida"), ("av.", "avenida"), ("c/", "calle"), ("ee.uu.", "estados unidos"),
        ("ee. uu.", "estados unidos"), ("a. c.", "antes de cristo"), ("a.c.", "antes de cristo"),
        ("d. c.", "después de cristo"), ("d.c.", "después de cristo"), ("núm.#", "número"), ("n.º#", "número"),
        ("nº#", "número"), ("pág.#", "página"), ("págs.#", "páginas"), ("vol.#", "volumen"), ("cap.#", "capítulo"),
        ("tel.", "teléfono"), ("aprox.", "aproximadamente"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 30] = [
    "", "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "once", "doce", "trece",
    "catorce", "quince", "dieciséis", "diecisiete", "dieciocho", "diecinueve", "veinte", "veintiuno", "veintidós",
    "veintitrés", "veinticuatro", "veinticinco", "veintiséis", "veintisiete", "veintiocho", "veintinueve",
];
const TENS: [&str; 10] = ["", "", "", "treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "ciento", "doscientos", "trescientos", "cuatrocientos", "quinientos", "seiscientos", "setecientos",
    "ochocientos", "novecientos",
];

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "cero".into();
    }
    let million = 1_000_000;
    let scale = |count: u64, forms| match count {
        0 => String::new(),
        _ => format!("{} {}", below_million(count, Gender::Masculine), form(forms, one_or_many(count))),
    };
    let billions = scale(number / million / million, "billón|billones");
    let millions = scale(number / million % million, "millón|millones");
    join([billions.as_str(), &millions, &below_million(number % million, gender)], " ")
}

fn below_million(number: u64, gender: Gender) -> String {
    let before_mil = if gender == Gender::Feminine { Gender::Feminine } else { Gender::Masculine };
    let thousands = match number / 1000 {
        0 => String::new(),
        1 => "mil".into(),
        // The last one before "mil" is cut short: "veintiún mil", and not "veintiuna mil".
        many => feminine_hundreds(below_thousand(many, Gender::Masculine), before_mil) + " mil",
    };
    join([thousands.as_str(), &below_thousand(number % 1000, gender)], " ")
}

fn below_thousand(group: u64, gender: Gender) -> String {
    if group == 100 {
        return "cien".into();
    }
    let (hundreds, tens, ones) = digits(group);
    let one = match (gender, tens) {
        (Gender::Bare, 2) => "veintiuno",
        (Gender::Bare, _) => "uno",
        (Gender::Feminine, 2) => "veintiuna",
        (Gender::Feminine, _) => "una",
        (_, 2) => "veintiún",
        _ => "un",
    };
    let rest = match (tens, ones) {
        (0 | 2, 1) => one.to_owned(),
        (0..=2, _) => ONES[tens * 10 + ones].to_owned(),
        (_, 1) => format!("{} y {one}", TENS[tens]),
        _ => join([TENS[tens], ONES[ones]], " y "),
    };
    join([feminine_hundreds(HUNDREDS[hundreds].to_owned(), gender).as_str(), &rest], " ")
}

fn feminine_hundreds(words: String, gender: Gender) -> String {
    if gender == Gender::Feminine { words.replace("ientos", "ientas") } else { words }
}

/// A number that agrees with the next word, whose gender is guessed by its ending; short words count nothing.
fn before(number: u64, next: &str, _: &str) -> Option<String> {
    const OTHERS: [&str; 8] = ["para", "como", "pero", "entre", "hasta", "desde", "sobre", "contra"];
    let feminine = next.ends_with('a') || next.ends_with("as");
    let agrees = number % 10 == 1 && number % 100 != 11 || feminine && number >= 200;
    let gender = if feminine { Gender::Feminine } else { Gender::Masculine };
    (agrees && next.len() > 3 && !OTHERS.contains(&next)).then(|| cardinal(number, gender))
}

#[rustfmt::skip]
const ORDINALS: [&str; 13] = [
    "", "primero", "segundo", "tercero", "cuarto", "quinto", "sexto", "séptimo", "octavo", "noveno", "décimo",
    "undécimo", "duodécimo",
];
#[rustfmt::skip]
const TENTHS: [&str; 10] = [
    "", "décimo", "vigésimo", "trigésimo", "cuadragésimo", "quincuagésimo", "sexagésimo", "septuagésimo",
    "octogésimo", "nonagésimo",
];

/// An ordinal; above a hundred, Spanish speakers say the cardinal.
fn ordinal(number: u64) -> String {
    match number {
        0..=12 => ORDINALS[number as usize].to_owned(),
        13..=99 => join([TENTHS[number as usize / 10], ORDINALS[number as usize % 10]], " "),
        100 => "centésimo".into(),
        1000 => "milésimo".into(),
        _ => cardinal(number, Gender::Bare),
    }
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    let feminine =
        |words: String| words.split(' ').map(|w| w.trim_end_matches('o').to_owned() + "a").collect::<Vec<_>>();
    match mark {
        "º" | ".º" | "°" | "o" | "ro" | "do" if number > 0 => Some(ordinal(number)),
        "er" | ".er" if matches!(number % 10, 1 | 3) => Some(ordinal(number).trim_end_matches('o').to_owned()),
        "ª" | ".ª" | "a" | "ra" | "da" if (1..=100).contains(&number) => Some(feminine(ordinal(number)).join(" ")),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let year = cardinal(date.year, Gender::Bare);
    format!("{} de {} de {year}", (SPANISH.day)(date.day, ""), SPANISH.month(date.month))
}

fn time(time: &Time) -> String {
    let hour = cardinal(time.hour, Gender::Feminine);
    let minutes = match time.minute {
        0 if time.hour > 12 || time.hour == 0 => "horas".into(),
        0 => "en punto".into(),
        minute if time.hour > 12 => cardinal(minute, Gender::Bare),
        minute => format!("y {}", cardinal(minute, Gender::Bare)),
    };
    let seconds = time.second.map(|second| format!("y {}", SPANISH.counted(second, SPANISH.units.second)));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
