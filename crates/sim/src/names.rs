//! Names of every kind that the interface allows. A run has few of them, so that they collide.

use lease::Label;
use rand_core::Rng;

/// Names that fold to one label's lease, and names that look alike but are unrelated.
const KIN: [&[&[u8]]; 6] = [
    &[b"readme", b"README", b"Readme"],
    &[b"s", b"S", "\u{17f}".as_bytes()],
    &[b"k", "\u{212a}".as_bytes(), b"K"],
    &["\u{e9}".as_bytes(), "\u{c9}".as_bytes(), "e\u{301}".as_bytes(), "E\u{301}".as_bytes()],
    &["\u{3c3}".as_bytes(), "\u{3c2}".as_bytes(), "\u{3a3}".as_bytes()],
    &[b"a", b"A"],
];

/// The longest names, names that are not UTF-8, and names with characters that are special
/// elsewhere.
const STRANGE: [&[u8]; 10] = [
    &[b'n'; 255],
    &[b'N'; 255],
    b"\xff\xfe",
    b"R\xff",
    b"new\nline",
    b" a b ",
    b".hidden",
    b"...",
    b"-rf",
    b"\x01\x7f*?:\\",
];

/// So many distinct names. The first of them fold to one.
pub(crate) fn some(rng: &mut impl Rng, count: usize) -> Vec<Label> {
    let mut below = |n: usize| (rng.next_u64() % n as u64) as usize;
    let mut names: Vec<&[u8]> = KIN[below(KIN.len())].iter().copied().take(1 + count / 2).collect();
    while names.len() < count {
        let name = if below(2) == 0 {
            STRANGE[below(STRANGE.len())]
        } else {
            let kin = KIN[below(KIN.len())];
            kin[below(kin.len())]
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(label).collect()
}

/// A label from a name in a table.
pub(crate) fn label(name: &[u8]) -> Label {
    #[expect(clippy::expect_used, reason = "the tables hold nothing else")]
    Label::new(name).expect("a label")
}
