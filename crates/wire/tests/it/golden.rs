//! The bytes of every message, as they were when its version was made.

use crate::samples::{Message, samples};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use wire::{Version, Versions};

/// A section for each version that this program knows. It has a line that names the version, and a
/// line for each sample whose bytes differ from the versions before. Such a line has the sample's
/// name and its bytes.
const GOLDEN: &str = include_str!("golden.txt");

const CHANGED: &str = "A change of any message is a new version once the last one is released, since machines are not all updated at once: \
    raise `wire::Version::NEWEST` then. In any case put what follows into golden.txt.";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

#[test]
fn every_message_has_the_bytes_of_its_version() {
    let (mut lines, mut before) = (Vec::new(), BTreeSet::new());
    for version in (Version::OLDEST.0..=Version::NEWEST.0).map(Version) {
        lines.push(format!("version {version}"));
        // A program that is held to a version says what the program of that version said.
        let ours = Versions::KNOWN.held_to(version);
        let known = samples().into_iter().filter(|(_, message)| message.since() <= version);
        let now = known.map(|(name, message)| format!("{name} {}", hex(&message.encode(ours))));
        lines.extend(now.filter(|line| before.insert(line.clone())));
    }
    let text = lines.join("\n") + "\n";
    let known: BTreeSet<&str> = GOLDEN.lines().collect();
    let differ: Vec<&String> = lines.iter().filter(|line| !known.contains(line.as_str())).collect();
    assert!(text == GOLDEN, "{CHANGED} These lines differ: {differ:#?}\n\n{text}");
}

#[test]
fn the_bytes_of_every_version_are_messages() {
    let samples: BTreeMap<String, Message> = samples().into_iter().collect();
    let mut version = Version::OLDEST;
    for (name, bytes) in GOLDEN.lines().filter_map(|line| line.split_once(' ')) {
        if name == "version" {
            version = Version(bytes.parse().unwrap());
            continue;
        }
        let message = samples.get(name).unwrap_or_else(|| panic!("{CHANGED} {name} has no sample"));
        let read = Message::decode_as_any(&unhex(bytes));
        // As far as that version says it.
        let said = |read: &Message| {
            mem::discriminant(read) == mem::discriminant(message)
                && hex(&read.encode(Versions::KNOWN.held_to(version))) == bytes
        };
        assert!(read.iter().any(said), "{CHANGED} {name} is read as {read:#?}");
    }
}

#[test]
fn names_of_samples_are_given_once() {
    let names: Vec<String> = samples().into_iter().map(|(name, _)| name).collect();
    let once: BTreeSet<&String> = names.iter().collect();
    assert_eq!(once.len(), names.len());
}
