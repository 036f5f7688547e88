//! Polish: three plural forms and one behind fractions; dates and hours are ordinals.

use super::numbers::{digits, join, slavic, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never_counted};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static POLISH: Language = Language {
    code: "pl",
    cardinal,
    marked: |number, mark, _| matches!(mark, ".").then(|| ordinal(number)),
    dot_ordinals: Some(&[]),
    before,
    year: |number| cardinal(number, Gender::Bare),
    plural,
    plural_of_fractions: 3,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &[' ', '.'],
    point: "przecinek",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "minus",
    to: "do",
    over: "przez",
    fractions: ["jedna druga", "jedna czwarta", "trzy czwarte"],
    and: "i",
    symbols: ["i", "plus", "równa się", "małpa"],
    currencies: &[
        ("zł", Noun("m:złoty|złote|złotych|złotego"), Noun("m:grosz|grosze|groszy|grosza")),
        ("pln", Noun("m:złoty|złote|złotych|złotego"), Noun("m:grosz|grosze|groszy|grosza")),
        ("€", Noun("n:euro"), Noun("m:cent|centy|centów|centa")),
        ("$", Noun("m:dolar|dolary|dolarów|dolara"), Noun("m:cent|centy|centów|centa")),
        ("£", Noun("m:funt|funty|funtów|funta"), Noun("m:pens|pensy|pensów|pensa")),
        ("¥", Noun("m:jen|jeny|jenów|jena"), Noun("")),
        ("₽", Noun("m:rubel|ruble|rubli|rubla"), Noun("f:kopiejka|kopiejki|kopiejek|kopiejki")),
    ],
    magnitudes: &["tysiąc", "tysiące", "tysięcy", "milion", "miliony", "milionów", "miliard", "miliardy", "miliardów"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "centy", "mili", "mega", "giga", "tera"],
        metre: Noun("m:metr|metry|metrów|metra"),
        gram: Noun("m:gram|gramy|gramów|grama"),
        tonne: Noun("f:tona|tony|ton|tony"),
        litre: Noun("m:litr|litry|litrów|litra"),
        second: Noun("f:sekunda|sekundy|sekund|sekundy"),
        minute: Noun("f:minuta|minuty|minut|minuty"),
        hour: Noun("f:godzina|godziny|godzin|godziny"),
        hertz: Noun("m:herc|herce|herców|herca"),
        byte: Noun("m:bajt|bajty|bajtów|bajta"),
        watt: Noun("m:wat|waty|watów|wata"),
        watt_hour: Noun("f:watogodzina|watogodziny|watogodzin|watogodziny"),
        volt: Noun("m:wolt|wolty|woltów|wolta"),
        hectare: Noun("m:hektar|hektary|hektarów|hektara"),
        degree: Noun("m:stopień|stopnie|stopni|stopnia"),
        percent: Noun("m:procent|procent|procent|procent"),
        per_mille: Noun("m:promil|promile|promili|promila"),
        square: "{} kwadratowy|{} kwadratowe|{} kwadratowych|{} kwadratowego",
        cubic: "{} sześcienny|{} sześcienne|{} sześciennych|{} sześciennego",
        per_hour: "na godzinę",
        per_second: "na sekundę",
        celsius: "celsjusza",
        fahrenheit: "fahrenheita",
        aliases: &[("godz.", "h")],
        irregular: &[],
    },
    months: [
        "stycznia|sty", "lutego|lut", "marca|mar", "kwietnia|kwi", "maja", "czerwca|cze", "lipca|lip", "sierpnia|sie",
        "września|wrz", "października|paź", "listopada|lis", "grudnia|gru",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| genitive(ordinal(day)),
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[
        ("np.", "na przykład"), ("itd.", "i tak dalej"), ("itp.", "i tym podobne"), ("tzn.", "to znaczy"),
        ("tj.", "to jest"), ("m.in.", "między innymi"), ("m. in.", "między innymi"), ("dr", "doktor"),
        ("prof.", "profesor"), ("mgr", "magister"), ("inż.", "inżynier"), ("św.", "święty"), ("ul.", "ulica"),
        ("al.", "aleja"), ("pl.", "plac"), ("ok.", "około"), ("tzw.", "tak zwany"), ("tys.", "tysięcy"),
        ("mln", "milionów"), ("mld", "miliardów"), ("godz.#", "godzina"), ("nr#", "numer"), ("s.#", "strona"),
        ("str.#", "strona"), ("t.#", "tom"), ("rozdz.#", "rozdział"), ("art.#", "artykuł"), ("tel.", "telefon"),
        ("p.n.e.", "przed naszą erą"), ("n.e.", "naszej ery"), ("im.", "imienia"), ("wg", "według"), ("r.", "roku"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "jeden", "dwa", "trzy", "cztery", "pięć", "sześć", "siedem", "osiem", "dziewięć", "dziesięć", "jedenaście",
    "dwanaście", "trzynaście", "czternaście", "piętnaście", "szesnaście", "siedemnaście", "osiemnaście",
    "dziewiętnaście",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "dwadzieścia", "trzydzieści", "czterdzieści", "pięćdziesiąt", "sześćdziesiąt", "siedemdziesiąt",
    "osiemdziesiąt", "dziewięćdziesiąt",
];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "sto", "dwieście", "trzysta", "czterysta", "pięćset", "sześćset", "siedemset", "osiemset", "dziewięćset",
];
#[rustfmt::skip]
const SCALES: [&str; 5] = [
    "", "tysiąc|tysiące|tysięcy", "milion|miliony|milionów", "miliard|miliardy|miliardów", "bilion|biliony|bilionów",
];

fn plural(number: u64) -> usize {
    slavic(number, false)
}

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "zero".into();
    }
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (0, 1) if number == 1 => one(gender).into(),
            (0, _) => below_thousand(group, gender),
            (_, 1) => form(SCALES[power], 0).into(),
            _ => format!("{} {}", below_thousand(group, Gender::Masculine), form(SCALES[power], plural(group))),
        })
        .collect();
    groups.join(" ")
}

fn one(gender: Gender) -> &'static str {
    match gender {
        Gender::Feminine => "jedna",
        Gender::Neuter => "jedno",
        _ => "jeden",
    }
}

fn below_thousand(group: u64, gender: Gender) -> String {
    let (hundreds, tens, ones) = digits(group);
    let unit = |index: usize| if index == 2 && gender == Gender::Feminine { "dwie" } else { ONES[index] };
    let (tens, ones) = if tens == 1 { ("", ONES[10 + ones]) } else { (TENS[tens], unit(ones)) };
    join([HUNDREDS[hundreds], tens, ones], " ")
}

#[rustfmt::skip]
const ORDINALS: [&str; 20] = [
    "zerowy", "pierwszy", "drugi", "trzeci", "czwarty", "piąty", "szósty", "siódmy", "ósmy", "dziewiąty", "dziesiąty",
    "jedenasty", "dwunasty", "trzynasty", "czternasty", "piętnasty", "szesnasty", "siedemnasty", "osiemnasty",
    "dziewiętnasty",
];
#[rustfmt::skip]
const TENTHS: [&str; 10] = [
    "", "", "dwudziesty", "trzydziesty", "czterdziesty", "pięćdziesiąty", "sześćdziesiąty", "siedemdziesiąty",
    "osiemdziesiąty", "dziewięćdziesiąty",
];
#[rustfmt::skip]
const HUNDREDTHS: [&str; 10] = [
    "", "setny", "dwusetny", "trzechsetny", "czterechsetny", "pięćsetny", "sześćsetny", "siedemsetny", "osiemsetny",
    "dziewięćsetny",
];

/// An ordinal: tens and ones are ordinals, what is before them is not.
fn ordinal(number: u64) -> String {
    let (rest, above) = (number % 100, number - number % 100);
    match number {
        0..=19 => return ORDINALS[number as usize].into(),
        1000 => return "tysięczny".into(),
        2000 => return "dwutysięczny".into(),
        1_000_000 => return "milionowy".into(),
        _ => {}
    }
    if rest == 0 {
        let (hundreds, above) = ((number / 100 % 10) as usize, number - number % 1000);
        let above = if above > 0 { cardinal(above, Gender::Bare) } else { String::new() };
        return if hundreds > 0 { join([above.as_str(), HUNDREDTHS[hundreds]], " ") } else { above };
    }
    let above = if above > 0 { cardinal(above, Gender::Bare) } else { String::new() };
    let last = if rest < 20 {
        ORDINALS[rest as usize].to_owned()
    } else {
        join([TENTHS[rest as usize / 10], if rest % 10 > 0 { ORDINALS[rest as usize % 10] } else { "" }], " ")
    };
    join([above.as_str(), &last], " ")
}

fn genitive(ordinal: String) -> String {
    inflect(&ordinal, "ego", "iego")
}

fn feminine(ordinal: String) -> String {
    inflect(&ordinal, "a", "a").replace("trzeca", "trzecia")
}

fn inflect(ordinal: &str, hard: &str, soft: &str) -> String {
    let word = |word: &str| {
        let ordinal = TENTHS.contains(&word)
            || ORDINALS.contains(&word)
            || HUNDREDTHS.contains(&word)
            || word.ends_with("tysięczny");
        let ends = swap_end(word, "y", hard).or_else(|| swap_end(word, "i", soft));
        if ordinal { ends.unwrap_or_else(|| word.to_owned()) } else { word.to_owned() }
    };
    ordinal.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn before(number: u64, next: &str, after: &str) -> Option<String> {
    match next.trim_end_matches('.') {
        "roku" | "r" if number >= 1000 && after == "w" => Some(inflect(&ordinal(number), "ym", "im")),
        "roku" | "r" if number >= 1000 => Some(genitive(ordinal(number))),
        "rok" if number >= 1000 => Some(ordinal(number)),
        "wieku" | "w" if number <= 30 => Some(genitive(ordinal(number))),
        "wiek" => Some(ordinal(number)),
        word if number == 1 && word.ends_with('a') => Some(one(Gender::Feminine).into()),
        word if number == 1 && word.len() > 2 && word.ends_with(['o', 'e', 'ę']) => Some(one(Gender::Neuter).into()),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let (day, year) = (genitive(ordinal(date.day)), genitive(ordinal(date.year)));
    format!("{day} {} {year} roku", POLISH.month(date.month))
}

fn time(time: &Time) -> String {
    let hour = feminine(ordinal(time.hour));
    let hour = match time.after {
        "o" | "po" | "przed" | "od" | "do" => {
            hour.split(' ').map(|word| word.trim_end_matches('a').to_owned() + "ej").collect::<Vec<_>>().join(" ")
        }
        _ => hour,
    };
    let minutes = match time.minute {
        0 => String::new(),
        minute @ 1..=9 => format!("zero {}", ONES[minute as usize]),
        minute => cardinal(minute, Gender::Bare),
    };
    let seconds = time.second.map(|second| format!("i {}", POLISH.counted(second, POLISH.units.second)));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
