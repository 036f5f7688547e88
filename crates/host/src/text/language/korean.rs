//! Korean: Sino-Korean numbers, and native ones before the counters that ask for them.

use super::numbers::{digits, join, myriads};
use super::{DateOrder, Fraction, Gender, Language, Noun, Time, Units, never_counted, unchanging};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static KOREAN: Language = Language {
    code: "ko",
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
    point: "점",
    fraction: Fraction::Digits,
    joiner: " ",
    attached: true,
    ending_mark: None,
    minus: "마이너스",
    to: "에서",
    over: "대",
    fractions: ["이분의 일", "사분의 일", "사분의 삼"],
    and: "",
    symbols: ["앤드", "더하기", "은", "골뱅이"],
    currencies: &[
        ("₩", Noun("원"), Noun("")),
        ("$", Noun("달러"), Noun("센트")),
        ("€", Noun("유로"), Noun("센트")),
        ("£", Noun("파운드"), Noun("펜스")),
        ("¥", Noun("엔"), Noun("")),
        ("₽", Noun("루블"), Noun("코페이카")),
    ],
    magnitudes: &["만", "억", "조"],
    magnitude_link: "",
    units: Units {
        prefixes: ["킬로", "센티", "밀리", "메가", "기가", "테라"],
        metre: Noun("미터"),
        gram: Noun("그램"),
        tonne: Noun("톤"),
        litre: Noun("리터"),
        second: Noun("초"),
        minute: Noun("분"),
        hour: Noun("시간"),
        hertz: Noun("헤르츠"),
        byte: Noun("바이트"),
        watt: Noun("와트"),
        watt_hour: Noun("와트시"),
        volt: Noun("볼트"),
        hectare: Noun("헥타르"),
        degree: Noun("도"),
        percent: Noun("퍼센트"),
        per_mille: Noun("퍼밀"),
        square: "제곱{}",
        cubic: "세제곱{}",
        per_hour: "매시",
        per_second: "매초",
        celsius: "",
        fahrenheit: "",
        aliases: &[],
        irregular: &[
            ("°C", Noun("섭씨 {} 도")), ("°F", Noun("화씨 {} 도")), ("km/h", Noun("시속 {} 킬로미터")),
            ("m/s", Noun("초속 {} 미터")),
        ],
    },
    months: [
        "일월", "이월", "삼월", "사월", "오월", "유월", "칠월", "팔월", "구월", "시월", "십일월", "십이월",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| cardinal(day, Gender::Bare),
    date_order: DateOrder::YearMonth,
    date: |date| {
        let (year, day) = (cardinal(date.year, Gender::Bare), cardinal(date.day, Gender::Bare));
        format!("{year}년 {} {day}일", KOREAN.month(date.month))
    },
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[],
};

const ONES: [&str; 10] = ["", "일", "이", "삼", "사", "오", "육", "칠", "팔", "구"];
const PLACES: [(u64, &str); 4] = [(1000, "천"), (100, "백"), (10, "십"), (1, "")];
const SCALES: [&str; 4] = ["", "만", "억", "조"];
const NATIVE: [&str; 10] = ["", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉"];
const NATIVE_TENS: [&str; 10] = ["", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔"];
/// Counters of things that native numbers count.
#[rustfmt::skip]
const COUNTERS: [&str; 16] = [
    "명", "개", "살", "마리", "권", "잔", "병", "사람", "가지", "달", "그루", "송이", "켤레", "번째", "시간", "그릇",
];

fn cardinal(number: u64, _: Gender) -> String {
    if number == 0 {
        return "영".into();
    }
    let groups: Vec<String> = myriads(number)
        .map(|(group, power)| match (group, power) {
            (1, 1) => "만".into(),
            _ => below_myriad(group) + SCALES[power],
        })
        .collect();
    groups.join(" ")
}

fn below_myriad(group: u64) -> String {
    let digit = |place: u64, name: &str| match group / place % 10 {
        0 => String::new(),
        1 if place > 1 => name.to_owned(),
        digit => format!("{}{name}", ONES[digit as usize]),
    };
    PLACES.iter().map(|(place, name)| digit(*place, name)).collect()
}

/// A native number before a counter, below a hundred.
fn native(number: u64) -> String {
    let (_, tens, ones) = digits(number);
    if number == 20 { "스무".into() } else { format!("{}{}", NATIVE_TENS[tens], NATIVE[ones]) }
}

fn before(number: u64, next: &str, _: &str) -> Option<String> {
    match number {
        6 if next.starts_with('월') => Some("유".into()),
        10 if next.starts_with('월') => Some("시".into()),
        1 if next.starts_with("번째") => Some("첫 ".into()),
        1..=99 if COUNTERS.iter().any(|counter| next.starts_with(counter)) => Some(native(number) + " "),
        1..=12 if next == "시" || next.starts_with("시에") || next.starts_with("시 ") => Some(native(number) + " "),
        _ => None,
    }
}

fn time(time: &Time) -> String {
    let hour = if (1..=12).contains(&time.hour) { native(time.hour) } else { cardinal(time.hour, Gender::Bare) };
    let part = |number: u64, name: &str| format!("{} {name}", cardinal(number, Gender::Bare));
    let minutes = if time.minute > 0 { part(time.minute, "분") } else { String::new() };
    let seconds = time.second.map(|second| part(second, "초"));
    join([format!("{hour} 시").as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
