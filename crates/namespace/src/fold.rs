//! The fold of a label, by which it is leased.

use lease::{LABEL_BYTES_MAX, Label};
use smallvec::SmallVec;

/// The label that the lease on `label` names: simple case folding (Unicode 16.0.0, statuses C and
/// S) of valid UTF-8, and the label itself otherwise. So exact lookups and lookups that ignore case
/// lease the same thing.
///
/// Folding can lengthen a label: U+023A has 2 bytes, its fold 3. If the fold would have more than
/// 255 bytes, the label is its own fold. That depends on the label alone, and makes no two
/// different labels equal. Folding is idempotent, so a label that folding changes is not the fold
/// of any other. Such a label is only found by its exact case.
///
/// Pinned: another table is another version of the cluster ([`crate::decide()`]), since a lease
/// recorded under one fold must be found under it.
pub fn fold(label: &Label) -> Label {
    let bytes = label.as_bytes();
    if bytes.is_ascii() {
        return fold_ascii(label);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return label.clone() };
    let mut folded: SmallVec<[u8; LABEL_BYTES_MAX]> = SmallVec::new();
    for c in text.chars() {
        let folded_c =
            unicode_case_mapping::case_folded(c).and_then(|c| char::from_u32(c.get())).unwrap_or(c);
        folded.extend_from_slice(folded_c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Label::attribute(&folded).unwrap_or_else(|_| label.clone())
}

fn fold_ascii(label: &Label) -> Label {
    if !label.as_bytes().iter().any(u8::is_ascii_uppercase) {
        return label.clone();
    }
    let mut folded: SmallVec<[u8; LABEL_BYTES_MAX]> = SmallVec::from_slice(label.as_bytes());
    folded.make_ascii_lowercase();
    Label::attribute(&folded).unwrap_or_else(|_| label.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folded(label: &str) -> String {
        String::from_utf8(fold(&Label::new(label.as_bytes()).unwrap()).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn rows() {
        for (label, expected) in [
            ("readme", "readme"),
            ("README.md", "readme.md"),
            ("ÄÖÜ", "äöü"),
            ("ẞ", "ß"),             // simple: never "ss"
            ("ς", "σ"),             // final sigma
            ("\u{212A}", "k"),      // Kelvin sign
            ("ſ", "s"),             // long s
            ("\u{130}", "\u{130}"), // dotted I folds only in status F and T
            ("İi", "İi"),
            ("Ꮿ", "Ꮿ"), // Cherokee folds to capitals
            ("\u{ab70}", "Ꭰ"),
        ] {
            assert_eq!(folded(label), expected, "{label}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        let label = Label::new(b"A\xff").unwrap();
        assert_eq!(fold(&label), label);
    }

    #[test]
    fn a_fold_that_is_too_long_is_the_label_itself() {
        let long = "\u{23a}".repeat(127);
        assert_eq!(folded(&long), long);
        let fits = "\u{23a}".repeat(85);
        assert_eq!(folded(&fits), "\u{2c65}".repeat(85));
    }

    /// The pin.
    #[test]
    fn the_table_is_that_of_unicode_16() {
        assert_eq!(unicode_case_mapping::UNICODE_VERSION, (16, 0, 0));
        // FNV-1a over every character that folds, with its fold.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut count = 0;
        for c in '\u{1}'..=char::MAX {
            let label = Label::attribute(c.encode_utf8(&mut [0; 4]).as_bytes()).unwrap();
            let to = fold(&label);
            if to != label {
                count += 1;
                for byte in label.as_bytes().iter().chain(to.as_bytes()) {
                    hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        assert_eq!((count, hash), (1484, 7_530_824_425_000_053_294));
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing_more(bytes in prop_oneof![
            proptest::collection::vec(1u8..=255, 1..40),
            "\\PC{1,60}".prop_map(String::into_bytes),
            "[Ⱥⱥa]{80,130}".prop_map(String::into_bytes),
        ]) {
            if let Ok(label) = Label::attribute(&bytes) {
                let once = fold(&label);
                prop_assert_eq!(fold(&once), once);
            }
        }
    }
}
