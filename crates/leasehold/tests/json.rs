//! The JSON of commands has the fields that `docs/json.md` lists, and each of its sections is about
//! a command that prints them. `salvage restore` and `drop` are tested in `tests/e2e/left.sh`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod people;

use admin::{Change, Existing, Salvaged, SalvagedChange, SalvagedContent, SalvagedItem};
use bench::table::{Ratios, Row};
use namespace::{Error, FileKind};
use people::{Home, leasehold, said};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The text of `docs/json.md`, and the mistakes found in it.
struct Document {
    text: String,
    wrong: Vec<String>,
    /// Sections that an output was compared with.
    seen: BTreeSet<String>,
}

impl Document {
    fn read() -> Document {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
        let text = std::fs::read_to_string(file).unwrap();
        Document { text, wrong: Vec::new(), seen: BTreeSet::new() }
    }

    /// Returns the section of a command, or the one that it names instead of fields.
    fn section(&self, command: &str) -> String {
        let heading = format!("\n## leasehold {command}\n");
        let from = self.text.find(&heading).unwrap_or_else(|| panic!("there is no section of {command}"));
        let rest = &self.text[from + heading.len()..];
        let section = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
        let other = section.split('`').nth(1).and_then(|code| code.strip_prefix("leasehold "));
        match other {
            Some(other) if !section.contains("\n- `") => self.section(other),
            _ => section.to_owned(),
        }
    }

    fn compare(&mut self, command: &str, value: &Value) {
        let section = self.section(command);
        let mut unsaid = BTreeSet::new();
        fields(value, "", &mut unsaid);
        unsaid.retain(|path| !section.contains(&format!("- `{path}`:")));
        self.wrong.extend(unsaid.iter().map(|path| format!("{command} prints {path}, which is not there")));
        // The fields that every machine has.
        let whole = if value.is_array() { value.get(0) } else { Some(value) };
        if let Some(whole) = whole.and_then(Value::as_object) {
            let always = section.trim_start().split("\n\n").find(|part| part.starts_with("- `"));
            let names = always.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("- `"));
            let names = names.filter_map(|line| line.split('`').next());
            let top = names.filter(|name| !name.contains(['.', '[']) && !whole.contains_key(*name));
            self.wrong.extend(top.map(|name| format!("{command} does not print {name}")));
        }
        self.seen.insert(command.to_owned());
    }

    /// Runs the command of that section in `home`, and compares its output.
    fn run(&mut self, home: &Home, command: &str, args: &[&str]) -> Value {
        let words: Vec<&str> = command.split(' ').chain(args.iter().copied()).collect();
        let value = printed(home.0.path(), &words, 0);
        self.compare(command, &value);
        value
    }

    fn compare_with(&mut self, command: &str, answer: &impl Serialize) {
        self.compare(command, &serde_json::to_value(answer).unwrap());
    }

    fn must_be_true(mut self) {
        let headings = self.text.lines().filter_map(|line| line.strip_prefix("## leasehold "));
        let elsewhere = ["salvage restore", "salvage drop"];
        let unseen = headings.filter(|command| !self.seen.contains(*command) && !elsewhere.contains(command));
        self.wrong.extend(unseen.map(|command| format!("nothing was compared with {command}")));
        assert!(self.wrong.is_empty(), "docs/json.md: {:#?}", self.wrong);
    }
}

/// Collects all fields of `value`, by their paths.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => {
            let path = if path.is_empty() { String::new() } else { format!("{path}[]") };
            all.iter().for_each(|one| fields(one, &path, found));
        }
        Value::Object(all) => {
            for (name, value) in all {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields(value, &path, found);
                found.insert(path);
            }
        }
        _ => {}
    }
}

/// Returns the command's output, which must be one JSON value, with this exit status.
fn printed(home: &Path, args: &[&str], status: i32) -> Value {
    let output = leasehold(home, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?} prints no JSON ({error}): {}", said(&output)))
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}

/// Returns every kind of salvage. A machine that has salvage was cut off.
fn salvaged() -> Vec<Salvaged> {
    let (from, target, device) = (Some("/b".to_owned()), Some("b".to_owned()), Some("1:3".to_owned()));
    let (attribute, mode) = ("user.x".to_owned(), "0644".to_owned());
    let changes = [
        Change::Create { kind: FileKind::Symlink, mode: mode.clone(), target, device },
        Change::Link { from: from.clone() },
        Change::Unlink { directory: true },
        Change::Rename { from, existing: Existing::Replaced },
        Change::SetAttributes {
            mode: Some(mode),
            owner: Some(0),
            group: Some(0),
            accessed: Some(0),
            modified: Some(0),
        },
        Change::SetXattr { attribute: attribute.clone(), bytes: 1 },
        Change::RemoveXattr { attribute },
        Change::Write { size: 1 },
        Change::DeleteOnClose { delete: true },
        Change::LastClose,
        Change::Read,
        Change::Lock,
    ];
    let item =
        |change, content| SalvagedItem { path: "/a".to_owned(), file: "1.9".to_owned(), change, content };
    let why = Error::CutOff;
    let change = |what| SalvagedChange { what, when: Some(0), user: Some(0), why, operation: String::new() };
    let content = SalvagedContent {
        name: "content-0".to_owned(),
        size: 1,
        ranges: vec![(0, 1)],
        missing: vec![(0, 1)],
        hash: String::new(),
    };
    let mut items: Vec<_> = changes.map(|what| item(Some(change(what)), None)).into();
    items.push(item(None, Some(content)));
    vec![Salvaged { number: 1, when: 0, cut_off: true, goes_on: false, items }]
}

#[test]
fn every_field_is_documented() {
    let mut document = Document::read();
    document.compare_with("salvage list", &salvaged());
    let ratios = Some(Ratios { lower: 0.9, median: 1.0, upper: 1.1 });
    let row = Row { ratio_to_beside: ratios, cpu_ratio_to_beside: ratios, ..Row::default() };
    document.compare_with("bench local", &[row]);
    let bars = vec![bench::shared::Bar { bar: String::new(), met: true }];
    document.compare_with("bench shared", &[bench::shared::SharedRow { bars, ..Default::default() }]);
    document.compare_with("bench shares", &[bench::shares::SharesRow::of("", 1.0, "")]);
    document.compare_with("bench smb", &[bench::smb::SmbRow::default()]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: this machine has no /dev/fuse");
        return;
    }
    let (home, third) = (Home(tempfile::tempdir().unwrap()), Home(tempfile::tempdir().unwrap()));
    // No machine is up.
    let not_up = printed(home.0.path(), &["status"], 1);
    assert_eq!((&not_up["up"], not_up.as_object().unwrap().len()), (&Value::Bool(false), 2));
    assert!(printed(home.0.path(), &["down"], 1)["process"].is_null());
    let failed = leasehold(home.0.path(), &["--json", "machines"]);
    assert!(failed.status.code() == Some(2) && failed.stdout.is_empty(), "{}", said(&failed));
    document.run(&home, "up", &["--background", "--listen", "127.0.0.1:0", "--smb", "127.0.0.1:0"]);
    smb(&mut document, &home);
    other_machines(&mut document, &home, &third);
    one_machine(&mut document, &home);
    document.run(&home, "umount", &[home.0.path().join("Leasehold").to_str().unwrap()]);
    document.must_be_true();
}

/// Commands about SMB. A session is there once a client has logged on, which no client does here.
fn smb(document: &mut Document, home: &Home) {
    document.compare("user add", &with_password(home.0.path(), &["user", "add", "anna", "--uid", "1000"]));
    document.run(home, "user list", &[]);
    document.run(home, "user remove", &["anna"]);
    std::fs::create_dir(home.0.path().join("Leasehold/work")).unwrap();
    document.run(home, "share add", &["work", "/work"]);
    document.run(home, "share list", &[]);
    document.run(home, "share remove", &["work"]);
    document.run(home, "smb status", &[]);
    let (user, address, dialect) = Default::default();
    let session =
        smb::SessionReport { user, address, dialect, encrypted: false, shares: Vec::new(), opens: 0 };
    let (connections, opens, leases, breaks) = Default::default();
    let report = smb::ServerReport { connections, sessions: vec![session], opens, leases, breaks };
    document.compare_with("smb status", &report);
}

/// Returns the output of a command that reads a password.
fn with_password(home: &Path, args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).arg("--json").env("HOME", home);
    command.env_remove("XDG_DATA_HOME").env_remove("LEASEHOLD_DATA");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Commands about machines and servers.
fn other_machines(document: &mut Document, home: &Home, third: &Home) {
    let second = home.0.path().join("second");
    let second = second.to_str().unwrap();
    let invited = document.run(home, "invite", &[]);
    document.run(home, "join", &[&text(&invited, "token"), "--name", "second", "--data", second]);
    document.run(home, "leave", &["--data", second]);
    let invited = document.run(home, "invite", &["--read-only"]);
    document.run(home, "invitations list", &[]);
    document.run(home, "invitations revoke", &[&text(&invited, "id")]);
    let mount = third.0.path().join("Leasehold");
    let token = text(&document.run(home, "invite", &[]), "token");
    let joins = ["--join", &token, "--name", "third", "--listen", "127.0.0.1:0", "--background"];
    document.run(third, "mount", &[&joins, &[mount.to_str().unwrap()][..]].concat());
    document.run(home, "machines", &[]);
    document.run(home, "server add", &["third"]);
    document.run(home, "server list", &[]);
    document.run(home, "drain", &["third"]);
    document.run(home, "server remove", &["third"]);
    document.run(home, "authority renew", &[]);
    document.run(third, "down", &[]);
    document.run(home, "expel", &["third"]);
}

/// Commands for which one machine is enough.
fn one_machine(document: &mut Document, home: &Home) {
    let path = |name: &str| home.0.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("Leasehold/large"), vec![7; 100_000]).unwrap();
    std::fs::write(path("Leasehold/gone"), vec![8; 100_000]).unwrap();
    std::fs::File::open(path("Leasehold/gone")).unwrap().sync_all().unwrap();
    std::fs::remove_file(path("Leasehold/gone")).unwrap();
    std::fs::write(path("its"), "its own").unwrap();
    let (mount, backups, parcel, its) = (path("Leasehold"), path("backups"), path("parcel"), path("its"));
    for (command, args) in [
        ("status", &[][..]),
        ("top", &["--once"]),
        ("leases", &["/"]),
        ("policy set", &["--recursive", mount.as_str(), "copies=2"]),
        ("policy get", &[mount.as_str()]),
        ("fsck", &[]),
        ("scrub", &[]),
        ("backup", &[backups.as_str()]),
        ("restore", &[backups.as_str(), "--data", &path("restored")]),
        ("restore --file", &["/large", &backups, "--to", &path("extracted")]),
        ("restore --list", &[backups.as_str()]),
        ("salvage list", &[]),
        ("shares status", &[]),
        ("shares usage", &[]),
        ("shares leases", &["/"]),
        ("shares export", &[parcel.as_str()]),
        ("shares import", &[parcel.as_str()]),
        ("shares discover", &[]),
        ("gc", &["--dry-run"]),
        ("gc status", &[]),
        ("man", &[path("man").as_str()]),
        ("bench paper", &["--only", "file-field"]),
        ("simulate", &["--seed", "0", "--steps", "5"]),
        ("simulate", &["--seed", "0", "--steps", "5", "--machines", "2"]),
    ] {
        document.run(home, command, args);
    }
    let file = path("key");
    let key = text(&document.run(home, "shares account key", &[&file]), "key");
    document.run(home, "shares account add", &["archive", &key, "--quota", "1M"]);
    document.run(home, "shares account list", &[]);
    let share = text(&document.run(home, "shares put", &[&its, "--key", &file]), "share");
    let got = document.run(home, "shares get", &[&share, "--key", &file]);
    assert_eq!(got["body"], "aXRzIG93bg==");
    document.run(home, "shares list", &["--renew", "--key", &file]);
    document.run(home, "shares drop", &[&share, "--key", &file]);
    document.run(home, "shares account sweep", &["archive", "--unrenewed", "30"]);
    document.run(home, "shares account remove", &["archive"]);
    // A backup takes the files of one server, so this comes last.
    document.run(home, "delegate", &["/work"]);
    document.run(home, "map", &[]);
    document.run(home, "map", &["/work"]);
    document.run(home, "unpin", &["/work"]);
    document.run(home, "pin", &["/work"]);
    document.run(home, "balance", &["--dry-run"]);
    document.run(home, "balance", &["off"]);
}
