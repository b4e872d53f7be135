//! What is kept of changes that could not be applied, as people and programs are told of it.

use crate::change::SalvagedChange;
use crate::figures::{date, size};
use client::KnownPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One time that something could not be applied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Salvaged {
    /// Names it.
    pub number: u64,
    /// When, UTC seconds.
    pub when: u64,
    /// Whether the machine was cut off and lost its leases; otherwise the server refused these.
    pub cut_off: bool,
    /// It is not lost yet: the machine's next start goes on with it, if its session stands by then.
    pub goes_on: bool,
    /// What was lost, in the order in which it was done.
    pub items: Vec<SalvagedItem>,
}

/// One thing that was lost: a change, or content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SalvagedItem {
    /// Of which file, as far as that was known.
    pub path: String,
    /// Its identifier.
    pub file: String,
    /// The change, if it is not content.
    pub change: Option<SalvagedChange>,
    /// The content, if that is what was lost.
    pub content: Option<SalvagedContent>,
}

/// Content that was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SalvagedContent {
    /// The name of the file that has it.
    pub name: String,
    /// The size of the file as it was.
    pub size: u64,
    /// Offsets and lengths of what was written; the rest had been applied before.
    pub ranges: Vec<(u64, u64)>,
    /// Offsets and lengths of what was written, too, and could not be had any more.
    pub missing: Vec<(u64, u64)>,
    /// Its BLAKE3.
    pub hash: String,
}

impl SalvagedContent {
    /// Whether all of the file is here.
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

/// A path as people write it; one that is not known from the root on begins with the file's
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
