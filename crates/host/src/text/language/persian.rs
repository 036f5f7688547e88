//! Persian: parts joined by "و"; years before 1700 are of the solar calendar, and so are their months.

use super::numbers::{digits, join, swap_end, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never, never_counted, unchanging};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static PERSIAN: Language = Language {
    code: "fa",
    cardinal,
    marked,
    dot_ordinals: None,
    before: never,
    year: |number| cardinal(number, Gender::Bare),
    plural: unchanging,
    plural_of_fractions: 0,
    count: never_counted,
    decimal_mark: '.',
    group_marks: &[','],
    point: "ممیز",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "منفی",
    to: "تا",
    over: "از",
    fractions: ["یک دوم", "یک چهارم", "سه چهارم"],
    and: "و",
    symbols: ["و", "به علاوه", "مساوی", "ات"],
    currencies: &[
        ("﷼", Noun("ریال"), Noun("")),
        ("ریال", Noun("ریال"), Noun("")),
        ("$", Noun("دلار"), Noun("سنت")),
        ("€", Noun("یورو"), Noun("سنت")),
        ("£", Noun("پوند"), Noun("پنی")),
        ("¥", Noun("ین"), Noun("")),
        ("₽", Noun("روبل"), Noun("کوپک")),
    ],
    magnitudes: &["هزار", "میلیون", "میلیارد", "تریلیون"],
    magnitude_link: "",
    units: Units {
        prefixes: ["کیلو", "سانتی", "میلی", "مگا", "گیگا", "ترا"],
        metre: Noun("متر"),
        gram: Noun("گرم"),
        tonne: Noun("تن"),
        litre: Noun("لیتر"),
        second: Noun("ثانیه"),
        minute: Noun("دقیقه"),
        hour: Noun("ساعت"),
        hertz: Noun("هرتز"),
        byte: Noun("بایت"),
        watt: Noun("وات"),
        watt_hour: Noun("وات ساعت"),
        volt: Noun("ولت"),
        hectare: Noun("هکتار"),
        degree: Noun("درجه"),
        percent: Noun("درصد"),
        per_mille: Noun("در هزار"),
        square: "{} مربع",
        cubic: "{} مکعب",
        per_hour: "بر ساعت",
        per_second: "بر ثانیه",
        celsius: "سانتی‌گراد",
        fahrenheit: "فارنهایت",
        aliases: &[],
        irregular: &[],
    },
    months: [
        "ژانویه", "فوریه", "مارس", "آوریل", "مه", "ژوئن", "ژوئیه", "اوت", "سپتامبر", "اکتبر", "نوامبر", "دسامبر",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| ordinal(day),
    date_order: DateOrder::YearMonth,
    date,
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[
        ("ق.م.", "قبل از میلاد"), ("ق.م", "قبل از میلاد"), ("ه.ش.", "هجری شمسی"), ("ه.ش", "هجری شمسی"),
        ("ه.ق.", "هجری قمری"), ("ه.ق", "هجری قمری"), ("دکتر.", "دکتر"), ("ص.#", "صفحه"), ("ج.#", "جلد"),
        ("شماره.#", "شماره"),
    ],
};

#[rustfmt::skip]
const ONES: [&str; 20] = [
    "", "یک", "دو", "سه", "چهار", "پنج", "شش", "هفت", "هشت", "نه", "ده", "یازده", "دوازده", "سیزده", "چهارده",
    "پانزده", "شانزده", "هفده", "هجده", "نوزده",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "بیست", "سی", "چهل", "پنجاه", "شصت", "هفتاد", "هشتاد", "نود",
];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "صد", "دویست", "سیصد", "چهارصد", "پانصد", "ششصد", "هفتصد", "هشتصد", "نهصد",
];
const SCALES: [&str; 5] = ["", "هزار", "میلیون", "میلیارد", "تریلیون"];
#[rustfmt::skip]
const SOLAR_MONTHS: [&str; 12] = [
    "فروردین", "اردیبهشت", "خرداد", "تیر", "مرداد", "شهریور", "مهر", "آبان", "آذر", "دی", "بهمن", "اسفند",
];

fn cardinal(number: u64, _: Gender) -> String {
    if number == 0 {
        return "صفر".into();
    }
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (1, 1) => "هزار".into(),
            _ => join([below_thousand(group).as_str(), SCALES[power]], " "),
        })
        .collect();
    groups.join(" و ")
}

fn below_thousand(group: u64) -> String {
    let (hundreds, tens, ones) = digits(group);
    let (tens, ones) = if tens == 1 { ("", ONES[10 + ones]) } else { (TENS[tens], ONES[ones]) };
    join([HUNDREDS[hundreds], tens, ones], " و ")
}

fn ordinal(number: u64) -> String {
    let words = cardinal(number, Gender::Bare);
    match number % 100 {
        30 => words + "‌ام",
        _ => swap_end(&words, "سه", "سوم").unwrap_or_else(|| words + "م"),
    }
}

/// An ordinal; its mark may hang on a zero-width non-joiner or a hyphen.
fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    match mark.trim_start_matches(['-', '\u{200c}']) {
        "م" | "ام" | "اُم" => Some(ordinal(number)),
        "مین" | "امین" | "اُمین" => Some(ordinal(number) + "ین"),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let month = if date.year < 1700 { SOLAR_MONTHS[date.month - 1] } else { PERSIAN.month(date.month) };
    format!("{} {month} {}", ordinal(date.day), cardinal(date.year, Gender::Bare))
}

fn time(time: &Time) -> String {
    let hour = cardinal(time.hour, Gender::Bare);
    let minutes = if time.minute > 0 { PERSIAN.counted(time.minute, PERSIAN.units.minute) } else { String::new() };
    let seconds = time.second.map(|second| PERSIAN.counted(second, PERSIAN.units.second));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " و ")
}
