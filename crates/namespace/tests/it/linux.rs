//! Users with groups and capabilities get the same results as on ext4. `linux/record.py` has
//! recorded those in `linux/table.txt`.

use crate::situation::{Situation, cred, holds};
use crate::tree::at;
use namespace::{AttributeChange, FileKind, Operation, XattrMode, operation};

const FILES: &str = "
    f    -rw-r----- 1:10
    x    -rwxr-x--- 1:10
    e    ---------- 1:10
    s    -rwsrwsrwx 1:10
    n    -rwSrwSrw- 1:10
    d    drwxr-x--- 1:10
    d/i  -rw------- 1:10
    c    d--------- 1:10
    c/i  -rw------- 1:10
    t    drwxrwxrwt 1:10
    t/i  -rw-rw-rw- 1:10
    g    drwxrwsrwx 1:10";

const CAPABILITIES: [&str; 8] =
    ["CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "SYS_ADMIN", "MKNOD", "SETFCAP"];

fn situation() -> Situation {
    let mut situation = Situation::new(FILES);
    for path in ["e", "s"] {
        for name in ["user.x", "trusted.x", "security.x"] {
            let set = situation.set_xattr(name, b"v", XattrMode::Set, path, "0:0");
            situation.run(&set).unwrap();
        }
    }
    situation
}

#[test]
fn who_asks_counts_as_on_ext4() {
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in include_str!("linux/table.txt").lines() {
        let (question, outcomes) = line.split_once(" -> ").unwrap();
        let (operation, askers) = question.split_once(": ").unwrap();
        let mut outcomes = outcomes.split(" | ");
        let plain = outcomes.next().unwrap();
        let by_capability: Vec<(&str, &str)> = outcomes.map(|other| other.split_once(' ').unwrap()).collect();
        for asker in askers.split(' ') {
            rows += 1;
            check(asker, operation, plain, &mut wrong);
            for capability in CAPABILITIES {
                let other = by_capability.iter().find(|(name, _)| *name == capability);
                let asker = format!("{asker}+{capability}");
                check(&asker, operation, other.map_or(plain, |(_, outcome)| outcome), &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows > 600, "the table is there: {rows}");
}

fn check(asker: &str, operation: &str, outcome: &str, wrong: &mut Vec<String>) {
    let (before, mut after) = (situation(), situation());
    let mut claims = outcome.split("; ");
    let expected = claims.next().unwrap();
    let got = match run(&mut after, asker, operation) {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    if got != expected || !claims.all(|claim| holds(&before, &after, claim)) {
        wrong.push(format!("{asker} {operation}: {outcome}, but {got}"));
    }
}

/// Runs an operation of the table. Some of them are several operations here.
fn run(situation: &mut Situation, asker: &str, operation: &str) -> Result<(), namespace::Error> {
    match operation.split(' ').collect::<Vec<_>>()[..] {
        ["lookup", path] => {
            // The recorder calls stat. Only a user who may search finds out that a name is missing.
            situation.run_text(&format!("{asker} lookup {path}")).map(drop)
        }
        // The machine sets the mode that is left after a write.
        ["write", path] => {
            let (file, attributes) = (situation.id(path), situation.file(path).attributes);
            let mode = Some(attributes.mode_after_write(&cred(asker)));
            let change = AttributeChange { mode, ..AttributeChange::default() };
            let operation = Operation::SetAttributes(operation::SetAttributes {
                file,
                change,
                cred: cred("0:0"),
                time: at(1000),
            });
            situation.run(&operation).map(drop)
        }
        ["setacl", mode, path] => {
            let perm =
                |part: &str| part.chars().zip([4, 2, 1]).map(|(c, bit)| if c == '-' { 0 } else { bit }).sum();
            let entries = [(1u16, &mode[..3]), (4, &mode[3..6]), (0x20, &mode[6..])];
            let mut acl = 2u32.to_le_bytes().to_vec();
            for (tag, part) in entries {
                let perm: u16 = perm(part);
                acl.extend(tag.to_le_bytes().iter().chain(&perm.to_le_bytes()).chain(&[0xff; 4]));
            }
            let set = situation.set_xattr("system.posix_acl_access", &acl, XattrMode::Set, path, asker);
            situation.run(&set).map(drop)
        }
        _ => situation.run_text(&format!("{asker} {operation}")).map(drop),
    }
}

/// Directories have no content to write, and keep their bits.
#[test]
fn a_write_costs_files_only_their_bits() {
    let situation = Situation::new("d drwsrwsrwx 1:10\n f -rwsrwsrwx 1:10");
    let left = |path: &str| situation.file(path).attributes.mode_after_write(&cred("2:20"));
    assert_eq!(situation.file("d").attributes.kind, FileKind::Directory);
    assert_eq!((left("d"), left("f")), (0o6777, 0o777));
}
