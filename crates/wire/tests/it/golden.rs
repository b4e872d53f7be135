//! What every message is in bytes, as it was when its version was made.

use crate::samples::{Message, samples};
use std::collections::{BTreeMap, BTreeSet};

/// A line each: a sample's name, and its bytes. The first line is the versions that this is about.
const GOLDEN: &str = include_str!("golden.txt");

const CHANGED: &str = "A change of any message is a new version, since machines are not all updated at once: raise `wire::VERSIONS`, \
    then put what follows into golden.txt.";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

#[test]
fn every_message_has_the_bytes_of_its_version() {
    let (oldest, newest) = wire::VERSIONS;
    let mut lines = vec![format!("versions {oldest} {newest}")];
    lines.extend(samples().iter().map(|(name, message)| format!("{name} {}", hex(&message.encode()))));
    let text = lines.join("\n") + "\n";
    let known: BTreeSet<&str> = GOLDEN.lines().collect();
    let differ: Vec<&String> = lines.iter().filter(|line| !known.contains(line.as_str())).collect();
    assert!(text == GOLDEN, "{CHANGED} These lines differ: {differ:#?}\n\n{text}");
}

#[test]
fn the_bytes_of_its_version_are_every_message() {
    let golden: BTreeMap<&str, &str> = GOLDEN.lines().filter_map(|line| line.split_once(' ')).collect();
    for (name, message) in samples() {
        let bytes = unhex(golden.get(name.as_str()).unwrap_or_else(|| panic!("{CHANGED} {name} is missing")));
        let read = Message::decode_as_any(&bytes);
        assert!(read.contains(&message), "{CHANGED} {name} is read as {read:#?}");
    }
}

#[test]
fn names_of_samples_are_given_once() {
    let names: Vec<String> = samples().into_iter().map(|(name, _)| name).collect();
    let once: BTreeSet<&String> = names.iter().collect();
    assert_eq!(once.len(), names.len());
}
