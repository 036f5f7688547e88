//! Numbers of one line of figures, by a scanner that knows nothing but flat objects: a run of a million steps has a hundred
//! megabytes of them, and is to open while one looks.

/// Powers of ten that a double holds exactly.
const EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Hands over every number of a JSON object with its name; other values are passed over. False where the line is no whole
/// object: what was handed over until then is not to be used.
pub fn scan<'a>(line: &'a [u8], mut figure: impl FnMut(&'a [u8], f64)) -> bool {
    let line = line.trim_ascii();
    let Some(mut rest) = line.strip_prefix(b"{") else { return false };
    rest = rest.trim_ascii_start();
    if rest == b"}" {
        return true;
    }
    loop {
        let Some((name, behind)) = text(rest) else { return false };
        let Some(value) = behind.trim_ascii_start().strip_prefix(b":") else { return false };
        let value = value.trim_ascii_start();
        let behind = match number(value) {
            Some((number, behind)) => {
                figure(name, number);
                behind
            }
            None => match passed_over(value) {
                Some(behind) => behind,
                None => return false,
            },
        };
        match behind.trim_ascii_start().split_first() {
            Some((b',', more)) => rest = more.trim_ascii_start(),
            Some((b'}', [])) => return true,
            _ => return false,
        }
    }
}

/// What stands between quotes, as it is written, and what follows.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = bytes.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match inner.get(at)? {
            b'"' => return Some((&inner[..at], &inner[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// A number and what follows: right to the last digit where it has at most 15, and to a part in 10¹⁵ otherwise.
fn number(bytes: &[u8]) -> Option<(f64, &[u8])> {
    let (negative, mut rest) = bytes.strip_prefix(b"-").map_or((false, bytes), |rest| (true, rest));
    let (mut digits, mut exponent, mut seen, mut is_fraction) = (0u64, 0i32, false, false);
    while let Some((&byte, more)) = rest.split_first() {
        match byte {
            b'0'..=b'9' if digits < 100_000_000_000_000_000 => {
                digits = digits * 10 + u64::from(byte - b'0');
                exponent -= i32::from(is_fraction);
            }
            b'0'..=b'9' => exponent += i32::from(!is_fraction),
            b'.' if !is_fraction => is_fraction = true,
            _ => break,
        }
        seen |= byte != b'.';
        rest = more;
    }
    if !seen {
        return None;
    }
    if let Some((b'e' | b'E', more)) = rest.split_first() {
        let (sign, more) = match more.split_first()? {
            (b'-', more) => (-1, more),
            (b'+', more) => (1, more),
            _ => (1, more),
        };
        let end = more.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(more.len());
        let power: i32 = std::str::from_utf8(&more[..end]).ok()?.parse().ok()?;
        exponent = exponent.saturating_add(sign * power.min(400));
        rest = &more[end..];
    }
    let value = match (exponent < 0, EXACT.get(exponent.unsigned_abs() as usize)) {
        (true, Some(power)) => digits as f64 / power,
        (false, Some(power)) => digits as f64 * power,
        // Hardly ever: nothing that is measured is so large or so small.
        (_, None) => {
            let text = std::str::from_utf8(&bytes[..bytes.len() - rest.len()]).ok()?;
            return Some((text.parse().ok()?, rest));
        }
    };
    Some((if negative { -value } else { value }, rest))
}

/// What follows a value that is no number: null, true, a text, a list or an object.
fn passed_over(bytes: &[u8]) -> Option<&[u8]> {
    let (mut rest, mut depth) = (bytes, 0);
    loop {
        match rest.first()? {
            b'"' => rest = text(rest)?.1,
            b'{' | b'[' => (depth, rest) = (depth + 1, &rest[1..]),
            b'}' | b']' if depth > 0 => (depth, rest) = (depth - 1, &rest[1..]),
            _ => rest = &rest[1..],
        }
        if depth == 0 && rest.trim_ascii_start().first().is_none_or(|next| matches!(next, b',' | b'}')) {
            return Some(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Option<Vec<(String, f64)>> {
        let mut figures = Vec::new();
        scan(line.as_bytes(), |name, value| figures.push((String::from_utf8_lossy(name).into_owned(), value)))
            .then_some(figures)
    }

    #[test]
    fn numbers_are_taken_and_other_values_passed_over() {
        let line = r#"{"step":7,"time":1763286061.5,"a/b":null,"t":"x,\"}{","l":[1,{"z":2}],"on":true,"y":-2.5e-3}"#;
        let wanted = [("step", 7.0), ("time", 1_763_286_061.5), ("y", -2.5e-3)].map(|(n, v)| (n.to_owned(), v));
        assert_eq!(read(line).unwrap(), wanted);
        assert_eq!(read("{}"), Some(vec![]));
        assert_eq!(read("  { \"a\" : 1 , \"b\" : 2 }\r").unwrap().len(), 2);
    }

    #[test]
    fn a_line_that_was_cut_is_none() {
        let line = r#"{"step":7,"loss":0.25,"x":null}"#;
        for end in 0..line.len() {
            assert_eq!(read(&line[..end]), None, "{}", &line[..end]);
        }
        for wrong in ["", "[1]", "nonsense", r#"{"a":1}{"b":2}"#, r#"{"a" 1}"#, r#"{"a":}"#, "{\"a\":1,}"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// Truth: the standard library's parser.
        #[test]
        fn numbers_are_those_that_were_written(value in prop::num::f64::NORMAL) {
            let near = |text: String| {
                let (read, rest) = number(text.as_bytes()).unwrap();
                assert!(rest.is_empty() && ((read - value) / value).abs() < 1e-14, "{text} {read}");
            };
            near(format!("{value:e}"));
            if value.abs() > 1e-15 && value.abs() < 1e15 {
                near(value.to_string());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            scan(&bytes, |_, _| ());
        }
    }
}
