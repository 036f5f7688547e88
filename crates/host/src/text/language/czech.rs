//! Czech: three plural forms and one behind fractions; years before 2000 are counted in hundreds.

use super::numbers::{digits, join, slavic, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never_counted};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static CZECH: Language = Language {
    code: "cs",
    cardinal,
    marked: |number, mark, _| (mark == ".").then(|| ordinal(number)),
    dot_ordinals: Some(&[]),
    before,
    year,
    plural,
    plural_of_fractions: 3,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &[' ', '.'],
    point: "celá",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "minus",
    to: "až",
    over: "lomeno",
    fractions: ["jedna polovina", "jedna čtvrtina", "tři čtvrtiny"],
    and: "a",
    symbols: ["a", "plus", "rovná se", "zavináč"],
    currencies: &[
        ("kč", Noun("f:koruna|koruny|korun|koruny"), Noun("m:haléř|haléře|haléřů|haléře")),
        ("czk", Noun("f:koruna|koruny|korun|koruny"), Noun("m:haléř|haléře|haléřů|haléře")),
        ("€", Noun("n:euro|eura|eur|eura"), Noun("m:cent|centy|centů|centu")),
        ("$", Noun("m:dolar|dolary|dolarů|dolaru"), Noun("m:cent|centy|centů|centu")),
        ("£", Noun("f:libra|libry|liber|libry"), Noun("f:pence")),
        ("¥", Noun("m:jen|jeny|jenů|jenu"), Noun("")),
        ("₽", Noun("m:rubl|rubly|rublů|rublu"), Noun("f:kopejka|kopejky|kopejek|kopejky")),
    ],
    magnitudes: &["tisíc", "tisíce", "milion", "miliony", "milionů", "milionu", "miliarda", "miliardy", "miliard"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "centi", "mili", "mega", "giga", "tera"],
        metre: Noun("m:metr|metry|metrů|metru"),
        gram: Noun("m:gram|gramy|gramů|gramu"),
        tonne: Noun("f:tuna|tuny|tun|tuny"),
        litre: Noun("m:litr|litry|litrů|litru"),
        second: Noun("f:sekunda|sekundy|sekund|sekundy"),
        minute: Noun("f:minuta|minuty|minut|minuty"),
        hour: Noun("f:hodina|hodiny|hodin|hodiny"),
        hertz: Noun("m:hertz|hertze|hertzů|hertzu"),
        byte: Noun("m:bajt|bajty|bajtů|bajtu"),
        watt: Noun("m:watt|watty|wattů|wattu"),
        watt_hour: Noun("f:watthodina|watthodiny|watthodin|watthodiny"),
        volt: Noun("m:volt|volty|voltů|voltu"),
        hectare: Noun("m:hektar|hektary|hektarů|hektaru"),
        degree: Noun("m:stupeň|stupně|stupňů|stupně"),
        percent: Noun("n:procento|procenta|procent|procenta"),
        per_mille: Noun("n:promile"),
        square: "{} čtvereční|{} čtvereční|{} čtverečních|{} čtverečního",
        cubic: "{} krychlový|{} krychlové|{} krychlových|{} krychlového",
        per_hour: "za hodinu",
        per_second: "za sekundu",
        celsius: "celsia",
        fahrenheit: "fahrenheita",
        aliases: &[("hod.", "h")],
        irregular: &[],
    },
    months: [
        "ledna|led", "února|úno", "března|bře", "dubna|dub", "května|kvě", "června", "července", "srpna|srp",
        "září|zář", "října|říj", "listopadu|lis", "prosince|pro",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| genitive(&ordinal(day)),
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &["hodin", "hodiny", "hod."],
    abbreviations: &[
        ("např.", "například"), ("atd.", "a tak dále"), ("apod.", "a podobně"), ("tj.", "to jest"),
        ("tzv.", "takzvaný"), ("tzn.", "to znamená"), ("mj.", "mimo jiné"), ("resp.", "respektive"), ("cca", "cirka"),
        ("mudr.", "doktor"), ("dr.", "doktor"), ("ing.", "inženýr"), ("mgr.", "magistr"), ("prof.", "profesor"),
        ("doc.", "docent"), ("sv.", "svatý"), ("ul.", "ulice"), ("nám.", "náměstí"), ("tis.", "tisíc"),
        ("mil.", "milionů"), ("mld.", "miliard"), ("č.#", "číslo"), ("str.#", "strana"), ("s.#", "strana"),
        ("kap.#", "kapitola"), ("obr.#", "obrázek"), ("tel.", "telefon"), ("př. n. l.", "před naším letopočtem"),
        ("n. l.", "našeho letopočtu"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "jedna", "dva", "tři", "čtyři", "pět", "šest", "sedm", "osm", "devět", "deset", "jedenáct", "dvanáct",
    "třináct", "čtrnáct", "patnáct", "šestnáct", "sedmnáct", "osmnáct", "devatenáct",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "dvacet", "třicet", "čtyřicet", "padesát", "šedesát", "sedmdesát", "osmdesát", "devadesát",
];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "sto", "dvě stě", "tři sta", "čtyři sta", "pět set", "šest set", "sedm set", "osm set", "devět set",
];
#[rustfmt::skip]
const SCALES: [&str; 5] = [
    "", "tisíc|tisíce|tisíc", "milion|miliony|milionů", "miliarda|miliardy|miliard", "bilion|biliony|bilionů",
];

fn plural(number: u64) -> usize {
    match number {
        1 => 0,
        2..=4 => 1,
        _ => 2,
    }
}

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "nula".into();
    }
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (0, _) => below_thousand(group, gender),
            (_, 1) => form(SCALES[power], 0).into(),
            (3, _) => format!("{} {}", below_thousand(group, Gender::Feminine), form(SCALES[power], scale_form(group))),
            _ => format!("{} {}", below_thousand(group, Gender::Bare), form(SCALES[power], scale_form(group))),
        })
        .collect();
    groups.join(" ")
}

/// Form of "milion" and its like behind a group: 23 and 103 count like 3: "dvacet tři miliony".
fn scale_form(group: u64) -> usize {
    slavic(group, false)
}

fn below_thousand(group: u64, gender: Gender) -> String {
    let (hundreds, tens, ones) = digits(group);
    let unit = match (ones, gender) {
        (1, Gender::Masculine) => "jeden",
        (1, Gender::Neuter) => "jedno",
        (2, Gender::Feminine | Gender::Neuter) => "dvě",
        _ => ONES[ones],
    };
    let (tens, ones) = if tens == 1 { ("", ONES[10 + ones]) } else { (TENS[tens], unit) };
    join([HUNDREDS[hundreds], tens, ones], " ")
}

#[rustfmt::skip]
const ORDINALS: [&str; 20] = [
    "nultý", "první", "druhý", "třetí", "čtvrtý", "pátý", "šestý", "sedmý", "osmý", "devátý", "desátý", "jedenáctý",
    "dvanáctý", "třináctý", "čtrnáctý", "patnáctý", "šestnáctý", "sedmnáctý", "osmnáctý", "devatenáctý",
];
#[rustfmt::skip]
const TENTHS: [&str; 10] = [
    "", "", "dvacátý", "třicátý", "čtyřicátý", "padesátý", "šedesátý", "sedmdesátý", "osmdesátý", "devadesátý",
];
#[rustfmt::skip]
const HUNDREDTHS: [&str; 10] = [
    "", "stý", "dvoustý", "třístý", "čtyřstý", "pětistý", "šestistý", "sedmistý", "osmistý", "devítistý",
];

fn ordinal(number: u64) -> String {
    let (above, rest) = (number - number % 100, number as usize % 100);
    let last = match rest {
        0 if number == 0 => return ORDINALS[0].into(),
        0 if number.is_multiple_of(1000) => {
            return if number == 1000 { "tisící".into() } else { cardinal(number, Gender::Bare) };
        }
        0 => {
            let thousands = number - number % 1000;
            let thousands = if thousands > 0 { cardinal(thousands, Gender::Bare) } else { String::new() };
            return join([thousands.as_str(), HUNDREDTHS[number as usize / 100 % 10]], " ");
        }
        1..=19 => ORDINALS[rest].to_owned(),
        _ => join([TENTHS[rest / 10], if rest % 10 > 0 { ORDINALS[rest % 10] } else { "" }], " "),
    };
    let above = if above > 0 { cardinal(above, Gender::Bare) } else { String::new() };
    join([above.as_str(), &last], " ")
}

/// The genitive of an ordinal, for a day of the month: "dvacátého pátého".
fn genitive(ordinal: &str) -> String {
    let word =
        |word: &str| swap_end(word, "ý", "ého").or_else(|| swap_end(word, "í", "ího")).unwrap_or_else(|| word.into());
    ordinal.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn year(number: u64) -> String {
    match number {
        1100..=1999 => {
            let rest = if !number.is_multiple_of(100) { cardinal(number % 100, Gender::Bare) } else { String::new() };
            join([cardinal(number / 100, Gender::Bare).as_str(), "set", &rest], " ")
        }
        _ => cardinal(number, Gender::Bare),
    }
}

/// A number that agrees with the next word, whose gender is guessed by its ending.
fn before(number: u64, next: &str, _: &str) -> Option<String> {
    let gender = match next.chars().next_back()? {
        'a' | 'e' | 'í' => Gender::Feminine,
        'o' => Gender::Neuter,
        _ => Gender::Masculine,
    };
    (number == 1 && next.len() > 2).then(|| cardinal(1, gender))
}

fn date(date: &Date) -> String {
    format!("{} {} {}", genitive(&ordinal(date.day)), CZECH.month(date.month), year(date.year))
}

fn time(time: &Time) -> String {
    let units = &CZECH.units;
    let minutes = if time.minute > 0 { CZECH.counted(time.minute, units.minute) } else { String::new() };
    let seconds = time.second.map(|second| CZECH.counted(second, units.second));
    let hour = CZECH.counted(time.hour, units.hour);
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
