//! What commands print as JSON has the fields that `docs/json.md` says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod people;

use people::{Home, leasehold, said};
use serde_json::Value;
use std::path::Path;

/// The section of a command.
fn section<'a>(document: &'a str, command: &str) -> &'a str {
    let heading = format!("\n## leasehold {command}\n");
    let from = document.find(&heading).unwrap_or_else(|| panic!("there is no section of {command}"));
    let rest = &document[from + heading.len()..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// Fields that the section does not have, by their paths.
fn unsaid(section: &str, value: &Value, path: &str, unsaid: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| unsaid_in_list(section, one, path, unsaid)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if !section.contains(&format!("- `{path}`:")) {
                    unsaid.push(path.clone());
                }
                self::unsaid(section, value, &path, unsaid);
            }
        }
        _ => {}
    }
}

fn unsaid_in_list(section: &str, value: &Value, path: &str, unsaid: &mut Vec<String>) {
    let path = if path.is_empty() { String::new() } else { format!("{path}[]") };
    self::unsaid(section, value, &path, unsaid);
}

#[test]
fn every_field_is_documented() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: this machine has no /dev/fuse");
        return;
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let document = std::fs::read_to_string(document).unwrap();
    let home = Home(tempfile::tempdir().unwrap());
    let path = |name: &str| home.0.path().join(name).to_str().unwrap().to_owned();
    let run = |args: &[&str]| leasehold(home.0.path(), args);
    let up = run(&["up", "--background", "--listen", "127.0.0.1:0"]);
    assert!(up.status.success(), "{}", said(&up));
    std::fs::write(path("Leasehold/large"), vec![7; 100_000]).unwrap();
    std::fs::write(path("Leasehold/gone"), vec![8; 100_000]).unwrap();
    std::fs::File::open(path("Leasehold/gone")).unwrap().sync_all().unwrap();
    std::fs::remove_file(path("Leasehold/gone")).unwrap();
    assert!(run(&["invite"]).status.success());
    let (backups, parcel) = (path("backups"), path("parcel"));
    let (restored, extracted) = (path("restored"), path("extracted"));
    let mut wrong = Vec::new();
    for (command, rest) in [
        ("status", &[][..]),
        ("machines", &[]),
        ("invitations list", &[]),
        ("server list", &[]),
        ("leases", &["/"]),
        ("fsck", &[]),
        ("scrub", &[]),
        ("backup", &[backups.as_str()]),
        ("restore", &[backups.as_str(), "--data", restored.as_str()]),
        ("restore --file", &["/large", backups.as_str(), "--to", extracted.as_str()]),
        ("restore --list", &[backups.as_str()]),
        ("salvage list", &[]),
        ("shares status", &[]),
        ("shares usage", &[]),
        ("shares leases", &["/"]),
        ("shares export", &[parcel.as_str()]),
        ("gc", &["--dry-run"]),
        ("gc status", &[]),
    ] {
        let args: Vec<&str> = command.split(' ').chain(rest.iter().copied()).chain(["--json"]).collect();
        let output = run(&args);
        let Ok(value) = serde_json::from_slice(&output.stdout) else {
            panic!("{args:?} prints no JSON: {}", said(&output));
        };
        let mut fields = Vec::new();
        match &value {
            Value::Array(all) => {
                all.iter().for_each(|one| unsaid(section(&document, command), one, "", &mut fields))
            }
            one => unsaid(section(&document, command), one, "", &mut fields),
        }
        wrong.extend(fields.into_iter().map(|field| format!("{command}: {field}")));
    }
    assert!(wrong.is_empty(), "docs/json.md does not have {wrong:#?}");
}
