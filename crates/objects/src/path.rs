//! Paths of Windows (MS-FSCC §2.1.5), and the labels that their components stand for.

use crate::StoreError;
use lease::Label;

/// A checked path below a share's root: components, and the name of a stream.
///
/// `\` separates components, and so does `/`, as Samba has it. The first character is none. `..`
/// takes away the component before it, but never leaves the share. The empty path is the root
/// itself. A stream is `file:name` or `file:name:$DATA`; `file::$DATA` is
/// the file's own content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPath {
    pub(crate) components: Vec<Label>,
    pub(crate) stream: Option<String>,
    /// The content is named as a stream of its own: `::$DATA`.
    pub(crate) is_content: bool,
}

/// Characters that no name of Windows has (MS-FSCC §2.1.5.2), aside from control characters.
const RESERVED: [char; 9] = ['"', '*', ':', '<', '>', '?', '\\', '|', '/'];

/// A POSIX label may have such characters. In names of Windows they stand in the private use area,
/// as Services for Unix, Linux' `mapposix` and Samba's `catia` have it.
const PRIVATE: u32 = 0xF000;

impl ObjectPath {
    /// Checks a path from the wire, in UTF-16. Unpaired surrogates, forbidden characters and
    /// wildcards are refused. With `is_posix` every label is a valid name, and `:` begins no
    /// stream.
    pub fn from_utf16(units: &[u16], is_posix: bool) -> Result<ObjectPath, StoreError> {
        let text = String::from_utf16(units).map_err(|_| StoreError::InvalidName)?;
        ObjectPath::parse(&text, is_posix)
    }

    /// The same of text.
    pub fn parse(text: &str, is_posix: bool) -> Result<ObjectPath, StoreError> {
        if text.starts_with('\\') {
            return Err(StoreError::Invalid);
        }
        let (path, stream, has_stream) = match text.split_once(':').filter(|_| !is_posix) {
            Some((path, stream)) => (path, stream_name(stream)?, true),
            None => (text, None, false),
        };
        let path = path.strip_suffix('\\').unwrap_or(path);
        let mut components = Vec::new();
        for name in path.split(['\\', '/']).filter(|_| !path.is_empty()) {
            match name {
                ".." => _ = components.pop().ok_or(StoreError::LeavesShare)?,
                name => components.push(label_of(name, is_posix)?),
            }
        }
        Ok(ObjectPath { components, is_content: has_stream && stream.is_none(), stream })
    }

    /// Returns the path as text, which [`ObjectPath::parse`] reads.
    pub fn text(&self, is_posix: bool) -> String {
        let names = self.components.iter().filter_map(|label| name_of(label, is_posix));
        let path = names.collect::<Vec<String>>().join("\\");
        match &self.stream {
            Some(stream) => format!("{path}:{stream}"),
            None if self.is_content => format!("{path}::$DATA"),
            None => path,
        }
    }

    /// Returns the text of the last `left` components, each behind its separator, and the stream.
    pub fn behind(&self, left: usize, is_posix: bool) -> String {
        let from = self.components.len().saturating_sub(left);
        let components = self.components[from..].to_vec();
        let text = ObjectPath { components, ..self.clone() }.text(is_posix);
        if left > 0 { format!("\\{text}") } else { text }
    }

    /// Whether it names the root of the share, or a stream of it.
    pub fn is_root(&self) -> bool {
        self.components.is_empty()
    }

    /// Whether it names a named stream.
    pub fn is_stream(&self) -> bool {
        self.stream.is_some()
    }
}

/// Checks `name:type` behind the first colon. `:$DATA` alone is the file's content.
fn stream_name(text: &str) -> Result<Option<String>, StoreError> {
    let name = match text.split_once(':') {
        None => text,
        Some((name, kind)) if kind.eq_ignore_ascii_case("$DATA") => name,
        Some(_) => return Err(StoreError::InvalidName),
    };
    let is_plain = text.contains(':');
    match name {
        "" if is_plain => Ok(None),
        "" => Err(StoreError::InvalidName),
        name if name.contains(['\\', '/', ':', '\0']) => Err(StoreError::InvalidName),
        name => Ok(Some(name.to_owned())),
    }
}

fn label_of(name: &str, is_posix: bool) -> Result<Label, StoreError> {
    let bad = |c: char| c < ' ' || RESERVED.contains(&c);
    match name {
        "" | "." | ".." => Err(StoreError::InvalidName),
        name if is_posix => Label::new(name.as_bytes()).map_err(|_| StoreError::InvalidName),
        name if name.contains(bad) => Err(StoreError::InvalidName),
        name => {
            let text: String = name.chars().map(from_private).collect();
            Label::new(text.as_bytes()).map_err(|_| StoreError::InvalidName)
        }
    }
}

pub(crate) fn from_private(c: char) -> char {
    let plain = u32::from(c).checked_sub(PRIVATE).and_then(char::from_u32);
    plain.filter(|plain| *plain != '/' && *plain != '\0' && needs_private(*plain)).unwrap_or(c)
}

fn needs_private(c: char) -> bool {
    c < ' ' || RESERVED.contains(&c) || c == ' ' || c == '.'
}

/// Returns the name of Windows for a label. A label that is no UTF-8 has none.
pub(crate) fn name_of(label: &Label, is_posix: bool) -> Option<String> {
    let text = std::str::from_utf8(label.as_bytes()).ok()?;
    if is_posix {
        return Some(text.to_owned());
    }
    let count = text.chars().count();
    let shown = text.chars().enumerate().map(|(at, c)| {
        let is_last = at + 1 == count && (c == ' ' || c == '.');
        let goes = is_last || c < ' ' || RESERVED.contains(&c);
        if goes { char::from_u32(PRIVATE + u32::from(c)).unwrap_or(c) } else { c }
    });
    Some(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(path: &ObjectPath) -> Vec<String> {
        path.components.iter().map(|label| name_of(label, false).unwrap()).collect()
    }

    #[test]
    fn paths_and_streams() {
        let path = |text| ObjectPath::parse(text, false);
        assert_eq!(path("").unwrap(), ObjectPath::default());
        assert_eq!(shown(&path(r"a\b c\d.txt").unwrap()), ["a", "b c", "d.txt"]);
        assert_eq!(shown(&path("a/b").unwrap()), ["a", "b"]);
        assert_eq!(shown(&path(r"a\b\..\c").unwrap()), ["a", "c"]);
        assert_eq!(path(r"a\..").unwrap(), ObjectPath::default());
        assert_eq!(path("f:s").unwrap().stream.as_deref(), Some("s"));
        assert_eq!(path("f:s:$data").unwrap().stream.as_deref(), Some("s"));
        assert_eq!(path("f::$DATA").unwrap().stream, None);
        for (text, error) in [
            (r"\a", StoreError::Invalid),
            (r"a\\b", StoreError::InvalidName),
            (r"a\.\b", StoreError::InvalidName),
            (r"a\..\..\b", StoreError::LeavesShare),
            ("..", StoreError::LeavesShare),
            ("a*", StoreError::InvalidName),
            ("a:", StoreError::InvalidName),
            ("a:s:$INDEX", StoreError::InvalidName),
            ("a\u{1}", StoreError::InvalidName),
        ] {
            assert_eq!(path(text), Err(error), "{text}");
        }
        assert_eq!(path(&"a".repeat(256)), Err(StoreError::InvalidName));
        assert_eq!(ObjectPath::from_utf16(&[0xD800, 0x61], false), Err(StoreError::InvalidName));
    }

    #[test]
    fn characters_that_windows_forbids_stand_in_the_private_use_area() {
        for label in ["a:b", "what?", "end.", "end ", "x\u{1}", r"back\slash"] {
            let label = Label::new(label.as_bytes()).unwrap();
            let name = name_of(&label, false).unwrap();
            let back = ObjectPath::parse(&name, false).unwrap();
            assert_eq!(back.components, [label]);
        }
    }

    proptest! {
        #[test]
        fn every_text_is_refused_or_comes_back(text in "\\PC{0,20}|[a-c.:\\\\ *]{0,12}") {
            if let Ok(path) = ObjectPath::parse(&text, false) {
                prop_assert_eq!(&ObjectPath::parse(&path.text(false), false).unwrap(), &path);
                for label in &path.components {
                    let name = name_of(label, false).unwrap();
                    prop_assert_eq!(label_of(&name, false), Ok(label.clone()));
                }
            }
        }
    }
}
