//! Patterns of directory queries (MS-FSA §2.1.4.4).

/// A pattern with the wildcards `*`, `?`, `<` (DOS_STAR), `>` (DOS_QM) and `"` (DOS_DOT). It is
/// matched without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<char>);

impl Pattern {
    pub(crate) fn new(text: &str) -> Pattern {
        let text = if text.is_empty() { "*" } else { text };
        Pattern(text.chars().map(upper).collect())
    }

    /// Whether it has no wildcard, so that it names at most one entry.
    pub(crate) fn is_plain(&self) -> bool {
        !self.0.iter().any(|c| matches!(c, '*' | '?' | '<' | '>' | '"'))
    }

    /// Whether it matches the name. Its time grows with the product of the lengths.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().map(upper).collect();
        // `at[i]` says whether the pattern so far matches the first `i` characters.
        let mut at = vec![false; name.len() + 1];
        at[0] = true;
        for c in &self.0 {
            at = step(*c, &name, &at);
        }
        at[name.len()]
    }
}

/// Takes one more character of the pattern.
fn step(c: char, name: &[char], at: &[bool]) -> Vec<bool> {
    let end = name.len();
    let last_dot = name.iter().rposition(|c| *c == '.');
    let mut next = vec![false; end + 1];
    let mut reached = false;
    for i in 0..=end {
        reached |= at[i];
        next[i] = match c {
            '*' => reached,
            // DOS_STAR takes any characters up to the last dot of the name, and matches the dot
            // only if it is not the last one.
            '<' => match last_dot {
                Some(dot) => at[..=i].iter().enumerate().any(|(from, ok)| *ok && (i <= dot || from > dot)),
                None => reached,
            },
            // DOS_QM takes one character; before a dot or at the end it may take none.
            '>' => {
                let one = i > 0 && at[i - 1] && name[i - 1] != '.';
                one || at[i] && (i == end || name[i] == '.')
            }
            // DOS_DOT takes a dot, or nothing at the end.
            '"' => i > 0 && at[i - 1] && name[i - 1] == '.' || i == end && at[i],
            '?' => i > 0 && at[i - 1],
            c => i > 0 && at[i - 1] && name[i - 1] == c,
        };
    }
    next
}

fn upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows() {
        for (pattern, name, matches) in [
            ("*", "anything", true),
            ("", "anything", true),
            ("A*", "abc", true),
            ("a?c", "ABC", true),
            ("a?c", "ac", false),
            ("*.txt", "x.TXT", true),
            ("<.txt", "a.b.txt", true),
            ("<", "a.b", false),
            ("<", "ab", true),
            ("a<", "abc", true),
            ("a>>>", "abc", true),
            ("a>>>", "ab", true),
            ("a>>", "abcd", false),
            ("abc\"", "abc", true),
            ("abc\"", "abc.", true),
            ("a>>>\"b", "abc.b", true),
            ("ä", "Ä", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), matches, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn a_star_matches_every_name_and_a_name_itself(name in "[a-zA-Z. äß]{1,20}") {
            prop_assert!(Pattern::new("*").matches(&name));
            prop_assert!(Pattern::new(&name).matches(&name));
            let begins = name.clone() + "*";
            prop_assert!(Pattern::new(&begins).matches(&name));
            let question = "?".repeat(name.chars().count());
            prop_assert!(Pattern::new(&question).matches(&name));
        }
    }
}
