//! Parcels: files of shares with their leases, for another store, or for this one later (leasedb,
//! "Next").
//!
//! A parcel is a chain ([`backup::hash_chain`], `LHPARCEL`) of [`ParcelFrame`]s. An imported share
//! is stored as if it were new. It gets a starter lease, unless a key has leased it. It keeps the
//! leases that the cluster's files and keys had on it. Leases of sessions stay behind: an upload
//! that nothing refers to is for its session alone.

use super::unread;
use crate::server::Server;
use admin::{ControlProgress, ControlRefusal, ParcelFault, ParcelReport};
use backup::hash_chain::{self, ChainError};
use bytes::Bytes;
use namespace::ShareId;
use os::private;
use serde::{Deserialize, Serialize};
use share_hosts::ShareHost;
use share_hosts::Shares;
use share_hosts::fetched;
use shares::{AccountId, AccountKey, DatabaseError, NewShare, ShareLease, State, Usage};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use wire::ShareCall;

const MAGIC: &[u8; 8] = b"LHPARCEL";
/// The format that this program writes and reads.
const FORMAT: u32 = 1;
/// How long another host may be silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many shares lie between two reports of progress.
const PROGRESS_EVERY: u64 = 100;

/// A part of a parcel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ParcelFrame {
    /// The next share.
    Share(Parcelled),
    /// The last frame: the number of shares.
    End(u64),
}

/// A share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Parcelled {
    share: [u8; 16],
    /// XXH3 of the body, as the store had it.
    digest: [u8; 16],
    leases: Vec<ShareLeaseRow>,
    body: Vec<u8>,
}

/// A lease on a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ShareLeaseRow {
    holder: Holder,
    renewed_at: u64,
    expires_at: Option<u64>,
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Holder {
    /// The files of the cluster.
    Group,
    /// A key, and the name of its account.
    Key([u8; 32], String),
}

/// Writes these shares (`None`: all that are here) into `file`. The file gets its name once all of
/// it is durable. `of_others` supplies shares that are not here.
pub(super) fn export(
    store: &Shares,
    of_others: impl Fn(&ShareId) -> Option<Bytes>,
    file: &Path,
    which: Option<Vec<ShareId>>,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<ParcelReport, ControlRefusal> {
    let wrong = |error: std::io::Error| wrong(file, &error);
    if file.exists() {
        return Err(ControlRefusal::Exists { file: file.display().to_string() });
    }
    let which = match which {
        Some(which) => which,
        None => stored(store).map_err(unread)?,
    };
    let new = file.with_added_extension("new");
    let out = private::options().write(true).create(true).truncate(true).open(&new);
    let out = BufWriter::with_capacity(1 << 20, out.map_err(wrong)?);
    let mut writer = hash_chain::Writer::new(out, MAGIC, FORMAT).map_err(wrong)?;
    let mut report = ParcelReport { file: file.display().to_string(), ..ParcelReport::default() };
    let holders = holders(store).map_err(unread)?;
    for share in which {
        match parcelled(store, &of_others, &holders, share).map_err(unread)? {
            Some(parcelled) => {
                report.shares += 1;
                report.bytes += parcelled.body.len() as u64;
                report.leases += parcelled.leases.len() as u64;
                writer.frame(&ParcelFrame::Share(parcelled)).map_err(wrong)?;
            }
            None => report.faults.push(ParcelFault::Missing { share: share.to_string() }),
        }
        if report.shares.is_multiple_of(PROGRESS_EVERY) {
            progress(&ControlProgress::Parcelled { shares: report.shares, bytes: report.bytes });
        }
    }
    writer.frame(&ParcelFrame::End(report.shares)).map_err(wrong)?;
    let (mut out, _) = writer.finish().map_err(wrong)?;
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(wrong)?;
    std::fs::rename(&new, file).map_err(wrong)?;
    let dir = file.parent().unwrap_or(Path::new("/"));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(wrong)?;
    Ok(report)
}

fn stored(store: &Shares) -> Result<Vec<ShareId>, DatabaseError> {
    let mut all = Vec::new();
    store.server().for_each_share(|share| {
        all.extend((share.state == State::Stable).then_some(share.id));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// The accounts whose leases are exported.
fn holders(store: &Shares) -> Result<BTreeMap<AccountId, Holder>, DatabaseError> {
    let group = store.group;
    let accounts = store.server().accounts()?.into_iter();
    let holders = accounts.filter_map(|account| match account.key {
        Some(AccountKey(key)) => Some((account.id, Holder::Key(key, account.name))),
        None => (account.id == group).then_some((account.id, Holder::Group)),
    });
    Ok(holders.collect())
}

/// Fetches the share from another host.
pub(super) fn fetch(share_host: &ShareHost, share: &ShareId) -> Option<Bytes> {
    let hosts = share_host.peers().hosts().now();
    let others = hosts.having(share).into_iter().filter(|machine| *machine != share_host.peers().me());
    let mut asked = others.filter_map(|machine| {
        let pending = share_host.peers().call(&hosts, machine, ShareCall::Fetch(*share), Vec::new())?;
        fetched(pending.wait(Some(PATIENCE)).ok()?).ok()
    });
    asked.next()
}

/// Reads a share here, or fetches it from another host.
fn parcelled(
    store: &Shares,
    of_others: &impl Fn(&ShareId) -> Option<Bytes>,
    holders: &BTreeMap<AccountId, Holder>,
    share: ShareId,
) -> Result<Option<Parcelled>, DatabaseError> {
    let (body, digest) = match store.server().whole(&share) {
        Ok(whole) => whole,
        Err(_) => match of_others(&share) {
            Some(body) => (body.to_vec(), shares::digest(&body)),
            None => return Ok(None),
        },
    };
    let leases = store.server().leases_of(&share)?.into_iter().filter_map(|lease| {
        let holder = holders.get(&lease.account)?.clone();
        Some(ShareLeaseRow { holder, renewed_at: lease.renewed_at, expires_at: lease.expires_at })
    });
    Ok(Some(Parcelled { share: share.0, digest, leases: leases.collect(), body }))
}

/// Imports the shares of `file`. Shares that come before a fault in the file stay.
pub(super) fn import(
    server: &Server,
    file: &Path,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<ParcelReport, ControlRefusal> {
    let opened = File::open(file).map_err(|error| wrong(file, &error))?;
    let mut report = ParcelReport { file: file.display().to_string(), ..ParcelReport::default() };
    let mut accounts = BTreeMap::new();
    let mut take = |parcelled: Parcelled| -> Result<(), ControlRefusal> {
        let Parcelled { share, digest, leases, body } = parcelled;
        let share = ShareId(share);
        if shares::digest(&body) != digest {
            report.faults.push(ParcelFault::Damaged { share: share.to_string() });
            return Ok(());
        }
        let mut held = Vec::with_capacity(leases.len());
        for ShareLeaseRow { holder, renewed_at, expires_at } in leases {
            match account(server, &mut accounts, holder)? {
                Ok(account) => held.push(ShareLease { account, renewed_at, expires_at }),
                Err(fault) => report.faults.push(fault),
            }
        }
        let (bytes, leases) = (body.len() as u64, held.len() as u64);
        let new = NewShare { id: share, parts: vec![body.into()] };
        match server.shares().server().bring(new, &held) {
            Ok(()) => {
                report.shares += 1;
                report.bytes += bytes;
                report.leases += leases;
            }
            Err(shares::StoreError::Full) => return Err(ControlRefusal::DiskFull),
            Err(error) => {
                report.faults.push(ParcelFault::Refused { share: share.to_string(), why: error.to_string() });
            }
        }
        if report.shares.is_multiple_of(PROGRESS_EVERY) {
            progress(&ControlProgress::Parcelled { shares: report.shares, bytes: report.bytes });
        }
        Ok(())
    };
    let read = read(BufReader::with_capacity(1 << 20, opened), &mut take);
    // The comparison gives the group a lease on each share that files refer to.
    server.share_host().compare();
    match read {
        Ok(()) => Ok(report),
        Err(ReadError::Chain(error)) if report.shares == 0 => Err(wrong(file, &error)),
        Err(ReadError::Chain(error)) => {
            report.faults.push(ParcelFault::CutOff { why: error.to_string() });
            Ok(report)
        }
        Err(ReadError::Taking(why)) => Err(why),
    }
}

/// The refusal because of an error of the file.
fn wrong(file: &Path, error: &dyn std::error::Error) -> ControlRefusal {
    ControlRefusal::File { file: file.display().to_string(), why: error.to_string() }
}

/// Why a parcel could not be taken in as a whole.
#[derive(Debug)]
enum ReadError {
    Chain(ChainError),
    Taking(ControlRefusal),
}

/// Reads a parcel, one share in memory at a time.
fn read(
    from: impl Read,
    take: &mut dyn FnMut(Parcelled) -> Result<(), ControlRefusal>,
) -> Result<(), ReadError> {
    let mut reader = hash_chain::Reader::new(from, MAGIC, FORMAT).map_err(ReadError::Chain)?;
    let mut count = 0;
    loop {
        match reader.frame().map_err(ReadError::Chain)? {
            ParcelFrame::Share(parcelled) => take(parcelled).map_err(ReadError::Taking)?,
            ParcelFrame::End(shares) if shares == count => return reader.end().map_err(ReadError::Chain),
            ParcelFrame::End(_) => return Err(ReadError::Chain(ChainError::Code)),
        }
        count += 1;
    }
}

/// The account here of the holder there. A key without an account gets one with a quota of zero: it
/// may hold what is brought and nothing more.
fn account(
    server: &Server,
    known: &mut BTreeMap<Vec<u8>, AccountId>,
    holder: Holder,
) -> Result<Result<AccountId, ParcelFault>, ControlRefusal> {
    let (key, name) = match holder {
        Holder::Group => return Ok(Ok(server.shares().group)),
        Holder::Key(key, name) => (key, name),
    };
    if known.is_empty() {
        let accounts = server.shares().server().accounts().map_err(unread)?.into_iter();
        known.extend(accounts.filter_map(|account| Some((account.key?.0.to_vec(), account.id))));
    }
    if let Some(account) = known.get(key.as_slice()) {
        return Ok(Ok(*account));
    }
    let made = server.shares().server().key_account(AccountKey(key), &name, Some(Usage::default()));
    Ok(match made.map_err(unread)? {
        Ok(account) => {
            known.insert(key.to_vec(), account);
            Ok(account)
        }
        Err(why) => Err(ParcelFault::LeaseRefused { name, why: why.to_string() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::backups;
    use admin::AskError;
    use data_dir::DataDir;
    use proptest::prelude::*;
    use std::time::Instant;

    fn shares() -> impl Strategy<Value = Vec<Parcelled>> {
        let holder = prop_oneof![
            Just(Holder::Group),
            (any::<[u8; 32]>(), "[a-z]{1,8}").prop_map(|(key, name)| Holder::Key(key, name)),
        ];
        let lease = (holder, any::<u64>(), any::<Option<u64>>())
            .prop_map(|(holder, renewed_at, expires_at)| ShareLeaseRow { holder, renewed_at, expires_at });
        let leases = prop::collection::vec(lease, 0..3);
        let body = prop::collection::vec(any::<u8>(), 0..80);
        let share = (any::<[u8; 16]>(), leases, body).prop_map(|(share, leases, body)| Parcelled {
            share,
            digest: shares::digest(&body),
            leases,
            body,
        });
        prop::collection::vec(share, 0..4)
    }

    fn written(shares: &[Parcelled]) -> Vec<u8> {
        let mut writer = hash_chain::Writer::new(Vec::new(), MAGIC, FORMAT).unwrap();
        shares.iter().for_each(|share| writer.frame(&ParcelFrame::Share(share.clone())).unwrap());
        writer.frame(&ParcelFrame::End(shares.len() as u64)).unwrap();
        writer.finish().unwrap().0
    }

    fn all(bytes: &[u8]) -> (Vec<Parcelled>, Result<(), ReadError>) {
        let mut taken = Vec::new();
        let read = read(bytes, &mut |share| {
            taken.push(share);
            Ok(())
        });
        (taken, read)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(shares in shares()) {
            let (taken, read) = all(&written(&shares));
            prop_assert!(read.is_ok());
            prop_assert_eq!(taken, shares);
        }

        #[test]
        fn a_byte_that_is_changed_or_missing_or_too_much_is_an_error_and_what_comes_before_it_is_right(
            shares in shares(), at: prop::sample::Index, by in 1..=255u8,
        ) {
            let whole = written(&shares);
            let at = at.index(whole.len());
            let mut flipped = whole.clone();
            flipped[at] ^= by;
            let mut missing = whole.clone();
            missing.remove(at);
            let cut = whole[..at].to_vec();
            let more = [whole, vec![by]].concat();
            for damaged in [flipped, missing, cut, more] {
                let (taken, read) = all(&damaged);
                prop_assert!(read.is_err());
                prop_assert_eq!(&taken[..], &shares[..taken.len()]);
            }
        }

        #[test]
        fn arbitrary_bytes_are_no_parcel(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(all(&bytes).1.is_err());
            prop_assert!(all(&[MAGIC.as_slice(), &FORMAT.to_le_bytes(), &bytes].concat()).1.is_err());
        }
    }

    #[test]
    fn a_machine_that_is_not_up_exports_what_one_that_is_up_does() {
        let dir = tempfile::tempdir().unwrap();
        let (data, parcel) = (dir.path().join("data"), |name: &str| dir.path().join(name));
        let export =
            |name: &str, which: &[String]| crate::export_shares(&data, &parcel(name), which, &mut |_| {});
        let taken = |name: &str| all(&std::fs::read(parcel(name)).unwrap()).0;
        let machine = backups::start(&data);
        ["a", "b", "c"].iter().for_each(|name| backups::write(&machine, name).unwrap());
        // The group holds them once their publication is settled.
        let settled = |parcelled: &Parcelled| {
            matches!(parcelled.leases.as_slice(), [ShareLeaseRow { holder: Holder::Group, .. }])
        };
        let deadline = Instant::now() + Duration::from_secs(300);
        let up = (0..).map(|n| format!("up-{n}")).find(|name| {
            assert!(Instant::now() < deadline, "hangs: publications are not settled");
            export(name, &[]).unwrap();
            taken(name).iter().all(settled)
        });
        let up = taken(&up.unwrap());
        assert!(!up.is_empty());
        machine.stop().unwrap();
        assert!(export("down", &[]).unwrap().faults.is_empty());
        assert_eq!(taken("down"), up);
        // Shares can be named. Paths cannot: they are rows of the server, which is down.
        export("one", &[ShareId(up[0].share).to_string()]).unwrap();
        assert_eq!(taken("one"), up[..1]);
        let refused = export("path", &["/a".to_owned()]).unwrap_err();
        assert!(matches!(refused, AskError::Refused(ControlRefusal::NoShare { name }) if name == "/a"));
        // Lost shares are reported. Without the database the holders are lost, too.
        let held = DataDir::hold(&data, "a test").unwrap();
        assert!(export("held", &[]).unwrap_err().to_string().contains("in use"));
        drop(held);
        std::fs::remove_file(data.join("shares/leases.sqlite")).unwrap();
        let bodies =
            |parcelled: Vec<Parcelled>| parcelled.into_iter().map(|p| (p.share, p.body)).collect::<Vec<_>>();
        export("found", &[]).unwrap();
        assert_eq!(bodies(taken("found")), bodies(up));
        let machine = backups::start(&data);
        assert!(crate::fsck(&data, &mut |_| {}).unwrap().faults.is_empty());
        machine.stop().unwrap();
    }

    #[test]
    fn a_parcel_of_a_later_format_is_told_from_damage() {
        let mut later = written(&[]);
        later[8] = 9;
        assert!(matches!(all(&later).1, Err(ReadError::Chain(ChainError::Version(9)))));
    }
}
