//! A machine in the background, as people start and end it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod people;

use people::{HANG, Home, leasehold, said};
use std::path::Path;
use std::time::Instant;

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
    // Once more, and now the mount is unmounted: that ends the machine.
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
