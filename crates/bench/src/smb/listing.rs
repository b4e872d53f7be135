//! Listings of a large directory.

use super::client::{OpenPurpose, READ_AND_HANDLE, SmbClient};
use super::protection::Way;
use super::row::SmbRow;
use super::servers::{Beside, MeasuredWork, Ours};
use crate::shared::Testbed;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

const DIR: &str = "listed";
/// Listings of a round.
const TIMES: usize = 20;
/// Times that messages are counted. A renewal may fall into one of them.
const COUNTS: usize = 3;

fn fill(root: &Path, entries: usize) -> io::Result<()> {
    let dir = root.join(DIR);
    fs::create_dir(&dir)?;
    (0..entries).try_for_each(|n| File::create(dir.join(format!("entry {n:06}.txt"))).map(drop))
}

/// Lists a directory of so many entries.
fn list(client: &mut SmbClient, purpose: OpenPurpose, entries: usize) -> io::Result<u32> {
    let (dir, lease) = client.open(DIR, purpose)?;
    // Beside the entries there are the directory and the one above.
    let listed = client.list(dir)?;
    client.close(dir)?;
    if listed != entries + 2 {
        return Err(io::Error::other(format!("{listed} entries are listed of {entries}")));
    }
    Ok(lease)
}

/// Lists a directory by both servers.
pub(super) fn beside(beside: &Beside, entries: usize, tell: &mut dyn FnMut(&str)) -> io::Result<SmbRow> {
    tell("making a large directory");
    fill(beside.ours.target.dir(), entries)?;
    fill(&beside.samba.dir, entries)?;
    let run = |client: &mut SmbClient, _| {
        (0..TIMES).try_for_each(|_| list(client, OpenPurpose::List, entries).map(drop))
    };
    let work =
        MeasuredWork { name: format!("listing of {entries}"), units: TIMES, way: Way::Signed, run: &run };
    beside.compare(&work, |_, _| Ok(()), tell)
}

/// Lists a directory twice under a lease, by a machine whose server is another. Returns the
/// messages between the two for the second listing.
pub(super) fn messages(base: &Path, entries: usize, tell: &mut dyn FnMut(&str)) -> io::Result<u64> {
    tell("listing under a directory lease");
    let mut office = Testbed::start(base, 1, Duration::ZERO)?;
    let machine = office.take_machine().ok_or(io::ErrorKind::NotFound)?;
    let ours = Ours::serve(machine)?;
    fill(ours.target.dir(), entries)?;
    ours.target.sync()?;
    let mut client = SmbClient::connect(ours.address, Way::Signed)?;
    let mut least = u64::MAX;
    for _ in 0..COUNTS {
        if list(&mut client, OpenPurpose::ListUnderLease, entries)? != READ_AND_HANDLE {
            return Err(io::Error::other("no directory lease was granted"));
        }
        let before = office.messages()?;
        list(&mut client, OpenPurpose::ListUnderLease, entries)?;
        least = least.min(office.messages()? - before);
    }
    client.log_off()?;
    Ok(least)
}
