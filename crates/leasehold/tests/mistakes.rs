//! Mistakes of users. Each answer says what happened, why, and what to do. Mistakes that need other
//! machines are in `tests/e2e`: joining, expelling, servers that are away.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod people;

use people::{Home, leasehold, said};
use std::path::Path;
use std::process::Command;

/// A command line, its exit status, and texts in its answer.
type Mistake<'a> = (&'a [&'a str], i32, &'a [&'a str]);

fn each_is_answered(home: &Path, mistakes: &[Mistake<'_>]) {
    let mut wrong = Vec::new();
    for (args, code, words) in mistakes {
        let output = leasehold(home, args);
        let missing: Vec<_> = words.iter().filter(|word| !said(&output).contains(**word)).collect();
        if output.status.code() != Some(*code) || !missing.is_empty() {
            wrong.push(format!("{args:?}: {:?}, lacks {missing:?}: {}", output.status.code(), said(&output)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn before_a_machine_is_up() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (data, inside, file) = (path("data"), path("data/mnt"), path("file"));
    let (below_file, taken, foreign) = (path("file/data"), path("taken"), path("foreign"));
    let unmade = path("unmade");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(&file, "not a token").unwrap();
    std::fs::create_dir_all(&foreign).unwrap();
    std::fs::write(path("foreign/letter"), "").unwrap();
    let at_file = format!("@{file}");
    let nowhere = format!("@{inside}");
    let not_up: &[&str] = &["no machine is up", "leasehold up"];
    each_is_answered(
        home.path(),
        &[
            (&["status"], 1, not_up),
            (&["machines"], 2, not_up),
            (&["invite"], 2, not_up),
            (&["invitations", "list"], 2, not_up),
            (&["expel", "desk"], 2, not_up),
            (&["gc"], 2, not_up),
            (&["scrub"], 2, not_up),
            (&["fsck"], 2, not_up),
            (&["backup", &path("backups")], 2, not_up),
            (&["leases", "/"], 2, not_up),
            (&["server", "list"], 2, not_up),
            (&["shares", "status"], 2, not_up),
            (&["down"], 1, &["no machine is up"]),
            (&["leave"], 2, &["leasehold data directory"]),
            (&["stauts"], 2, &["similar", "status"]),
            (&["stop"], 1, &["no machine is up"]),
            (&["unmount", "/"], 2, &["no file system of leasehold", "/"]),
            (&["--data", &data, "status"], 2, &["'status --data'"]),
            (&["up", "--data", &data, "--mount", &data], 2, &["hide it", "--mount"]),
            (&["up", "--data", &inside, "--mount", &data], 2, &["hide it", "--data"]),
            (&["up", "--data", &data, "--mount", &inside], 2, &["in the data directory", "--mount"]),
            (&["up", "--data", &unmade, "--mount", &data, "--backup", &inside], 2, &["another disk"]),
            (&["up", "--data", &data, "--mount", &file], 2, &["mount on", "must be a directory", "another"]),
            (&["up", "--data", &below_file, "--mount", &taken], 2, &["file", "--data"]),
            (&["up", "--data", &foreign, "--mount", &taken], 2, &["not empty", "--data"]),
            (&["up", "--listen", "nowhere"], 2, &["[::]:4470"]),
            (&["up", "--listen", "localhost:http"], 2, &["an address of this machine and a port"]),
            (&["up", "--at", "server"], 2, &["a host and a port"]),
            (&["up", "--name", "42", "--data", &unmade, "--mount", &taken], 2, &["is no number", "--name"]),
            (&["up", "--content", "http://bucket"], 2, &["s3://BUCKET"]),
            (&["up", "--expire-leases", "soon"], 2, &["age, after=DAYS"]),
            (&["up", "--hold-version", "900"], 2, &["knows"]),
            (&["up", "--backup-every", "1"], 2, &["--backup <DIR>"]),
            (&["mount", &taken, "--data", &data], 2, &["no machine's data directory", "--join TOKEN"]),
            (&["join", "lease1-AAAA", "--data", &inside], 2, &["no token", "leasehold invite"]),
            (&["join", &at_file, "--data", &inside], 2, &["no token", "leasehold invite"]),
            (&["join", &nowhere, "--data", &inside], 2, &["cannot read the token in", "No such file"]),
            (&["join", "-", "--data", &inside], 2, &["no token", "leasehold invite"]),
            (&["invite", "--address", "127.0.0.1"], 2, &["a host and a port", "server:4470"]),
            (&["invite", "--address", "fd00::1"], 2, &["[fd00::1]:4470"]),
            (&["invite", "--squash", "nobody"], 2, &["a user's number", "id -u"]),
            (&["invite", "--hours", "soon"], 2, &["a number of hours"]),
            (&["shares", "account", "add", "x", "key", "--quota", "100x"], 2, &["64K"]),
            (&["shares", "account", "sweep", "x", "--unrenewed", "long"], 2, &["a number of days"]),
            (&["policy", "set", &file, "copies=99"], 2, &["copies=N", "code=K+M", "usual"]),
            (&["policy", "set", &file, "copies=2"], 2, &["no file system of leasehold"]),
            (&["policy", "get", &inside], 2, &["mnt", "No such file"]),
            (&["restore", &path("none"), "--data", &path("new")], 2, &["no backup", "none"]),
            (&["restore", &path("none"), "--list"], 2, &["none"]),
            (&["restore", &path("none")], 2, &["--data <NEW>"]),
            (&["restore", &path("none"), "--file", "/a"], 2, &["--to <DEST>"]),
            (
                &["restore", &path("none"), "--file", "/a", "--to", &path("new"), "--data", &data],
                2,
                &["--data <NEW>"],
            ),
            (&["restore", &path("none"), "--file", "/a", "--to", &path("new")], 2, &["no backup", "none"]),
            (&["salvage", "restore", "99", "--to", &taken, "--data", &data], 2, &["99", "salvage list"]),
            (&["salvage", "drop", "99", "--data", &data], 2, &["99", "salvage list"]),
            (&["simulate", "--seed", "5..1"], 2, &["no seed"]),
            (&["completions", "tcsh"], 2, &["bash", "fish", "zsh"]),
            (&["completions", "bash", "--json"], 2, &["no JSON", "--json"]),
            (&["status", "--json=yes"], 2, &["unexpected value", "--json"]),
            (&["man", &below_file], 2, &["Not a directory"]),
        ],
    );
    assert!(!Path::new(&unmade).exists(), "a data directory was made for a machine that cannot be");
    let mut homeless = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let homeless = homeless.arg("status").env_remove("HOME").env_remove("XDG_DATA_HOME");
    let homeless = homeless.env_remove("LEASEHOLD_DATA").output().unwrap();
    assert!(said(&homeless).contains("HOME is not set: say where, with --data DIR"), "{}", said(&homeless));
}

#[test]
fn while_a_machine_is_up() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: this machine has no /dev/fuse");
        return;
    }
    let home = Home(tempfile::tempdir().unwrap());
    let run = |args: &[&str]| leasehold(home.0.path(), args);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = port.local_addr().unwrap().to_string();
    let other = home.0.path().join("other").to_str().unwrap().to_owned();
    let data = home.0.path().join("data2").to_str().unwrap().to_owned();
    let begun = run(&["up", "--background", "--name", "first", "--listen", "127.0.0.1:0"]);
    assert!(begun.status.success(), "{}", said(&begun));
    let mount = home.0.path().join("Leasehold");
    std::fs::write(mount.join("Paper"), "x").unwrap();
    let (paper, inside) = (mount.join("Paper"), mount.join("data"));
    let (paper, inside) = (paper.to_str().unwrap().to_owned(), inside.to_str().unwrap().to_owned());
    let mount = mount.to_str().unwrap().to_owned();
    // A path below the mount is one, and the change of a moment ago counts.
    let leases = run(&["leases", &paper]);
    assert!(leases.status.success(), "{}", said(&leases));
    let listed = run(&["invitations", "list", "--json"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "[]");
    let token = run(&["invite", "--hours", "0.5"]);
    let token = String::from_utf8_lossy(&token.stdout).trim().to_owned();
    let listed = said(&run(&["invitations", "list"]));
    let id = listed.lines().nth(1).and_then(|line| line.split(' ').next()).unwrap().to_owned();
    each_is_answered(
        home.0.path(),
        &[
            (&["up"], 2, &["mounted already", "leasehold down"]),
            (&["up", "--mount", &other], 2, &["in use by process", "another directory with --data"]),
            (&["up", "--data", &inside, "--mount", &other], 2, &["wait for itself", "--data"]),
            (&["backup", &inside], 2, &["on the file system itself", "another disk"]),
            (
                &["up", "--data", &data, "--mount", &other, "--listen", &busy],
                2,
                &["cannot listen", "--listen"],
            ),
            (&["join", &token], 2, &["data directory already", "leasehold leave"]),
            (&["mount", &other, "--join", &token], 2, &["already", "--join"]),
            (&["leave"], 2, &["in use by process"]),
            (&["leases", "/none"], 2, &["no file /none", "root of the file system"]),
            (&["invite", "--path", &paper], 2, &["no directory", "a machine is invited"]),
            (&["invite", "--path", "/none"], 2, &["/none", "root of the file system"]),
            (&["invitations", "revoke", "cafe"], 2, &["no invitation cafe", "invitations list"]),
            (&["invitations", "revoke", &id], 0, &["nobody joins"]),
            (&["invitations", "revoke", &id], 2, &["no invitation", "invitations list"]),
            (&["join", &token, "--data", &data], 2, &["does not take this machine", "leasehold invite"]),
            (&["expel", "desk"], 2, &["no machine desk", "leasehold machines"]),
            (&["expel", "first"], 2, &["is a server", "leasehold server remove"]),
            (&["server", "remove", "first"], 2, &["only server", "server add"]),
            (&["server", "add", "first"], 2, &["a server already", "server list"]),
            (&["drain", "first"], 2, &["no other server", "server add"]),
            (&["shares", "leases", "/none"], 2, &["neither a share", "root of the file system"]),
            (
                &[
                    "restore",
                    &other,
                    "--data",
                    &home.0.path().join(".local/share/leasehold").display().to_string(),
                ],
                2,
                &["no backup"],
            ),
            (&["umount", &other], 2, &["no file system of leasehold is mounted"]),
        ],
    );
    // The mount is in use: the answer says so, and names the process.
    let held = std::fs::File::open(&paper).unwrap();
    let refused = run(&["umount", &mount]);
    let own = format!("({})", std::process::id());
    assert!(!refused.status.success() && said(&refused).contains(&own), "{}", said(&refused));
    drop(held);
    let unmounted = run(&["umount", &mount]);
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    // An unmounted machine ends by itself. `down` waits for that, if it is not too late for it.
    run(&["down"]);
    each_is_answered(
        home.0.path(),
        &[(&["up", "--name", "second"], 2, &["this machine is called first", "given once"])],
    );
}
