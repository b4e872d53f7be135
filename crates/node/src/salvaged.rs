//! The description of salvage, as people and programs read it.

use crate::change::SalvagedChange;
use client::KnownPath;
use figures::{date, size};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One salvage: changes that could not be applied together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Salvaged {
    /// The number that names it.
    pub number: u64,
    /// When it was kept, UTC seconds.
    pub when: u64,
    /// Whether the machine was cut off and lost its leases. Otherwise the server refused the
    /// changes.
    pub cut_off: bool,
    /// The changes are not lost yet: the machine's next start goes on with them, if its session
    /// stands by then.
    pub goes_on: bool,
    /// The lost changes, in the order in which they were made.
    pub items: Vec<SalvagedItem>,
}

/// One lost change, or lost content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SalvagedItem {
    /// The path of the file, as far as it was known.
    pub path: String,
    /// The file's identifier.
    pub file: String,
    /// The change, if it is not content.
    pub change: Option<SalvagedChange>,
    /// The content, if content was lost.
    pub content: Option<SalvagedContent>,
}

/// Content that was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SalvagedContent {
    /// The name of the file that keeps it.
    pub name: String,
    /// The size of the file as it was.
    pub size: u64,
    /// Offsets and lengths of the written bytes that are kept. The rest had been applied before.
    pub ranges: Vec<(u64, u64)>,
    /// Offsets and lengths of written bytes that could not be had any more.
    pub missing: Vec<(u64, u64)>,
    /// The content's BLAKE3.
    pub hash: String,
}

impl SalvagedContent {
    /// Whether the whole file is here.
    pub fn is_whole(&self) -> bool {
        let mut ranges = self.ranges.clone();
        ranges.sort_unstable();
        let covered =
            ranges.iter().fold(
                0,
                |end: u64, (at, length)| {
                    if *at <= end { end.max(at.saturating_add(*length)) } else { end }
                },
            );
        covered >= self.size
    }
}

/// Writes a path as people do. A path that is not known from the root on begins with the file's
/// identifier.
pub(crate) fn path(path: &KnownPath) -> String {
    let from = if path.from == ident::FileId::root() { String::new() } else { format!("[{}]", path.from) };
    path.labels.iter().fold(from, |text, label| text + "/" + &String::from_utf8_lossy(label.as_bytes()))
}

impl fmt::Display for Salvaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match (self.goes_on, self.cut_off) {
            (true, _) => "left when the machine ended: its next start goes on with it",
            (false, true) => "cut off",
            (false, false) => "refused by the server",
        };
        writeln!(f, "{} of {} ({why})", self.number, date(self.when))?;
        self.items.iter().try_for_each(|item| writeln!(f, "    {item}"))
    }
}

impl fmt::Display for SalvagedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        self.change.iter().try_for_each(|change| write!(f, ": {change}"))?;
        self.content.iter().try_for_each(|content| write!(f, ": {content}"))
    }
}

impl fmt::Display for SalvagedContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, length)| length).sum();
        write!(f, "write {} of a file of {}", size(sum(&self.ranges)), size(self.size))?;
        if self.missing.is_empty() {
            return Ok(());
        }
        write!(f, "; {} more cannot be had any more", size(sum(&self.missing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_by_its_bytes() {
        let content = SalvagedContent {
            name: "content-0".to_owned(),
            size: 3 << 20,
            ranges: vec![(0, 1024), (4096, 1024)],
            missing: vec![(8192, 512)],
            hash: String::new(),
        };
        let (path, file) = ("/a".to_owned(), String::new());
        let item = SalvagedItem { path, file, change: None, content: Some(content) };
        let words = "/a: write 2.0 KiB of a file of 3.0 MiB; 512 B more cannot be had any more";
        assert_eq!(item.to_string(), words);
    }
}
