//! Short names: eight characters, a point and three (MS-FSCC §2.1.5.2.1). They are made of a hash
//! of the long name, the same on all machines. No file is found by one.

/// Characters of short names, aside from letters and digits.
const OTHERS: &str = "!#$%&'()-@^_`{}~";
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn is_plain(text: &str, max: usize) -> bool {
    let admits = |c: char| c.is_ascii_alphanumeric() || OTHERS.contains(c);
    !text.is_empty() && text.len() <= max && text.chars().all(admits)
}

/// Whether the name is a short one itself.
fn is_short(name: &str) -> bool {
    match name.split_once('.') {
        None => is_plain(name, 8),
        Some((stem, extension)) => is_plain(stem, 8) && is_plain(extension, 3),
    }
}

/// Returns the short name of a name that is longer.
pub(crate) fn shortened(name: &str) -> Option<String> {
    if is_short(name) || name == "." || name == ".." {
        return None;
    }
    let folded = name.to_uppercase();
    // FNV-1a.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut left = folded.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let mut digit = || {
        let digit = left % DIGITS.len() as u64;
        left /= DIGITS.len() as u64;
        char::from(DIGITS[digit as usize])
    };
    let plain = |text: &str| -> String { text.chars().filter(char::is_ascii_alphanumeric).collect() };
    let (stem, extension) = folded.rsplit_once('.').unwrap_or((&folded, ""));
    let mut short: String = plain(stem).chars().take(2).collect();
    short.extend((0..6 - short.len()).map(|_| digit()));
    short.push('~');
    short.push(digit());
    let extension: String = plain(extension).chars().take(3).collect();
    if !extension.is_empty() {
        short.push('.');
        short.push_str(&extension);
    }
    Some(short)
}

/// Returns the short name of any name. One that is short is its own.
pub(crate) fn short_name(name: &str) -> String {
    shortened(name).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_names_are_their_own() {
        for name in ["a", "README.TXT", "readme.txt", "12345678.123", "a-b", "."] {
            assert_eq!(shortened(name), None, "{name}");
        }
        let long = shortened("testsmb2_file.dat").unwrap();
        assert!(long.starts_with("TE") && long.ends_with(".DAT"), "{long}");
        assert_eq!(shortened("TestSMB2_file.dat"), Some(long), "case is no difference");
        assert_ne!(shortened("a long name"), shortened("a long Name 2"));
    }

    proptest! {
        #[test]
        fn what_is_made_is_short(name in "\\PC{1,40}") {
            if let Some(short) = shortened(&name) {
                prop_assert!(is_short(&short), "{} of {}", short, name);
            }
        }
    }
}
