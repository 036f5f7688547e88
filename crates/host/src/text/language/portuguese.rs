//! Portuguese of Portugal (long scale, "mil milhões") and of Brazil (short scale, "um bilhão").

use super::numbers::{digits, join};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never_counted, one_or_many};

pub(super) static BRAZILIAN: Language = Language {
    code: "pt-br",
    cardinal: brazilian,
    year: |number| brazilian(number, Gender::Bare),
    day: |day, _| if day == 1 { "primeiro".into() } else { brazilian(day, Gender::Bare) },
    before: |number, next, after| (TABLE.before)(number, next, after).map(|_| brazilian(number, Gender::Feminine)),
    date: |of| respelled(date(of)),
    time: |of| respelled(time(of)),
    magnitudes: &["mil", "milhão", "milhões", "bilhão", "bilhões", "trilhão", "trilhões"],
    units: Units {
        irregular: &[
            ("km", Noun("m:quilômetro|quilômetros")),
            ("cm", Noun("m:centímetro|centímetros")),
            ("mm", Noun("m:milímetro|milímetros")),
        ],
        ..TABLE.units
    },
    ..TABLE
};

pub(super) static PORTUGUESE: Language = TABLE;

#[rustfmt::skip] // A table to read, several words a line.
const TABLE: Language = Language {
    code: "pt",
    cardinal: |number, gender| cardinal(number, gender, &LONG_SCALE),
    marked,
    dot_ordinals: None,
    before: |number, next, _| {
        let feminine = next.len() > 3 && (next.ends_with('a') || next.ends_with("as"));
        feminine.then(|| cardinal(number, Gender::Feminine, &LONG_SCALE))
    },
    year: |number| cardinal(number, Gender::Bare, &LONG_SCALE),
    plural: one_or_many,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &['.', ' '],
    point: "vírgula",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "menos",
    to: "a",
    over: "sobre",
    fractions: ["um meio", "um quarto", "três quartos"],
    and: "e",
    symbols: ["e", "mais", "igual a", "arroba"],
    currencies: &[
        ("€", Noun("m:euro|euros"), Noun("m:cêntimo|cêntimos")),
        ("r$", Noun("m:real|reais"), Noun("m:centavo|centavos")),
        ("$", Noun("m:dólar|dólares"), Noun("m:cêntimo|cêntimos")),
        ("£", Noun("f:libra|libras"), Noun("m:péni|pence")),
        ("¥", Noun("m:iene|ienes"), Noun("")),
        ("₽", Noun("m:rublo|rublos"), Noun("m:copeque|copeques")),
    ],
    magnitudes: &["mil", "milhão", "milhões", "bilião", "biliões"],
    magnitude_link: "de ",
    units: Units {
        prefixes: ["quilo", "centi", "mili", "mega", "giga", "tera"],
        metre: Noun("m:metro|metros"),
        gram: Noun("m:grama|gramas"),
        tonne: Noun("f:tonelada|toneladas"),
        litre: Noun("m:litro|litros"),
        second: Noun("m:segundo|segundos"),
        minute: Noun("m:minuto|minutos"),
        hour: Noun("f:hora|horas"),
        hertz: Noun("m:hertz"),
        byte: Noun("m:byte|bytes"),
        watt: Noun("m:watt|watts"),
        watt_hour: Noun("m:watt-hora|watts-hora"),
        volt: Noun("m:volt|volts"),
        hectare: Noun("m:hectare|hectares"),
        degree: Noun("m:grau|graus"),
        percent: Noun("m:por cento"),
        per_mille: Noun("m:por mil"),
        square: "{} quadrado|{} quadrados",
        cubic: "{} cúbico|{} cúbicos",
        per_hour: "por hora",
        per_second: "por segundo",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[
            ("km", Noun("m:quilómetro|quilómetros")), ("cm", Noun("m:centímetro|centímetros")),
            ("mm", Noun("m:milímetro|milímetros")),
        ],
    },
    months: [
        "janeiro|jan", "fevereiro|fev", "março|mar", "abril|abr", "maio|mai", "junho|jun", "julho|jul", "agosto|ago",
        "setembro|set", "outubro|out", "novembro|nov", "dezembro|dez",
    ],
    month_links: &["de"],
    month_first: false,
    day: |day, _| if day == 1 { "primeiro".into() } else { cardinal(day, Gender::Bare, &LONG_SCALE) },
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: Some("h"),
    time_words: &["h", "hora", "horas"],
    abbreviations: &[
        ("sr.", "senhor"), ("sra.", "senhora"), ("srta.", "senhorita"), ("dr.", "doutor"), ("dra.", "doutora"),
        ("prof.", "professor"), ("profa.", "professora"), ("exmo.", "excelentíssimo"), ("d.", "dom"),
        ("etc.", "etecétera"), ("p. ex.", "por exemplo"), ("p.ex.", "por exemplo"), ("av.", "avenida"),
        ("r.", "rua"), ("a.c.", "antes de cristo"), ("d.c.", "depois de cristo"), ("n.º#", "número"),
        ("nº#", "número"), ("n.#", "número"), ("pág.#", "página"), ("págs.#", "páginas"), ("vol.#", "volume"),
        ("cap.#", "capítulo"), ("art.#", "artigo"), ("tel.", "telefone"), ("aprox.", "aproximadamente"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito", "nove", "dez", "onze", "doze", "treze",
    "catorze", "quinze", "dezasseis", "dezassete", "dezoito", "dezanove",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "vinte", "trinta", "quarenta", "cinquenta", "sessenta", "setenta", "oitenta", "noventa",
];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "cento", "duzentos", "trezentos", "quatrocentos", "quinhentos", "seiscentos", "setecentos", "oitocentos",
    "novecentos",
];
/// Words of a scale, each with how many of the one below it make one.
type Scale = [(u64, &'static str)];
const LONG_SCALE: [(u64, &str); 2] = [(1_000_000_000_000, "bilião|biliões"), (1_000_000, "milhão|milhões")];
#[rustfmt::skip]
const SHORT_SCALE: [(u64, &str); 3] = [
    (1_000_000_000_000, "trilhão|trilhões"), (1_000_000_000, "bilhão|bilhões"), (1_000_000, "milhão|milhões"),
];

fn cardinal(number: u64, gender: Gender, scale: &Scale) -> String {
    if number == 0 {
        return "zero".into();
    }
    let mut words = String::new();
    let mut rest = number;
    for (size, name) in scale {
        let count = rest / size;
        rest %= size;
        if count > 0 {
            let named = format!("{} {}", below_million(count, Gender::Masculine), form(name, one_or_many(count)));
            words = join([words.as_str(), &named], " ");
        }
    }
    if rest == 0 {
        return words;
    }
    let link = if words.is_empty() || !linked(rest) { " " } else { " e " };
    join([words.as_str(), &below_million(rest, gender)], link)
}

fn brazilian(number: u64, gender: Gender) -> String {
    respelled(cardinal(number, gender, &SHORT_SCALE))
}

fn respelled(words: String) -> String {
    words.replace("dezass", "dezess").replace("dezanove", "dezenove")
}

/// Whether "e" links the rest to what is before it: "mil e cem", "mil e vinte", but "mil cento e vinte".
fn linked(rest: u64) -> bool {
    rest < 100 || (rest < 1000 && rest.is_multiple_of(100))
}

fn below_million(number: u64, gender: Gender) -> String {
    let rest = number % 1000;
    let thousands = match number / 1000 {
        0 => String::new(),
        1 => "mil".into(),
        many => below_thousand(many, gender) + " mil",
    };
    join([thousands.as_str(), &below_thousand(rest, gender)], if linked(rest) { " e " } else { " " })
}

fn below_thousand(group: u64, gender: Gender) -> String {
    if group == 100 {
        return "cem".into();
    }
    let (hundreds, tens, ones) = digits(group);
    let feminine = gender == Gender::Feminine;
    let unit = |index: usize| match index {
        1 if feminine => "uma",
        2 if feminine => "duas",
        _ => ONES[index],
    };
    let rest = match tens {
        0 | 1 => unit(tens * 10 + ones).to_owned(),
        _ => join([TENS[tens], unit(ones)], " e "),
    };
    let hundred = if feminine { HUNDREDS[hundreds].replace("entos", "entas") } else { HUNDREDS[hundreds].to_owned() };
    join([hundred.as_str(), &rest], " e ")
}

#[rustfmt::skip]
const ORDINALS: [&str; 10] = [
    "", "primeiro", "segundo", "terceiro", "quarto", "quinto", "sexto", "sétimo", "oitavo", "nono",
];
#[rustfmt::skip]
const TENTHS: [&str; 10] = [
    "", "décimo", "vigésimo", "trigésimo", "quadragésimo", "quinquagésimo", "sexagésimo", "septuagésimo",
    "octogésimo", "nonagésimo",
];

/// An ordinal; above a hundred, speakers say the cardinal.
fn ordinal(number: u64) -> String {
    match number {
        1..=99 => join([TENTHS[number as usize / 10], ORDINALS[number as usize % 10]], " "),
        100 => "centésimo".into(),
        1000 => "milésimo".into(),
        _ => cardinal(number, Gender::Bare, &LONG_SCALE),
    }
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    let feminine =
        |words: String| words.split(' ').map(|w| w.trim_end_matches('o').to_owned() + "a").collect::<Vec<_>>();
    match mark {
        "º" | ".º" | "°" | "o" if number > 0 => Some(ordinal(number)),
        "ª" | ".ª" | "a" if (1..=100).contains(&number) => Some(feminine(ordinal(number)).join(" ")),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let year = cardinal(date.year, Gender::Bare, &LONG_SCALE);
    format!("{} de {} de {year}", (TABLE.day)(date.day, ""), TABLE.month(date.month))
}

fn time(time: &Time) -> String {
    let minutes =
        if time.minute > 0 { format!("e {}", cardinal(time.minute, Gender::Bare, &LONG_SCALE)) } else { String::new() };
    let seconds = time.second.map(|second| format!("e {}", TABLE.counted(second, TABLE.units.second)));
    let hour = TABLE.counted(time.hour, TABLE.units.hour);
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
