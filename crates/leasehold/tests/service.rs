//! A machine in the background, as people start and end it; and mistakes that they make, which are answered with what to do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes that does not hang.
const HANG: Duration = Duration::from_secs(120);

fn leasehold(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env("HOME", home).env_remove("XDG_DATA_HOME").env_remove("LEASEHOLD_DATA");
    command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > HANG {
            child.kill().unwrap();
            panic!("hangs: {args:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Ends what a test that fails has left.
struct Home(tempfile::TempDir);

impl Drop for Home {
    fn drop(&mut self) {
        leasehold(self.0.path(), &["down"]);
    }
}

#[test]
fn a_machine_goes_on_in_the_background_until_it_is_told_to_end() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: this machine has no /dev/fuse");
        return;
    }
    let home = Home(tempfile::tempdir().unwrap());
    let dir = home.0.path();
    let run = |args: &[&str]| leasehold(dir, args);
    let up = ["up", "--background", "--listen", "127.0.0.1:0"];
    let begun = run(&up);
    assert!(begun.status.success() && said(&begun).contains("leasehold down"), "{}", said(&begun));
    let mount = dir.join("Leasehold");
    std::fs::write(mount.join("kept"), "x").unwrap();
    let again = run(&up);
    assert!(
        !again.status.success() && said(&again).contains("mounted already: leasehold down"),
        "{}",
        said(&again)
    );
    let down = run(&["down"]);
    assert!(down.status.success(), "{}", said(&down));
    assert!(!mount.join("kept").exists(), "it is unmounted");
    assert_eq!(run(&["down"]).status.code(), Some(1), "there is none any more");
    // Once more, and now it is unmounted instead: it ends by that.
    assert!(run(&up).status.success());
    assert_eq!(std::fs::read(mount.join("kept")).unwrap(), b"x");
    let place = mount.to_str().unwrap();
    let unmounted = run(&["umount", place]);
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    let begun = Instant::now();
    while run(&["status"]).status.success() {
        assert!(begun.elapsed() < HANG, "it does not end");
    }
    let log = std::fs::read_to_string(dir.join(".local/share/leasehold/leasehold.log")).unwrap();
    assert!(log.contains("unmounted by somebody else") && !log.contains('\u{1b}'), "{log}");
}

#[test]
fn a_start_that_fails_says_why_and_leaves_no_file_system_behind() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    for background in [&[][..], &["--background"]] {
        let args = [&["up", "--mount", file.to_str().unwrap()], background].concat();
        let failed = leasehold(home.path(), &args);
        assert_eq!(failed.status.code(), Some(2));
        assert!(said(&failed).contains("file to mount on"), "{}", said(&failed));
        assert!(!home.path().join(".local/share/leasehold/format").exists());
    }
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (data, inside) = (path("data"), path("data/mnt"));
    std::fs::create_dir_all(&data).unwrap();
    let token = "lease1-AAAA";
    for (args, code, words) in [
        (&["status"][..], 1, &["no machine is up", "leasehold up"][..]),
        (&["down"], 1, &["no machine is up"]),
        (&["umount", "/"], 2, &["no file system of leasehold"]),
        (&["up", "--data", &data, "--mount", &data], 2, &["hide it", "--mount"]),
        (&["up", "--data", &inside, "--mount", &data], 2, &["hide it", "--data"]),
        (&["mount", &inside, "--data", &data], 2, &["--join TOKEN"]),
        (&["join", token, "--data", &inside], 2, &["no token", "leasehold invite"]),
        (&["simulate", "--seed", "5..1"], 2, &["no seed"]),
        (&["stauts"], 2, &["status"]),
    ] {
        let output = leasehold(home.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        let missing: Vec<_> = words.iter().filter(|word| !said(&output).contains(**word)).collect();
        assert!(missing.is_empty(), "{args:?} lacks {missing:?}: {}", said(&output));
    }
    let mut homeless = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let homeless = homeless.arg("status").env_remove("HOME").env_remove("XDG_DATA_HOME").output().unwrap();
    assert!(said(&homeless).contains("--data DIR"), "{}", said(&homeless));
}
