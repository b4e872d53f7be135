//! Work on files: opens, long transfers, many small files.

use super::client::OpenPurpose::{MakeDirectory, Read, Replace};
use super::client::SmbClient;
use super::protection::Way;
use super::row::SmbRow;
use super::servers::{Beside, MeasuredWork};
use std::io;

const MIB: usize = 1 << 20;
const SMALL_BYTES: usize = 4096;

/// Opens a file and closes it, again and again: by two requests one after the other, and by a
/// compound, as clients do that look at a file.
pub(super) fn opens(beside: &Beside, opens: usize, tell: &mut dyn FnMut(&str)) -> io::Result<[SmbRow; 2]> {
    let one_by_one = MeasuredWork {
        name: "open and close".into(),
        units: opens,
        way: Way::Signed,
        run: &|client, _| {
            for _ in 0..opens {
                let (file, _) = client.open("opened", Read)?;
                client.close(file)?;
            }
            Ok(())
        },
    };
    let compound = MeasuredWork {
        name: "open and close at once".into(),
        run: &|client, _| (0..opens).try_for_each(|_| client.open_and_close("opened", Read)),
        ..one_by_one
    };
    let prepare = |client: &mut SmbClient, _| {
        let (file, _) = client.open("opened", Replace)?;
        client.close(file)
    };
    Ok([beside.compare(&one_by_one, prepare, tell)?, beside.compare(&compound, prepare, tell)?])
}

/// Writes a file of so many MiB, which becomes durable, and reads it.
pub(super) fn transfers(
    beside: &Beside,
    way: Way,
    mib: usize,
    tell: &mut dyn FnMut(&str),
) -> io::Result<[SmbRow; 2]> {
    let data = irregular(MIB);
    let put = MeasuredWork {
        name: "put of a MiB".into(),
        units: mib,
        way,
        run: &|client, _| {
            let (file, _) = client.open("long", Replace)?;
            for n in 0..mib {
                client.write(file, (n * MIB) as u64, &data)?;
            }
            client.flush(file)?;
            client.close(file)
        },
    };
    let get = MeasuredWork {
        name: "get of a MiB".into(),
        units: mib,
        way,
        run: &|client, _| {
            let (file, _) = client.open("long", Read)?;
            for n in 0..mib {
                if client.read(file, (n * MIB) as u64, MIB)? != MIB {
                    return Err(io::Error::other("a read is short"));
                }
            }
            client.close(file)
        },
    };
    Ok([beside.compare(&put, |_, _| Ok(()), tell)?, beside.compare(&get, |_, _| Ok(()), tell)?])
}

/// Makes, writes and closes files of 4 KiB in a new directory.
pub(super) fn files(beside: &Beside, files: usize, tell: &mut dyn FnMut(&str)) -> io::Result<SmbRow> {
    let data = irregular(SMALL_BYTES);
    let work = MeasuredWork {
        name: "create, write and close of 4 KiB".into(),
        units: files,
        way: Way::Signed,
        run: &|client, round| {
            for n in 0..files {
                let (file, _) = client.open(&format!("files-{round}\\file-{n}"), Replace)?;
                client.write(file, 0, &data)?;
                client.close(file)?;
            }
            Ok(())
        },
    };
    let prepare = |client: &mut SmbClient, round| {
        let (dir, _) = client.open(&format!("files-{round}"), MakeDirectory)?;
        client.close(dir)
    };
    beside.compare(&work, prepare, tell)
}

/// Bytes that are neither constant nor regular, so no layer can cut its work short.
fn irregular(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
