//! Mandarin in simplified characters: groups of four digits, 零 for gaps, 两 where two things are counted.

use super::numbers::myriads;
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never_counted, unchanging};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static CHINESE: Language = Language {
    code: "zh",
    cardinal,
    marked: |_, _, _| None,
    dot_ordinals: None,
    before,
    year: |number| cardinal(number, Gender::Bare),
    plural: unchanging,
    plural_of_fractions: 0,
    count: never_counted,
    decimal_mark: '.',
    group_marks: &[','],
    point: "点",
    fraction: Fraction::Digits,
    joiner: "",
    attached: true,
    ending_mark: None,
    minus: "负",
    to: "到",
    over: "比",
    fractions: ["二分之一", "四分之一", "四分之三"],
    and: "",
    symbols: ["和", "加", "等于", "艾特"],
    currencies: &[
        ("¥", Noun("元"), Noun("")),
        ("$", Noun("美元"), Noun("")),
        ("€", Noun("欧元"), Noun("")),
        ("£", Noun("英镑"), Noun("")),
        ("₽", Noun("卢布"), Noun("")),
        ("₩", Noun("韩元"), Noun("")),
    ],
    magnitudes: &["万", "亿"],
    magnitude_link: "",
    units: Units {
        prefixes: ["千", "厘", "毫", "兆", "吉", "太"],
        metre: Noun("米"),
        gram: Noun("克"),
        tonne: Noun("吨"),
        litre: Noun("升"),
        second: Noun("秒"),
        minute: Noun("分钟"),
        hour: Noun("小时"),
        hertz: Noun("赫兹"),
        byte: Noun("字节"),
        watt: Noun("瓦"),
        watt_hour: Noun("瓦时"),
        volt: Noun("伏"),
        hectare: Noun("公顷"),
        degree: Noun("度"),
        percent: Noun("百分之{}"),
        per_mille: Noun("千分之{}"),
        square: "平方{}",
        cubic: "立方{}",
        per_hour: "每小时",
        per_second: "每秒",
        celsius: "",
        fahrenheit: "",
        aliases: &[],
        irregular: &[
            ("km", Noun("公里")), ("kg", Noun("公斤")), ("°C", Noun("摄氏度")), ("°F", Noun("华氏度")),
            ("km/h", Noun("每小时{}公里")), ("m/s", Noun("每秒{}米")),
        ],
    },
    months: [
        "一月", "二月", "三月", "四月", "五月", "六月", "七月", "八月", "九月", "十月", "十一月", "十二月",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| cardinal(day, Gender::Bare),
    date_order: DateOrder::YearMonth,
    date,
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[],
};

const DIGITS: [&str; 10] = ["零", "一", "二", "三", "四", "五", "六", "七", "八", "九"];
const PLACES: [(u64, &str); 4] = [(1000, "千"), (100, "百"), (10, "十"), (1, "")];
const SCALES: [&str; 4] = ["", "万", "亿", "万亿"];

fn cardinal(number: u64, gender: Gender) -> String {
    match (number, gender) {
        (0, _) => return "零".into(),
        (2, Gender::Masculine | Gender::Feminine | Gender::Neuter) => return "两".into(),
        _ => {}
    }
    let mut words = String::new();
    let mut below = None;
    for (group, power) in myriads(number) {
        // A gap of zeros between groups, or at the head of a group, is said once.
        let gap = below.is_some_and(|above: usize| above > power + 1) || group < 1000;
        if !words.is_empty() && gap {
            words += "零";
        }
        words += &below_myriad(group, power);
        words += SCALES[power];
        below = Some(power);
    }
    // 一十二 at the very front is said 十二.
    words.strip_prefix('一').filter(|rest| rest.starts_with('十')).map(String::from).unwrap_or(words)
}

fn below_myriad(group: u64, power: usize) -> String {
    if group == 2 && power > 0 {
        return "两".into();
    }
    let mut words = String::new();
    let mut gap = false;
    for (place, name) in PLACES {
        let digit = group / place % 10;
        if digit == 0 {
            gap = !words.is_empty();
            continue;
        }
        if std::mem::take(&mut gap) {
            words += "零";
        }
        words += if digit == 2 && place == 1000 { "两" } else { DIGITS[digit as usize] };
        words += name;
    }
    words
}

fn by_digits(number: u64) -> String {
    number.to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect()
}

fn before(number: u64, next: &str, _: &str) -> Option<String> {
    const COUNTERS: &str = "个位只条本张件次天周岁家种名辆座年块元点米吨斤公千小分";
    match number {
        1000..=2999 if next.starts_with('年') => Some(by_digits(number)),
        2 if next.starts_with(|counter| COUNTERS.contains(counter)) => Some("两".into()),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    format!("{}年{}{}日", by_digits(date.year), CHINESE.month(date.month), cardinal(date.day, Gender::Bare))
}

fn time(time: &Time) -> String {
    let hour = cardinal(time.hour, Gender::Masculine) + "点";
    let minutes = match time.minute {
        0 if time.second.is_none() => "整".into(),
        minute @ 1..=9 => format!("零{}分", DIGITS[minute as usize]),
        minute => cardinal(minute, Gender::Bare) + "分",
    };
    let seconds = time.second.map(|second| cardinal(second, Gender::Bare) + "秒");
    hour + &minutes + seconds.as_deref().unwrap_or_default()
}
