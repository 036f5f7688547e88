//! The part of an address behind the question mark.

/// Value of a name, decoded; absent where the name is not there or its value is no UTF-8.
pub fn value(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| decoded(value))
}

fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        match byte {
            b'%' => {
                let (digits, more) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = more;
            }
            b'+' => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_decoded() {
        let query = Some("from=3&names=loss%2Ca%2Fb+c&broken=%zz");
        assert_eq!(value(query, "from").as_deref(), Some("3"));
        assert_eq!(value(query, "names").as_deref(), Some("loss,a/b c"));
        assert_eq!([value(query, "broken"), value(query, "to"), value(None, "from")], [None, None, None]);
    }
}
