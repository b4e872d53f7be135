//! A bit that flips anywhere in the files of a running server is repaired, or found. Wrong bytes
//! are never read. (The log is tested in its own crate, and so is the database of the share
//! server.)

use super::backups::{start, write};
use data_dir::read_file;
use raft::{Row, RowStore, StoreSettings};
use share_hosts::{ShareSettings, Shares};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A data directory that a running machine left, with content in rows, log and shares.
fn left_by_a_server() -> tempfile::TempDir {
    let (data, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = start(data.path());
    for number in 0..30 {
        write(&machine, &format!("small-{number}")).unwrap();
    }
    machine.server().unwrap().group().checkpoint();
    for number in 0..20 {
        write(&machine, &format!("large-{number}")).unwrap();
    }
    copy_files(data.path(), left.path());
    left
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_files(&entry.path(), &to);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Flips bits of `file`, one after the other, at `count` places from its beginning up to byte
/// `end`. Each time `read` must find the `known` value, or nothing. Returns the number of places,
/// and how often `read` found nothing.
fn sweep<T: PartialEq>(
    file: &Path,
    end: u64,
    count: u64,
    known: &T,
    mut read: impl FnMut() -> Option<T>,
) -> (u64, u64) {
    let image = std::fs::read(file).unwrap();
    let (places, mut nothing) = (count.min(end * 8), 0);
    for place in 0..places {
        let bit = place * (end * 8 / places) + place % 8;
        let (at, byte) = (bit / 8, image[bit as usize / 8]);
        let write =
            |byte: u8| File::options().write(true).open(file).unwrap().write_all_at(&[byte], at).unwrap();
        write(byte ^ 1 << (bit % 8));
        match read() {
            Some(found) => assert!(found == *known, "bit {bit} of {}: it is believed", file.display()),
            None => nothing += 1,
        }
        write(byte);
        // An opener may have written more than the repair.
        if std::fs::read(file).unwrap() != image {
            std::fs::write(file, &image).unwrap();
        }
    }
    (places, nothing)
}

#[test]
fn no_bit_that_flips_is_believed() {
    let left = left_by_a_server();
    let (server, data) = (left.path().join("server"), left.path());
    let (mut places, mut found) = (0, 0);
    let mut add = |(swept, nothing): (u64, u64), all_repaired: bool| {
        assert!(!all_repaired || nothing == 0, "a single bit was not put right");
        (places, found) = (places + swept, found + nothing);
    };

    let file = server.join("rows");
    let rows = || -> Option<(Vec<Row>, Option<Vec<u8>>)> {
        let store =
            RowStore::open(&file, StoreSettings { cache_bytes: 1 << 20, overlay_bytes: 1 << 20 }).ok()?;
        Some((store.view().page(None, usize::MAX).ok()?, store.position()))
    };
    let known = rows().unwrap();
    assert!(known.0.len() > 50);
    let bytes = std::fs::metadata(&file).unwrap().len();
    add(sweep(&file, bytes, 600, &known, rows), true);
    add(sweep(&file, 20 << 10, 300, &known, rows), true);

    for name in ["machine.json", "machine.key", "machine.crt", "authority.crt"] {
        let read = || read_file(data, name).ok().flatten();
        let known = read().unwrap();
        for file in [data.join(name), data.join("copies").join(name)] {
            let bytes = std::fs::metadata(&file).unwrap().len();
            add(sweep(&file, bytes, 80, &known, read), true);
        }
    }

    let clock = share_hosts::wall_clock();
    let shares =
        Shares::open(&data.join("shares"), ShareSettings::default(), clock, Arc::new(|_| ())).unwrap();
    let mut ids = Vec::new();
    let listed = shares.server().for_each_share(|share| {
        ids.push(share.id);
        ControlFlow::Continue(())
    });
    listed.unwrap();
    assert!(ids.len() > 5);
    for id in ids {
        let name: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = find(&data.join("shares"), &name).unwrap();
        // The damaged file is sound again when the bit is back.
        let read = || {
            let _ = shares.server().verify(&id);
            shares.server().whole(&id).ok().map(|(body, _)| body)
        };
        let known = read().unwrap();
        let bytes = std::fs::metadata(&file).unwrap().len();
        add(sweep(&file, bytes, 20, &known, read), false);
        assert!(read() == Some(known));
    }
    assert!(places >= 1_500, "only {places} places");
    println!("{places} places, {found} of them refused");
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(dir).unwrap().flatten().find_map(|entry| match entry.file_type().unwrap().is_dir() {
        true => find(&entry.path(), name),
        false => (entry.file_name().to_string_lossy() == name).then(|| entry.path()),
    })
}
