//! Japanese: number words in kanji, groups of four digits; which reading a counter asks for is left to the reader.

use super::numbers::myriads;
use super::{DateOrder, Fraction, Gender, Language, Noun, Time, Units, never, never_counted, unchanging};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static JAPANESE: Language = Language {
    code: "ja",
    cardinal,
    marked: |_, _, _| None,
    dot_ordinals: None,
    before: never,
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
    minus: "マイナス",
    to: "から",
    over: "対",
    fractions: ["二分の一", "四分の一", "四分の三"],
    and: "",
    symbols: ["アンド", "プラス", "イコール", "アット"],
    currencies: &[
        ("¥", Noun("円"), Noun("")),
        ("$", Noun("ドル"), Noun("セント")),
        ("€", Noun("ユーロ"), Noun("セント")),
        ("£", Noun("ポンド"), Noun("ペンス")),
        ("₽", Noun("ルーブル"), Noun("カペイカ")),
        ("₩", Noun("ウォン"), Noun("")),
    ],
    magnitudes: &["万", "億", "兆"],
    magnitude_link: "",
    units: Units {
        prefixes: ["キロ", "センチ", "ミリ", "メガ", "ギガ", "テラ"],
        metre: Noun("メートル"),
        gram: Noun("グラム"),
        tonne: Noun("トン"),
        litre: Noun("リットル"),
        second: Noun("秒"),
        minute: Noun("分"),
        hour: Noun("時間"),
        hertz: Noun("ヘルツ"),
        byte: Noun("バイト"),
        watt: Noun("ワット"),
        watt_hour: Noun("ワット時"),
        volt: Noun("ボルト"),
        hectare: Noun("ヘクタール"),
        degree: Noun("度"),
        percent: Noun("パーセント"),
        per_mille: Noun("パーミル"),
        square: "平方{}",
        cubic: "立方{}",
        per_hour: "毎時",
        per_second: "毎秒",
        celsius: "",
        fahrenheit: "",
        aliases: &[],
        irregular: &[
            ("°C", Noun("度")), ("°F", Noun("華氏{}度")), ("km/h", Noun("時速{}キロメートル")),
            ("m/s", Noun("秒速{}メートル")),
        ],
    },
    months: [
        "一月", "二月", "三月", "四月", "五月", "六月", "七月", "八月", "九月", "十月", "十一月", "十二月",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| cardinal(day, Gender::Bare),
    date_order: DateOrder::YearMonth,
    date: |date| {
        let (year, day) = (cardinal(date.year, Gender::Bare), cardinal(date.day, Gender::Bare));
        format!("{year}年{}{day}日", JAPANESE.month(date.month))
    },
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[],
};

const DIGITS: [&str; 10] = ["", "一", "二", "三", "四", "五", "六", "七", "八", "九"];
const PLACES: [(u64, &str); 4] = [(1000, "千"), (100, "百"), (10, "十"), (1, "")];
const SCALES: [&str; 4] = ["", "万", "億", "兆"];

fn cardinal(number: u64, _: Gender) -> String {
    if number == 0 {
        return "零".into();
    }
    myriads(number).map(|(group, power)| below_myriad(group) + SCALES[power]).collect()
}

fn below_myriad(group: u64) -> String {
    let digit = |place: u64, name: &str| match group / place % 10 {
        0 => String::new(),
        1 if place > 1 => name.to_owned(),
        digit => format!("{}{name}", DIGITS[digit as usize]),
    };
    PLACES.iter().map(|(place, name)| digit(*place, name)).collect()
}

fn time(time: &Time) -> String {
    let part = |number: u64, name: &str| cardinal(number, Gender::Bare) + name;
    let minutes = if time.minute > 0 { part(time.minute, "分") } else { String::new() };
    let seconds = time.second.map(|second| part(second, "秒"));
    part(time.hour, "時") + &minutes + seconds.as_deref().unwrap_or_default()
}
