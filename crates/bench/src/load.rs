//! Many files: made through client and server without a mount, then opened again.

use crate::cost::resident_bytes;
use crate::table::Row;
use client::call;
use file_service::{FileCall, FileService};
use ident::FileId;
use lease::Label;
use namespace::{Cred, FileKind, FileSpec};
use node::{Machine, MachineSettings};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// Files in each directory.
const FILES_PER_DIR: usize = 1_000;

/// Makes `files` files on a new machine in `dir`, then measures the machine's start, its store and
/// its memory.
pub fn run(dir: &Path, files: usize, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    let machine =
        Machine::start(dir, "leasehold bench", MachineSettings::default()).map_err(io::Error::other)?;
    let door = machine.file_service();
    let began = Instant::now();
    for n in 0..files.div_ceil(FILES_PER_DIR) {
        if n % 100 == 0 {
            tell(&format!("loading: {} of {files} files", n * FILES_PER_DIR));
        }
        let parent = create(&*door, &FileId::root(), &format!("d{n}"), FileKind::Directory)?;
        for m in 0..FILES_PER_DIR.min(files - n * FILES_PER_DIR) {
            create(&*door, &parent, &format!("file-{m}"), FileKind::Regular)?;
        }
    }
    ask(&*door, call::SyncAll)?;
    let took = began.elapsed();
    let resident = resident_bytes(std::process::id())?;
    drop(door);
    machine.stop().map_err(io::Error::other)?;
    let store = std::fs::metadata(dir.join("server").join("rows"))?.blocks() * 512;
    tell("opening again");
    let began = Instant::now();
    let machine =
        Machine::start(dir, "leasehold bench", MachineSettings::default()).map_err(io::Error::other)?;
    let opened = began.elapsed();
    machine.stop().map_err(io::Error::other)?;
    let mib = resident as f64 / f64::from(1 << 20);
    Ok(vec![
        Row {
            name: format!("load of {files} files, files/s"),
            rate: Some(files as f64 / took.as_secs_f64()),
            ..Row::default()
        },
        Row::at_most("store a file of many, bytes", store as f64 / files as f64, 400.0, "bytes"),
        // The server's setting, and the client's limit (400,000 files of at most 1 KiB).
        Row::at_most("resident with many files, MiB", mib, 256.0 + 400.0, "MiB"),
        Row::at_most("open of many files, s", opened.as_secs_f64(), 5.0, "s"),
    ])
}

fn create(door: &dyn FileService, dir: &FileId, label: &str, kind: FileKind) -> io::Result<FileId> {
    let label = Label::new(label.as_bytes()).map_err(io::Error::other)?;
    let spec = FileSpec::new(kind, 0o755, 0o022);
    let call = call::Create { dir: dir.clone(), label, spec, open: None };
    let (made, _) = ask(door, call)?.value;
    Ok(made.file)
}

fn ask<C: FileCall>(door: &dyn FileService, call: C) -> io::Result<C::Reply> {
    let (tell, told) = sync_channel(1);
    door.ask(&Cred::default(), call, move |result| _ = tell.send(result));
    told.recv().map_err(io::Error::other)?.map_err(io::Error::other)
}
