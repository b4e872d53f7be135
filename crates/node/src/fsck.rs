//! Checks everything: the server's state, each piece of content against its hash, the leases of
//! shares.
//!
//! A file system in use changes during the check. The server's state is checked as of one moment.
//! Any fault beyond it is checked a second time, and only faults seen both times are reported.

use crate::server::Server;
use admin::{ControlProgress, FsckFault, FsckReport};
use content::TAG_BYTES;
use directory::{Inspector, OuterEdge, Violation};
use namespace::{ContentHead, Extent, Place, ShareId, Spread};
use share_hosts::uploader;
use share_hosts::whole;
use shares::AccountId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The pause between looks at suspects.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Content on its way at the first look has arrived by then, and departed sessions are swept, on a
/// slow machine too. A fault is there at the last look as well. Each look walks the whole tree, so
/// a large one gets the second look and no more.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);
/// Pieces between two reports of progress.
const PROGRESS_EVERY: usize = 1_000;

/// The faults that concern one share, by share.
type Suspects = BTreeMap<ShareId, FsckFault>;
/// Length and hash of each piece of each share, by its place.
type Pieces = BTreeMap<ShareId, BTreeMap<u32, (u32, [u8; 32])>>;

/// Collects pieces, edges and faults from the servers' states.
struct CheckedTree<'a> {
    pieces: Pieces,
    /// Labels of one server with files at another, and links of one with directories at another.
    labels: BTreeSet<OuterEdge>,
    links: BTreeSet<OuterEdge>,
    /// The rows of the servers before this one.
    rows_before: u64,
    report: &'a mut FsckReport,
    faults: Vec<FsckFault>,
    progress: &'a mut dyn FnMut(&ControlProgress),
}

impl Inspector for CheckedTree<'_> {
    fn rows(&mut self, rows: u64) {
        self.report.rows = self.rows_before + rows;
        (self.progress)(&ControlProgress::CheckedRows { rows: self.report.rows });
    }

    fn extent(&mut self, extent: &Extent) {
        let piece = &extent.piece;
        match &piece.place {
            Place::Share { share, at } => {
                self.pieces.entry(*share).or_default().insert(*at, (piece.length, piece.hash));
            }
            Place::Inline(bytes) => {
                self.report.pieces += 1;
                self.report.bytes += bytes.len() as u64;
                if *crypto::hash(bytes).as_bytes() != piece.hash {
                    self.faults.push(FsckFault::InlinePiece { bytes: bytes.len() });
                }
            }
        }
    }

    fn inline(&mut self, head: &ContentHead, sealed: &[u8]) {
        self.report.pieces += 1;
        self.report.bytes += sealed.len() as u64;
        if let Err(why) = content::open_whole(head.key.as_ref(), sealed) {
            self.faults.push(FsckFault::InlineContent { bytes: head.size, why: why.to_string() });
        }
    }

    fn outer_label(&mut self, edge: OuterEdge) {
        self.labels.insert(edge);
    }

    fn outer_link(&mut self, edge: OuterEdge) {
        self.links.insert(edge);
    }

    fn violation(&mut self, violation: Violation) {
        self.faults.push(FsckFault::Rows { why: violation.to_string() });
    }
}

/// Checks everything that `server` has.
pub(crate) fn run(server: &Server, progress: &mut dyn FnMut(&ControlProgress)) -> FsckReport {
    let mut report = FsckReport::default();
    let Looked { faults, mut suspects, mut edges } = look(server, None, &mut report, progress);
    report.faults.extend(faults);
    let began = Instant::now();
    let mut looks = 1;
    while !(suspects.is_empty() && edges.is_empty()) && (looks == 1 || began.elapsed() < SETTLES_WITHIN) {
        looks += 1;
        std::thread::sleep(LOOK_AGAIN_AFTER);
        let again: BTreeSet<ShareId> = suspects.keys().copied().collect();
        let now = look(server, Some(&again), &mut FsckReport::default(), progress);
        suspects = now.suspects.into_iter().filter(|(share, _)| again.contains(share)).collect();
        edges.retain(|edge| now.edges.contains(edge));
    }
    let of_edge = |edge: Violation| FsckFault::Rows { why: edge.to_string() };
    report.faults.extend(edges.into_iter().map(of_edge));
    report.faults.extend(suspects.into_values());
    report
}

/// The result of a look.
struct Looked {
    /// Faults of a server's state.
    faults: Vec<FsckFault>,
    suspects: Suspects,
    /// Edges between files of two servers that only one of the two knows. Their states are not of
    /// one moment.
    edges: Vec<Violation>,
}

/// One look: faults of the servers' states, and suspects among shares and edges. With `only`, the
/// look reads content of these shares alone.
fn look(
    server: &Server,
    only: Option<&BTreeSet<ShareId>>,
    report: &mut FsckReport,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Looked {
    let (labels, links) = Default::default();
    let (pieces, faults) = Default::default();
    let mut tree = CheckedTree { pieces, labels, links, rows_before: 0, report, faults, progress };
    for hosted in server.all_hosted() {
        hosted.group().query(|directory, store| directory.check(store, &mut tree));
        tree.rows_before = tree.report.rows;
    }
    let CheckedTree { pieces, labels, links, report, mut faults, progress, .. } = tree;
    let lacks_link = labels.difference(&links).cloned();
    let lacks_link =
        lacks_link.map(|OuterEdge { dir, label, file }| Violation::DanglingLabel { dir, label, file });
    let lacks_label = links.difference(&labels).cloned();
    let lacks_label =
        lacks_label.map(|OuterEdge { dir, label, file }| Violation::DanglingLink { file, dir, label });
    let edges = lacks_link.chain(lacks_label).collect();
    report.shares = pieces.len();
    let mut suspects = Suspects::new();
    let (hosts, me) = (server.share_host().peers().hosts().now(), server.share_host().peers().me());
    for (share, pieces) in &pieces {
        // Each host's copies and fragments are its own to check.
        let here: Vec<ShareId> = share.kept_as().filter(|kept| hosts.placed(kept).contains(&me)).collect();
        if only.is_some_and(|only| !only.contains(share)) || here.is_empty() {
            continue;
        }
        let mut look = ContentCheck { server, report, progress };
        let fault = look.fault(share, &here, pieces);
        let fault = fault.or_else(|| here.iter().find_map(|kept| lease_fault(server, *kept)));
        suspects.extend(fault.map(|fault| (*share, fault)));
    }
    unreferenced(server, &pieces, &mut suspects, &mut faults);
    Looked { faults, suspects, edges }
}

/// The check of content.
struct ContentCheck<'a> {
    server: &'a Server,
    report: &'a mut FsckReport,
    progress: &'a mut dyn FnMut(&ControlProgress),
}

impl ContentCheck<'_> {
    /// The fault of the copies and fragments kept `here` of a share. The host of the first fragment
    /// puts the share together and checks its pieces.
    fn fault(
        &mut self,
        share: &ShareId,
        here: &[ShareId],
        pieces: &BTreeMap<u32, (u32, [u8; 32])>,
    ) -> Option<FsckFault> {
        let shares = self.server.shares().server();
        if !matches!(share.spread(), Spread::Code { .. }) {
            let read = |at, length| shares.read(share, at, length).map_err(|error| error.to_string());
            return self.pieces_fault(share, pieces, read);
        }
        let damaged = |fragment: &ShareId| {
            let error = shares.verify(fragment).err()?;
            Some(FsckFault::Fragment { share: fragment.to_string(), why: error.to_string() })
        };
        here.iter().find_map(damaged).or_else(|| {
            here.iter().find(|fragment| fragment.number() == Some(0))?;
            let whole = match whole(self.server.share_host(), *share) {
                Ok(whole) => whole,
                Err(error) => {
                    return Some(FsckFault::Share { share: share.to_string(), why: error.to_string() });
                }
            };
            let read = |at: u32, length: u32| {
                let part = whole.get(at as usize..).and_then(|rest| rest.get(..length as usize));
                part.map(<[u8]>::to_vec).ok_or_else(|| "the share ends before".to_owned())
            };
            self.pieces_fault(share, pieces, read)
        })
    }

    fn pieces_fault(
        &mut self,
        share: &ShareId,
        pieces: &BTreeMap<u32, (u32, [u8; 32])>,
        read: impl Fn(u32, u32) -> Result<Vec<u8>, String>,
    ) -> Option<FsckFault> {
        for (at, (length, hash)) in pieces {
            self.report.pieces += 1;
            self.report.bytes += u64::from(*length);
            if self.report.pieces.is_multiple_of(PROGRESS_EVERY) {
                let FsckReport { pieces, bytes, .. } = *self.report;
                (self.progress)(&ControlProgress::CheckedContent { pieces, bytes });
            }
            match read(*at, length + TAG_BYTES as u32) {
                Ok(bytes) if crypto::hash(&bytes).as_bytes() == hash => {}
                Ok(_) => return Some(FsckFault::PieceDamaged { share: share.to_string(), at: *at }),
                Err(why) => return Some(FsckFault::PieceUnread { share: share.to_string(), at: *at, why }),
            }
        }
        None
    }
}

/// The fault of a referenced share's leases. The server's account must hold a lease, or the
/// machine's account while its adoption is under way.
fn lease_fault(server: &Server, kept: ShareId) -> Option<FsckFault> {
    let share = kept.to_string();
    match server.shares().server().leases_of(&kept) {
        Ok(leases) if leases.iter().any(|lease| lease.account == server.shares().group) => None,
        Ok(_) => Some(FsckFault::Unleased { share }),
        Err(error) => Some(FsckFault::LeasesUnread { share, why: error.to_string() }),
    }
}

/// Finds shares that are kept although nothing refers to them.
fn unreferenced(server: &Server, pieces: &Pieces, suspects: &mut Suspects, faults: &mut Vec<FsckFault>) {
    // Three kinds of shares need no reference. The share server keeps found shares without a known
    // owner for a while. Shares leased by keys do not belong to the file system. A session may
    // still publish the shares that it has uploaded; otherwise they go with the session.
    let accounts = match server.shares().server().accounts() {
        Ok(accounts) => accounts,
        Err(error) => return faults.push(FsckFault::SharesUnlisted { why: error.to_string() }),
    };
    let may_publish = |(machine, session)| !server.is_over(machine, session);
    let others = accounts.iter().filter(|a| a.key.is_some() || uploader(&a.name).is_some_and(may_publish));
    let others: BTreeSet<AccountId> = others.map(|account| account.id).collect();
    let is_wanted = |share: &ShareId| {
        let leases = server.shares().server().leases_of(share);
        let is_ours = |account| account != AccountId::STARTER && !others.contains(&account);
        leases.is_ok_and(|leases| leases.iter().any(|lease| is_ours(lease.account)))
    };
    let listed = server.shares().server().for_each_share(|share| {
        let stable = share.state == shares::State::Stable;
        if stable && share.leases > 0 && !pieces.contains_key(&share.id.whole()) && is_wanted(&share.id) {
            suspects.insert(share.id, FsckFault::Unreferenced { share: share.id.to_string() });
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = listed {
        faults.push(FsckFault::SharesUnlisted { why: error.to_string() });
    }
}
