//! Modern Standard Arabic: three to ten take the gender opposite to what they count, two is a form of the noun.

use super::numbers::{digits, join, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, form, never};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static ARABIC: Language = Language {
    code: "ar",
    cardinal,
    marked: |_, _, _| None,
    dot_ordinals: None,
    before: never,
    year: |number| cardinal(number, Gender::Bare),
    plural,
    plural_of_fractions: 3,
    count,
    decimal_mark: '.',
    group_marks: &[','],
    point: "فاصلة",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: None,
    minus: "سالب",
    to: "إلى",
    over: "على",
    fractions: ["نصف", "ربع", "ثلاثة أرباع"],
    and: "و",
    symbols: ["و", "زائد", "يساوي", "آت"],
    currencies: &[
        ("$", Noun("m:دولار|دولاران|دولارات|دولاراً|دولار"), Noun("m:سنت|سنتان|سنتات|سنتاً|سنت")),
        ("€", Noun("m:يورو"), Noun("m:سنت|سنتان|سنتات|سنتاً|سنت")),
        ("£", Noun("m:جنيه|جنيهان|جنيهات|جنيهاً|جنيه"), Noun("m:بنس|بنسان|بنسات|بنساً|بنس")),
        ("¥", Noun("m:ين|ينان|ينات|يناً|ين"), Noun("")),
        ("₽", Noun("m:روبل|روبلان|روبلات|روبلاً|روبل"), Noun("m:كوبيك|كوبيكان|كوبيكات|كوبيكاً|كوبيك")),
        ("ر.س", Noun("m:ريال|ريالان|ريالات|ريالاً|ريال"), Noun("f:هللة|هللتان|هللات|هللةً|هللة")),
        ("﷼", Noun("m:ريال|ريالان|ريالات|ريالاً|ريال"), Noun("")),
        ("د.إ", Noun("m:درهم|درهمان|دراهم|درهماً|درهم"), Noun("m:فلس|فلسان|فلوس|فلساً|فلس")),
    ],
    magnitudes: &["ألف", "آلاف", "مليون", "ملايين", "مليار", "مليارات", "تريليون"],
    magnitude_link: "",
    units: Units {
        prefixes: ["كيلو", "سنتي", "ملي", "ميغا", "غيغا", "تيرا"],
        metre: Noun("m:متر|متران|أمتار|متراً|متر"),
        gram: Noun("m:غرام|غرامان|غرامات|غراماً|غرام"),
        tonne: Noun("m:طن|طنان|أطنان|طناً|طن"),
        litre: Noun("m:لتر|لتران|لترات|لتراً|لتر"),
        second: Noun("f:ثانية|ثانيتان|ثوان|ثانية|ثانية"),
        minute: Noun("f:دقيقة|دقيقتان|دقائق|دقيقة|دقيقة"),
        hour: Noun("f:ساعة|ساعتان|ساعات|ساعة|ساعة"),
        hertz: Noun("m:هرتز"),
        byte: Noun("m:بايت"),
        watt: Noun("m:واط"),
        watt_hour: Noun("m:واط ساعة"),
        volt: Noun("m:فولت"),
        hectare: Noun("m:هكتار|هكتاران|هكتارات|هكتاراً|هكتار"),
        degree: Noun("f:درجة|درجتان|درجات|درجة|درجة"),
        percent: Noun("m:{} بالمئة"),
        per_mille: Noun("m:{} بالألف"),
        square: "{} مربع|{} مربعان|{} مربعة|{} مربعاً|{} مربع",
        cubic: "{} مكعب|{} مكعبان|{} مكعبة|{} مكعباً|{} مكعب",
        per_hour: "في الساعة",
        per_second: "في الثانية",
        celsius: "مئوية",
        fahrenheit: "فهرنهايت",
        aliases: &[("كم/س", "km/h"), ("كم", "km"), ("سم", "cm"), ("مم", "mm"), ("كغم", "kg"), ("كغ", "kg"), ("كجم", "kg")],
        irregular: &[
            ("km", Noun("m:كيلومتر|كيلومتران|كيلومترات|كيلومتراً|كيلومتر")),
            ("cm", Noun("m:سنتيمتر|سنتيمتران|سنتيمترات|سنتيمتراً|سنتيمتر")),
            ("mm", Noun("m:مليمتر|مليمتران|مليمترات|مليمتراً|مليمتر")),
        ],
    },
    months: [
        "يناير", "فبراير", "مارس", "أبريل|إبريل", "مايو", "يونيو", "يوليو", "أغسطس", "سبتمبر", "أكتوبر", "نوفمبر",
        "ديسمبر",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| ordinal(day, false) + " من",
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[
        ("د.", "دكتور"), ("أ.", "أستاذ"), ("أ.د.", "أستاذ دكتور"), ("م.", "مهندس"), ("إلخ", "إلى آخره"),
        ("الخ", "إلى آخره"), ("ق.م", "قبل الميلاد"), ("ص.ب", "صندوق بريد"), ("ص.#", "صفحة"), ("رقم.#", "رقم"),
    ],
};

/// Number words before masculine nouns.
#[rustfmt::skip]
const MASCULINE: [&str; 11] = [
    "", "واحد", "اثنان", "ثلاثة", "أربعة", "خمسة", "ستة", "سبعة", "ثمانية", "تسعة", "عشرة",
];
#[rustfmt::skip]
const FEMININE: [&str; 11] = [
    "", "واحدة", "اثنتان", "ثلاث", "أربع", "خمس", "ست", "سبع", "ثمان", "تسع", "عشر",
];
#[rustfmt::skip]
const TENS: [&str; 10] = [
    "", "", "عشرون", "ثلاثون", "أربعون", "خمسون", "ستون", "سبعون", "ثمانون", "تسعون",
];
#[rustfmt::skip]
const HUNDREDS: [&str; 10] = [
    "", "مائة", "مئتان", "ثلاثمائة", "أربعمائة", "خمسمائة", "ستمائة", "سبعمائة", "ثمانمائة", "تسعمائة",
];
#[rustfmt::skip]
const SCALES: [&str; 5] = [
    "", "ألف|ألفان|آلاف|ألفاً|ألف", "مليون|مليونان|ملايين|مليوناً|مليون",
    "مليار|ملياران|مليارات|ملياراً|مليار", "تريليون|تريليونان|تريليونات|تريليوناً|تريليون",
];

/// Form of a noun behind one, two, three to ten, eleven to ninety-nine, whole hundreds.
fn plural(number: u64) -> usize {
    match (number, number % 100) {
        (1, _) => 0,
        (2, _) => 1,
        (_, 3..=10) => 2,
        (_, 11..=99) => 3,
        _ => 4,
    }
}

fn cardinal(number: u64, gender: Gender) -> String {
    if number == 0 {
        return "صفر".into();
    }
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (0, _) => below_thousand(group, gender),
            (_, 1 | 2) => form(SCALES[power], plural(group)).into(),
            (_, 200) => format!("مئتا {}", form(SCALES[power], 4)),
            _ => format!("{} {}", below_thousand(group, Gender::Masculine), form(SCALES[power], plural(group))),
        })
        .collect();
    groups.join(" و")
}

fn below_thousand(group: u64, gender: Gender) -> String {
    let (hundreds, tens, ones) = digits(group);
    let feminine = gender == Gender::Feminine;
    let units = if feminine { FEMININE } else { MASCULINE };
    let rest = match (tens, ones) {
        (0, _) | (1, 0) => units[tens * 10 + ones].to_owned(),
        (1, 1) => if feminine { "إحدى عشرة" } else { "أحد عشر" }.into(),
        (1, 2) => if feminine { "اثنتا عشرة" } else { "اثنا عشر" }.into(),
        (1, _) => format!("{} {}", units[ones], if feminine { "عشرة" } else { "عشر" }),
        _ => join([units[ones], TENS[tens]], " و"),
    };
    join([HUNDREDS[hundreds], &rest], " و")
}

/// One or two of something ("دولار واحد", "دولاران"): one follows the noun, two is the noun itself.
fn count(number: u64, gender: Gender, one: &str, two: &str) -> Option<String> {
    match number {
        _ if one.contains("{}") => None,
        1 => Some(format!("{one} {}", cardinal(1, gender))),
        2 if two != one => Some(two.into()),
        _ => None,
    }
}

#[rustfmt::skip]
const ORDINALS: [[&str; 11]; 2] = [
    ["", "الأول", "الثاني", "الثالث", "الرابع", "الخامس", "السادس", "السابع", "الثامن", "التاسع", "العاشر"],
    ["", "الأولى", "الثانية", "الثالثة", "الرابعة", "الخامسة", "السادسة", "السابعة", "الثامنة", "التاسعة", "العاشرة"],
];

/// An ordinal with the article, up to ninety-nine.
fn ordinal(number: u64, feminine: bool) -> String {
    let units = ORDINALS[usize::from(feminine)];
    let (_, tens, ones) = digits(number);
    let unit = match ones {
        1 if tens > 0 => {
            if feminine {
                "الحادية"
            } else {
                "الحادي"
            }
        }
        _ => units[ones],
    };
    match (tens, ones) {
        (0, _) | (1, 0) => units[tens * 10 + ones].into(),
        (1, _) => format!("{unit} {}", if feminine { "عشرة" } else { "عشر" }),
        _ => join([unit, &format!("ال{}", TENS[tens])], " و"),
    }
}

fn date(date: &Date) -> String {
    let year = cardinal(date.year, Gender::Bare);
    format!("{} من {} {year}", ordinal(date.day, false), ARABIC.month(date.month))
}

fn time(time: &Time) -> String {
    let hour = match time.hour {
        0 => ordinal(12, true),
        1 => "الواحدة".into(),
        hour => ordinal(hour, true),
    };
    let minutes = if time.minute > 0 { ARABIC.counted(time.minute, ARABIC.units.minute) } else { String::new() };
    let seconds = time.second.map(|second| ARABIC.counted(second, ARABIC.units.second));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " و")
}
