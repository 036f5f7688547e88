//! English, as Americans count: "one hundred five", without "and". Years in pairs, dates month first.

use super::numbers::{change_last, digits, join, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never, never_counted, one_or_many};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static ENGLISH: Language = Language {
    code: "en",
    cardinal,
    marked,
    dot_ordinals: None,
    before: never,
    year,
    plural: one_or_many,
    plural_of_fractions: 1,
    count: never_counted,
    decimal_mark: '.',
    group_marks: &[','],
    point: "point",
    fraction: Fraction::Digits,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "minus",
    to: "to",
    over: "over",
    fractions: ["one half", "one quarter", "three quarters"],
    and: "and",
    symbols: ["and", "plus", "equals", "at"],
    currencies: &[
        ("$", Noun("dollar|dollars"), Noun("cent|cents")),
        ("€", Noun("euro|euros"), Noun("cent|cents")),
        ("£", Noun("pound|pounds"), Noun("penny|pence")),
        ("¥", Noun("yen"), Noun("")),
        ("₽", Noun("ruble|rubles"), Noun("kopek|kopeks")),
        ("₹", Noun("rupee|rupees"), Noun("paisa|paise")),
    ],
    magnitudes: &["hundred", "thousand", "million", "billion", "trillion"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "centi", "milli", "mega", "giga", "tera"],
        metre: Noun("meter|meters"),
        gram: Noun("gram|grams"),
        tonne: Noun("ton|tons"),
        litre: Noun("liter|liters"),
        second: Noun("second|seconds"),
        minute: Noun("minute|minutes"),
        hour: Noun("hour|hours"),
        hertz: Noun("hertz"),
        byte: Noun("byte|bytes"),
        watt: Noun("watt|watts"),
        watt_hour: Noun("watt hour|watt hours"),
        volt: Noun("volt|volts"),
        hectare: Noun("hectare|hectares"),
        degree: Noun("degree|degrees"),
        percent: Noun("percent"),
        per_mille: Noun("per mille"),
        square: "square {}",
        cubic: "cubic {}",
        per_hour: "per hour",
        per_second: "per second",
        celsius: "celsius",
        fahrenheit: "fahrenheit",
        aliases: &[],
        irregular: &[],
    },
    months: [
        "january|jan", "february|feb", "march|mar", "april|apr", "may", "june|jun", "july|jul", "august|aug",
        "september|sept|sep", "october|oct", "november|nov", "december|dec",
    ],
    month_links: &["of"],
    month_first: true,
    day: |day, _| ordinal(day),
    date_order: DateOrder::MonthDay,
    date,
    time,
    time_mark: None,
    time_words: &["o'clock"],
    abbreviations: &[
        ("mr.", "mister"), ("mr", "mister"), ("mrs.", "missus"), ("mrs", "missus"), ("ms.", "miz"),
        ("dr.", "doctor"), ("dr", "doctor"), ("prof.", "professor"), ("st.", "saint"), ("rev.", "reverend"),
        ("hon.", "honorable"), ("capt.", "captain"), ("gen.", "general"), ("col.", "colonel"), ("lt.", "lieutenant"),
        ("sgt.", "sergeant"), ("maj.", "major"), ("gov.", "governor"), ("sen.", "senator"), ("messrs.", "messieurs"),
        ("jr.", "junior"), ("sr.", "senior"), ("co.", "company"), ("ltd.", "limited"), ("inc.", "incorporated"),
        ("mt.", "mount"), ("ft.", "fort"), ("ave.", "avenue"), ("blvd.", "boulevard"), ("dept.", "department"),
        ("a.m.", "a m"), ("p.m.", "p m"), ("vs.", "versus"), ("vs", "versus"), ("etc.", "et cetera"), ("e.g.", "for example"), ("i.e.", "that is"),
        ("approx.", "approximately"), ("est.", "established"), ("no.#", "number"), ("nos.#", "numbers"),
        ("vol.#", "volume"), ("p.#", "page"), ("pp.#", "pages"), ("ch.#", "chapter"), ("fig.#", "figure"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
];
const TENS: [&str; 10] = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const SCALES: [&str; 5] = ["", "thousand", "million", "billion", "trillion"];

fn cardinal(number: u64, _: Gender) -> String {
    if number == 0 {
        return "zero".into();
    }
    let groups: Vec<String> =
        thousands(number).map(|(group, power)| join([below_thousand(group).as_str(), SCALES[power]], " ")).collect();
    groups.join(" ")
}

fn below_thousand(group: u64) -> String {
    let (hundreds, tens, ones) = digits(group);
    let rest = match tens {
        0 | 1 => ONES[tens * 10 + ones].to_owned(),
        _ => join([TENS[tens], ONES[ones]], "-"),
    };
    let hundreds = if hundreds > 0 { format!("{} hundred", ONES[hundreds]) } else { String::new() };
    join([hundreds.as_str(), &rest], " ")
}

fn ordinal(number: u64) -> String {
    change_last(&cardinal(number, Gender::Bare), |last| match last {
        "one" => "first".into(),
        "two" => "second".into(),
        "three" => "third".into(),
        "five" => "fifth".into(),
        "eight" => "eighth".into(),
        "nine" => "ninth".into(),
        "twelve" => "twelfth".into(),
        _ => swap_end(last, "y", "ieth").unwrap_or_else(|| format!("{last}th")),
    })
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    match mark {
        "st" | "nd" | "rd" | "th" => Some(ordinal(number)),
        "s" | "'s" if number.is_multiple_of(10) && matches!(number, 20..=90 | 1000..=2090) => Some(decade(number)),
        _ => None,
    }
}

/// A decade: "nineteen eighties", "nineteen hundreds", "eighties".
fn decade(number: u64) -> String {
    change_last(&year(number), |last| swap_end(last, "y", "ies").unwrap_or_else(|| format!("{last}s")))
}

fn year(number: u64) -> String {
    let (century, rest) = (cardinal(number / 100, Gender::Bare), number % 100);
    match (number, rest) {
        (1100..=1999, 0) => format!("{century} hundred"),
        (1100..=1999, 1..=9) => format!("{century} oh {}", ONES[rest as usize]),
        (1010..=1099 | 1100..=1999 | 2010..=2099, _) => format!("{century} {}", cardinal(rest, Gender::Bare)),
        _ => cardinal(number, Gender::Bare),
    }
}

fn date(date: &Date) -> String {
    format!("{} {}, {}", ENGLISH.month(date.month), ordinal(date.day), year(date.year))
}

fn time(time: &Time) -> String {
    let hour = cardinal(time.hour, Gender::Bare);
    let minutes = match time.minute {
        0 if time.second.is_some() => "zero".into(),
        0 if time.hour > 12 || time.hour == 0 => "hundred".into(),
        0 => "o'clock".into(),
        minute @ 1..=9 => format!("oh {}", ONES[minute as usize]),
        minute => cardinal(minute, Gender::Bare),
    };
    let seconds = time.second.map(|second| format!("and {}", ENGLISH.counted(second, ENGLISH.units.second)));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
