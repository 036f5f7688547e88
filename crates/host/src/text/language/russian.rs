//! Russian: 21 counts like 1, thousands are feminine; fractions have names, years and days are ordinals.

use super::numbers::{digits, join, slavic, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never_counted};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static RUSSIAN: Language = Language {
    code: "ru",
    cardinal,
    marked,
    dot_ordinals: None,
    before,
    year: |number| cardinal(number, Gender::Bare),
    plural,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &[' '],
    point: "запятая",
    fraction: Fraction::Named(fraction),
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "минус",
    to: "до",
    over: "дробь",
    fractions: ["одна вторая", "одна четвёртая", "три четвёртых"],
    and: "и",
    symbols: ["и", "плюс", "равно", "собака"],
    currencies: &[
        ("₽", Noun("m:рубль|рубля|рублей"), Noun("f:копейка|копейки|копеек")),
        ("руб.", Noun("m:рубль|рубля|рублей"), Noun("f:копейка|копейки|копеек")),
        ("р.", Noun("m:рубль|рубля|рублей"), Noun("f:копейка|копейки|копеек")),
        ("$", Noun("m:доллар|доллара|долларов"), Noun("m:цент|цента|центов")),
        ("€", Noun("m:евро"), Noun("m:цент|цента|центов")),
        ("£", Noun("m:фунт|фунта|фунтов"), Noun("m:пенс|пенса|пенсов")),
        ("¥", Noun("f:иена|иены|иен"), Noun("")),
    ],
    magnitudes: &["тысяча", "тысячи", "тысяч", "миллион", "миллиона", "миллионов", "миллиард", "миллиарда", "миллиардов"],
    magnitude_link: "",
    units: Units {
        prefixes: ["кило", "санти", "милли", "мега", "гига", "тера"],
        metre: Noun("m:метр|метра|метров"),
        gram: Noun("m:грамм|грамма|граммов"),
        tonne: Noun("f:тонна|тонны|тонн"),
        litre: Noun("m:литр|литра|литров"),
        second: Noun("f:секунда|секунды|секунд"),
        minute: Noun("f:минута|минуты|минут"),
        hour: Noun("m:час|часа|часов"),
        hertz: Noun("m:герц|герца|герц"),
        byte: Noun("m:байт|байта|байт"),
        watt: Noun("m:ватт|ватта|ватт"),
        watt_hour: Noun("m:ватт-час|ватт-часа|ватт-часов"),
        volt: Noun("m:вольт|вольта|вольт"),
        hectare: Noun("m:гектар|гектара|гектаров"),
        degree: Noun("m:градус|градуса|градусов"),
        percent: Noun("m:процент|процента|процентов"),
        per_mille: Noun("n:промилле"),
        square: "квадратный {}|квадратных {}|квадратных {}",
        cubic: "кубический {}|кубических {}|кубических {}",
        per_hour: "в час",
        per_second: "в секунду",
        celsius: "цельсия",
        fahrenheit: "фаренгейта",
        aliases: &[
            ("км/ч", "km/h"), ("м/с", "m/s"), ("км²", "km²"), ("м²", "m²"), ("м³", "m³"), ("°с", "°C"), ("квт·ч", "kWh"),
            ("км", "km"), ("см", "cm"), ("мм", "mm"), ("кг", "kg"), ("мг", "mg"), ("мл", "ml"), ("мин", "min"),
            ("кгц", "kHz"), ("мгц", "MHz"), ("ггц", "GHz"), ("гц", "Hz"), ("кб", "kB"), ("мб", "MB"), ("гб", "GB"),
            ("тб", "TB"), ("квт", "kW"), ("мвт", "MW"), ("вт", "W"), ("га", "ha"), ("м", "m"), ("г", "g"), ("т", "t"),
            ("л", "l"), ("ч", "h"), ("с", "s"), ("в", "V"),
        ],
        irregular: &[],
    },
    months: [
        "января|янв", "февраля|фев", "марта|мар", "апреля|апр", "мая", "июня|июн", "июля|июл", "августа|авг",
        "сентября|сен", "октября|окт", "ноября|ноя", "декабря|дек",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| ordinal(day, "ого"),
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &["час", "часа", "часов", "ч"],
    abbreviations: &[
        ("т. е.", "то есть"), ("т.е.", "то есть"), ("т. д.", "так далее"), ("т.д.", "так далее"),
        ("т. п.", "тому подобное"), ("т.п.", "тому подобное"), ("т. к.", "так как"), ("т.к.", "так как"),
        ("др.", "другие"), ("напр.", "например"), ("ул.", "улица"), ("пр.", "проспект"), ("им.", "имени"),
        ("гг.", "годов"), ("г.", "года"), ("в.", "века"), ("вв.", "веков"), ("тыс.", "тысяч"), ("млн", "миллионов"),
        ("млрд", "миллиардов"), ("проф.", "профессор"), ("см.", "смотри"), ("стр.#", "страница"), ("с.#", "страница"),
        ("рис.#", "рисунок"), ("гл.#", "глава"), ("тел.", "телефон"), ("no#", "номер"), ("№#", "номер"),
        ("н. э.", "нашей эры"), ("н.э.", "нашей эры"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь", "девять", "десять", "одиннадцать",
    "двенадцать", "тринадцать", "четырнадцать", "пятнадцать", "шестнадцать", "семнадцать", "восемнадцать",
    "девятнадцать",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "двадцать", "тридцать", "сорок", "пятьдесят", "шестьдесят", "семьдесят", "восемьдесят", "девяносто",
];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "сто", "двести", "триста", "четыреста", "пятьсот", "шестьсот", "семьсот", "восемьсот", "девятьсот",
];
#[rustfmt::skip]
const SCALES: [&str; 5] = [
    "", "тысяча|тысячи|тысяч", "миллион|миллиона|миллионов", "миллиард|миллиарда|миллиардов",
    "триллион|триллиона|триллионов",
];

fn plural(number: u64) -> usize {
    slavic(number, true)
}

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "ноль".into();
    }
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| {
            let gender = [gender, Gender::Feminine, Gender::Masculine, Gender::Masculine, Gender::Masculine][power];
            join([below_thousand(group, gender).as_str(), form(SCALES[power], plural(group))], " ")
        })
        .collect();
    groups.join(" ")
}

fn below_thousand(group: u64, gender: Gender) -> String {
    let (hundreds, tens, ones) = digits(group);
    let unit = match (ones, gender) {
        (1, Gender::Feminine) => "одна",
        (1, Gender::Neuter) => "одно",
        (2, Gender::Feminine) => "две",
        _ => ONES[ones],
    };
    let (tens, ones) = if tens == 1 { ("", ONES[10 + ones]) } else { (TENS[tens], unit) };
    join([HUNDREDS[hundreds], tens, ones], " ")
}

/// A decimal number: "три целых пять десятых".
fn fraction(whole: u64, digits: &str) -> Option<String> {
    let part = ["десятая|десятых", "сотая|сотых", "тысячная|тысячных"].get(digits.len().checked_sub(1)?)?;
    let of = |number: u64, forms| {
        let words = cardinal(number, Gender::Feminine);
        format!("{words} {}", form(forms, usize::from(plural(number) != 0)))
    };
    Some(format!("{} {}", of(whole, "целая|целых"), of(digits.parse().ok()?, part)))
}

/// Ordinals without their endings; "трет" is soft.
#[rustfmt::skip]
const ORDINALS: [&str; 20] = [
    "нулев", "перв", "втор", "трет", "четвёрт", "пят", "шест", "седьм", "восьм", "девят", "десят", "одиннадцат",
    "двенадцат", "тринадцат", "четырнадцат", "пятнадцат", "шестнадцат", "семнадцат", "восемнадцат", "девятнадцат",
];
#[rustfmt::skip]
const TENTHS: [&str; 10] = [
    "", "", "двадцат", "тридцат", "сороков", "пятидесят", "шестидесят", "семидесят", "восьмидесят", "девяност",
];
#[rustfmt::skip]
const HUNDREDTHS: [&str; 10] = [
    "", "сот", "двухсот", "трёхсот", "четырёхсот", "пятисот", "шестисот", "семисот", "восьмисот", "девятисот",
];

/// An ordinal, of which only the last word is one. `ending` is that of a hard adjective; "ый" stands for the nominative.
fn ordinal(number: u64, ending: &str) -> String {
    let (above, stem) = match number {
        0..=19 => (0, ORDINALS[number as usize].to_owned()),
        _ if number % 100 >= 20 && number.is_multiple_of(10) => {
            (number - number % 100, TENTHS[number as usize / 10 % 10].to_owned())
        }
        _ if number % 100 > 19 => (number - number % 10, ORDINALS[number as usize % 10].to_owned()),
        _ if !number.is_multiple_of(100) => (number - number % 100, ORDINALS[number as usize % 100].to_owned()),
        _ if !number.is_multiple_of(1000) => {
            (number - number % 1000, HUNDREDTHS[number as usize / 100 % 10].to_owned())
        }
        1000 => (0, "тысячн".into()),
        2000 => (0, "двухтысячн".into()),
        _ => return cardinal(number, Gender::Bare),
    };
    let above = if above > 0 { cardinal(above, Gender::Bare) } else { String::new() };
    // Years are said "тысяча девятьсот", without "одна".
    let above = above.strip_prefix("одна ").unwrap_or(&above);
    let ending = match (stem.as_str(), ending) {
        ("трет", "ый") => "ий",
        ("трет", "ого") => "ьего",
        ("трет", "ом") => "ьем",
        ("трет", "ому") => "ьему",
        ("трет", "ая") => "ья",
        ("трет", "ое") => "ье",
        ("трет", "ых") => "ьих",
        ("втор" | "шест" | "седьм" | "восьм" | "сороков" | "нулев", "ый") => "ой",
        _ => ending,
    };
    join([above, &format!("{stem}{ending}")], " ")
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    let ending = match mark.strip_prefix('-').unwrap_or(mark) {
        "й" | "ый" | "ой" | "ий" => "ый",
        "го" | "ого" => "ого",
        "му" | "ому" => "ому",
        "м" | "ом" if mark.starts_with('-') => "ом",
        "я" | "ая" => "ая",
        "е" | "ое" => "ое",
        "х" | "ых" => "ых",
        _ => return None,
    };
    Some(ordinal(number, ending))
}

fn before(number: u64, next: &str, after: &str) -> Option<String> {
    match next {
        "год" if number >= 1000 => Some(ordinal(number, "ый")),
        "года" | "г." if number >= 1000 => Some(ordinal(number, "ого")),
        "году" if number >= 1000 => Some(ordinal(number, "ом")),
        "век" => Some(ordinal(number, "ый")),
        "века" | "в." if (5..=30).contains(&number) => Some(ordinal(number, "ого")),
        "веке" => Some(ordinal(number, "ом")),
        _ => agreeing(number, next, after),
    }
}

/// A number that agrees with the next word, whose gender is guessed by its ending: "одна минута", "две минуты", "одно окно".
/// Behind a preposition of the genitive the ending says something else.
fn agreeing(number: u64, next: &str, after: &str) -> Option<String> {
    if matches!(after, "от" | "до" | "из" | "с" | "без" | "около" | "после" | "для" | "у" | "более" | "менее")
    {
        return None;
    }
    if plural(number) == 0 && next.chars().count() > 2 && next.ends_with(['у', 'ю']) {
        return swap_end(&cardinal(number, Gender::Feminine), "одна", "одну");
    }
    let gender = match (plural(number), next.chars().next_back()?) {
        (0, 'а' | 'я') | (1, 'ы' | 'и') => Gender::Feminine,
        (0, 'о' | 'е') => Gender::Neuter,
        _ => return None,
    };
    (next.chars().count() > 2).then(|| cardinal(number, gender))
}

fn date(date: &Date) -> String {
    format!("{} {} {} года", ordinal(date.day, "ого"), RUSSIAN.month(date.month), ordinal(date.year, "ого"))
}

fn time(time: &Time) -> String {
    let units = &RUSSIAN.units;
    let minutes = if time.minute > 0 { RUSSIAN.counted(time.minute, units.minute) } else { String::new() };
    let seconds = time.second.map(|second| RUSSIAN.counted(second, units.second));
    let hour = RUSSIAN.counted(time.hour, units.hour);
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
