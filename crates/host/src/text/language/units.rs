//! Units of measure: a table of symbols for all languages, and the words each language builds them from.

use super::{Language, Noun, form};

/// The words of a language for units; prefixes are written together with the unit.
pub(in crate::text) struct Units {
    /// kilo, centi, milli, mega, giga, tera.
    pub prefixes: [&'static str; 6],
    pub metre: Noun,
    pub gram: Noun,
    pub tonne: Noun,
    pub litre: Noun,
    pub second: Noun,
    pub minute: Noun,
    pub hour: Noun,
    pub hertz: Noun,
    pub byte: Noun,
    pub watt: Noun,
    pub watt_hour: Noun,
    pub volt: Noun,
    pub hectare: Noun,
    pub degree: Noun,
    pub percent: Noun,
    pub per_mille: Noun,
    /// `{}` is the noun; forms follow the noun's forms.
    pub square: &'static str,
    pub cubic: &'static str,
    pub per_hour: &'static str,
    pub per_second: &'static str,
    pub celsius: &'static str,
    pub fahrenheit: &'static str,
    /// Symbols in the language's own script, and the table's symbols that they mean.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Symbols whose word is not built from parts.
    pub irregular: &'static [(&'static str, Noun)],
}

pub(in crate::text) struct Unit {
    pub symbol: &'static str,
    prefix: Option<usize>,
    noun: fn(&Units) -> Noun,
    around: Around,
}

#[derive(Clone, Copy)]
enum Around {
    Nothing,
    Square,
    Cubic,
    PerHour,
    PerSecond,
    Celsius,
    Fahrenheit,
}

/// Longer symbols first, so that `km/h` is not read as `km`.
pub(in crate::text) const UNITS: &[Unit] = &[
    around("km/h", Some(KILO), |u| u.metre, Around::PerHour),
    around("m/s", None, |u| u.metre, Around::PerSecond),
    around("km²", Some(KILO), |u| u.metre, Around::Square),
    around("cm²", Some(CENTI), |u| u.metre, Around::Square),
    around("mm²", Some(MILLI), |u| u.metre, Around::Square),
    around("m²", None, |u| u.metre, Around::Square),
    around("cm³", Some(CENTI), |u| u.metre, Around::Cubic),
    around("m³", None, |u| u.metre, Around::Cubic),
    around("°C", None, |u| u.degree, Around::Celsius),
    around("°F", None, |u| u.degree, Around::Fahrenheit),
    plain("°", |u| u.degree),
    plain("%", |u| u.percent),
    plain("٪", |u| u.percent),
    plain("‰", |u| u.per_mille),
    unit("kWh", Some(KILO), |u| u.watt_hour),
    unit("MWh", Some(MEGA), |u| u.watt_hour),
    unit("kHz", Some(KILO), |u| u.hertz),
    unit("MHz", Some(MEGA), |u| u.hertz),
    unit("GHz", Some(GIGA), |u| u.hertz),
    plain("Hz", |u| u.hertz),
    plain("min", |u| u.minute),
    unit("km", Some(KILO), |u| u.metre),
    unit("cm", Some(CENTI), |u| u.metre),
    unit("mm", Some(MILLI), |u| u.metre),
    unit("kg", Some(KILO), |u| u.gram),
    unit("mg", Some(MILLI), |u| u.gram),
    unit("ml", Some(MILLI), |u| u.litre),
    unit("mL", Some(MILLI), |u| u.litre),
    unit("cl", Some(CENTI), |u| u.litre),
    unit("ms", Some(MILLI), |u| u.second),
    unit("kB", Some(KILO), |u| u.byte),
    unit("KB", Some(KILO), |u| u.byte),
    unit("MB", Some(MEGA), |u| u.byte),
    unit("GB", Some(GIGA), |u| u.byte),
    unit("TB", Some(TERA), |u| u.byte),
    unit("kW", Some(KILO), |u| u.watt),
    unit("MW", Some(MEGA), |u| u.watt),
    unit("GW", Some(GIGA), |u| u.watt),
    unit("kV", Some(KILO), |u| u.volt),
    plain("ha", |u| u.hectare),
    plain("m", |u| u.metre),
    plain("g", |u| u.gram),
    plain("t", |u| u.tonne),
    plain("l", |u| u.litre),
    plain("L", |u| u.litre),
    plain("s", |u| u.second),
    plain("h", |u| u.hour),
    plain("W", |u| u.watt),
    plain("V", |u| u.volt),
];

const KILO: usize = 0;
const CENTI: usize = 1;
const MILLI: usize = 2;
const MEGA: usize = 3;
const GIGA: usize = 4;
const TERA: usize = 5;

const fn around(symbol: &'static str, prefix: Option<usize>, noun: fn(&Units) -> Noun, around: Around) -> Unit {
    Unit { symbol, prefix, noun, around }
}

const fn unit(symbol: &'static str, prefix: Option<usize>, noun: fn(&Units) -> Noun) -> Unit {
    around(symbol, prefix, noun, Around::Nothing)
}

const fn plain(symbol: &'static str, noun: fn(&Units) -> Noun) -> Unit {
    unit(symbol, None, noun)
}

impl Unit {
    /// What the number in front of this unit agrees with.
    pub fn noun(&self, language: &Language) -> Noun {
        self.irregular(language, self.symbol).unwrap_or_else(|| (self.noun)(&language.units))
    }

    pub fn words(&self, language: &Language, plural: usize) -> String {
        let units = &language.units;
        if let Some(noun) = self.irregular(language, self.symbol) {
            return noun.form(plural).to_owned();
        }
        let name = self.name(language, plural);
        let behind = |words: &str| format!("{name}{}{words}", language.joiner);
        match self.around {
            Around::Nothing => name,
            Around::Square => form(units.square, plural).replace("{}", &name),
            Around::Cubic => form(units.cubic, plural).replace("{}", &name),
            Around::PerHour => behind(units.per_hour),
            Around::PerSecond => behind(units.per_second),
            Around::Celsius => behind(units.celsius),
            Around::Fahrenheit => behind(units.fahrenheit),
        }
    }

    /// "kilometres", also of `km/h` and `km²`.
    fn name(&self, language: &Language, plural: usize) -> String {
        let base = self.symbol.trim_end_matches(['²', '³']).trim_end_matches("/h").trim_end_matches("/s");
        if let Some(noun) = self.irregular(language, base) {
            return noun.form(plural).to_owned();
        }
        let prefix = self.prefix.map_or("", |index| language.units.prefixes[index]);
        format!("{prefix}{}", (self.noun)(&language.units).form(plural))
    }

    fn irregular(&self, language: &Language, symbol: &str) -> Option<Noun> {
        language.units.irregular.iter().find(|(known, _)| *known == symbol).map(|(_, noun)| *noun)
    }
}
