//! The floor does what a file system does, and only forgets at its end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::mpsc;

#[test]
fn gives_back_what_it_was_given() {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("SKIPPED: this test mounts, and /dev/fuse is not to be had: {error}");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("floor");
    let (ready, is_ready) = mpsc::channel();
    let serving = std::thread::spawn({
        let dir = dir.clone();
        move || bench::floor::run(&dir, || ready.send(()).unwrap())
    });
    is_ready.recv().unwrap();

    fs::create_dir(dir.join("d")).unwrap();
    let names: Vec<_> = (0..1000).map(|n| format!("file-{n}")).collect();
    for name in &names {
        fs::write(dir.join("d").join(name), name).unwrap();
    }
    fs::remove_file(dir.join("d/file-7")).unwrap();
    fs::rename(dir.join("d/file-8"), dir.join("moved")).unwrap();
    let mut listed: Vec<_> = fs::read_dir(dir.join("d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort_by_key(|name| name[5..].parse::<usize>().unwrap());
    let expected: Vec<_> =
        names.iter().filter(|name| !["file-7", "file-8"].contains(&name.as_str())).cloned().collect();
    assert_eq!(listed, expected);
    for name in listed {
        assert_eq!(fs::read_to_string(dir.join("d").join(&name)).unwrap(), name);
    }
    assert_eq!(fs::read(dir.join("d/file-7")).unwrap_err().kind(), ErrorKind::NotFound);

    std::os::unix::fs::symlink("moved", dir.join("link")).unwrap();
    assert_eq!(fs::read_link(dir.join("link")).unwrap().to_str(), Some("moved"));
    assert_eq!(fs::read_to_string(dir.join("link")).unwrap(), "file-8");

    let file = OpenOptions::new().read(true).write(true).open(dir.join("moved")).unwrap();
    file.write_all_at(b"far out", 3_000_000).unwrap();
    file.write_all_at(b"FILE", 0).unwrap();
    let content = fs::read(dir.join("moved")).unwrap();
    assert_eq!(
        (content.len(), &content[..8], &content[3_000_000..]),
        (3_000_007, &b"FILE-8\0\0"[..], &b"far out"[..])
    );
    drop(file);

    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    serving.join().unwrap().unwrap();
}
