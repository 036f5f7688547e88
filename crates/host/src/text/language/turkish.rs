//! Turkish: words apart, endings after an apostrophe join the number's last word.

use super::numbers::{change_last, digits, join, thousands};
use super::{Date, DateOrder, Fraction, Gender, Language, Noun, Time, Units, never, never_counted, unchanging};

#[rustfmt::skip] // A table to read, several words a line.
pub(super) static TURKISH: Language = Language {
    code: "tr",
    cardinal,
    marked,
    dot_ordinals: Some(&[]),
    before: never,
    year: |number| cardinal(number, Gender::Bare),
    plural: unchanging,
    plural_of_fractions: 0,
    count: never_counted,
    decimal_mark: ',',
    group_marks: &['.'],
    point: "virgül",
    fraction: Fraction::Number,
    joiner: " ",
    attached: false,
    ending_mark: Some('\''),
    minus: "eksi",
    to: "ila",
    over: "bölü",
    fractions: ["yarım", "çeyrek", "üç çeyrek"],
    and: "",
    symbols: ["ve", "artı", "eşittir", "et"],
    currencies: &[
        ("₺", Noun("lira"), Noun("kuruş")),
        ("tl", Noun("lira"), Noun("kuruş")),
        ("$", Noun("dolar"), Noun("sent")),
        ("€", Noun("euro"), Noun("sent")),
        ("£", Noun("sterlin"), Noun("peni")),
        ("¥", Noun("yen"), Noun("")),
        ("₽", Noun("ruble"), Noun("kapik")),
    ],
    magnitudes: &["bin", "milyon", "milyar", "trilyon"],
    magnitude_link: "",
    units: Units {
        prefixes: ["kilo", "santi", "mili", "mega", "giga", "tera"],
        metre: Noun("metre"),
        gram: Noun("gram"),
        tonne: Noun("ton"),
        litre: Noun("litre"),
        second: Noun("saniye"),
        minute: Noun("dakika"),
        hour: Noun("saat"),
        hertz: Noun("hertz"),
        byte: Noun("bayt"),
        watt: Noun("vat"),
        watt_hour: Noun("vat saat"),
        volt: Noun("volt"),
        hectare: Noun("hektar"),
        degree: Noun("derece"),
        percent: Noun("yüzde {}"),
        per_mille: Noun("binde {}"),
        square: "{}kare",
        cubic: "{}küp",
        per_hour: "bölü saat",
        per_second: "bölü saniye",
        celsius: "santigrat",
        fahrenheit: "fahrenhayt",
        aliases: &[("sa", "h"), ("dk", "min"), ("sn", "s")],
        irregular: &[("km/h", Noun("saatte {} kilometre")), ("m²", Noun("metrekare")), ("m³", Noun("metreküp"))],
    },
    months: [
        "ocak|oca", "şubat|şub", "mart|mar", "nisan|nis", "mayıs|may", "haziran|haz", "temmuz|tem", "ağustos|ağu",
        "eylül|eyl", "ekim|eki", "kasım|kas", "aralık|ara",
    ],
    month_links: &[],
    month_first: false,
    day: |day, _| cardinal(day, Gender::Bare),
    date_order: DateOrder::DayMonth,
    date,
    time,
    time_mark: None,
    time_words: &[],
    abbreviations: &[
        ("dr.", "doktor"), ("prof.", "profesör"), ("doç.", "doçent"), ("av.", "avukat"), ("sn.", "sayın"),
        ("hz.", "hazreti"), ("vb.", "ve benzeri"), ("vs.", "vesaire"), ("bkz.", "bakınız"), ("örn.", "örneğin"),
        ("cad.", "cadde"), ("sok.", "sokak"), ("mah.", "mahalle"), ("apt.", "apartman"), ("tel.", "telefon"),
        ("mr.", "mister"), ("yy.", "yüzyıl"), ("m.ö.", "milattan önce"), ("m.s.", "milattan sonra"),
        ("no.#", "numara"), ("no:#", "numara"), ("s.#", "sayfa"), ("cilt.#", "cilt"), ("yak.", "yaklaşık"),
    ],
};

const ONES: [&str; 10] = ["", "bir", "iki", "üç", "dört", "beş", "altı", "yedi", "sekiz", "dokuz"];
const TENS: [&str; 10] = ["", "on", "yirmi", "otuz", "kırk", "elli", "altmış", "yetmiş", "seksen", "doksan"];
const SCALES: [&str; 5] = ["", "bin", "milyon", "milyar", "trilyon"];

fn cardinal(number: u64, _: Gender) -> String {
    if number == 0 {
        return "sıfır".into();
    }
    let groups: Vec<String> = thousands(number)
        .map(|(group, power)| match (power, group) {
            (1, 1) => "bin".into(),
            _ => join([below_thousand(group).as_str(), SCALES[power]], " "),
        })
        .collect();
    groups.join(" ")
}

fn below_thousand(group: u64) -> String {
    let (hundreds, tens, ones) = digits(group);
    let many = if hundreds > 1 { ONES[hundreds] } else { "" };
    join([many, if hundreds > 0 { "yüz" } else { "" }, TENS[tens], ONES[ones]], " ")
}

/// An ordinal, whose ending follows the last vowel of the number.
fn ordinal(number: u64) -> String {
    change_last(&cardinal(number, Gender::Bare), |last| {
        let stem = if last == "dört" { "dörd" } else { last };
        let vowel = stem.chars().rev().find_map(|letter| match letter {
            'a' | 'ı' => Some('ı'),
            'e' | 'i' => Some('i'),
            'o' | 'u' => Some('u'),
            'ö' | 'ü' => Some('ü'),
            _ => None,
        });
        let vowel = vowel.unwrap_or('i');
        let link = if stem.ends_with(['a', 'e', 'ı', 'i', 'u', 'ü']) { String::new() } else { vowel.to_string() };
        format!("{stem}{link}nc{vowel}")
    })
}

fn marked(number: u64, mark: &str, _: &str) -> Option<String> {
    let letters = mark.strip_prefix('\'').unwrap_or(mark);
    match letters {
        "." | "inci" | "ıncı" | "uncu" | "üncü" | "nci" | "ncı" | "ncu" | "ncü" => Some(ordinal(number)),
        _ => None,
    }
}

fn date(date: &Date) -> String {
    let (day, year) = (cardinal(date.day, Gender::Bare), cardinal(date.year, Gender::Bare));
    format!("{day} {} {year}", TURKISH.month(date.month))
}

fn time(time: &Time) -> String {
    let hour = cardinal(time.hour, Gender::Bare);
    let minutes = match time.minute {
        0 => String::new(),
        minute @ 1..=9 => format!("sıfır {}", ONES[minute as usize]),
        minute => cardinal(minute, Gender::Bare),
    };
    let seconds = time.second.map(|second| TURKISH.counted(second, TURKISH.units.second));
    join([hour.as_str(), &minutes, seconds.as_deref().unwrap_or_default()], " ")
}
