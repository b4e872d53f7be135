//! Servers of the directory beside the root server: how they come to be, and how each follows the
//! root server. All machines that serve are members of each, by the same numbers.

use crate::error::failed;
use crate::hosted::HostedServer;
use crate::server::Server;
use admin::{ControlProgress, ControlRefusal, RegionMove, RequestWork};
use directory::{DelegateError, FoundError, Input, MoveReason};
use ident::{FileId, ServerId};
use lease::Label;
use raft::{Keeping, Member, wait};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// How long the directory may take to note a new server, and how long that may take to have as many
/// voters as the root server.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a region may take to be handed over. Sessions that work have a minute to release it.
pub(crate) const HANDED_OVER_WITHIN: Duration = Duration::from_secs(180);
/// A member that was not heard of for so long makes no server.
const SILENT: Duration = Duration::from_secs(2);
/// How often it is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// Directories above a file at most, for paths of people.
const DEPTH_MAX: usize = 4096;

/// A number by which the answer to a request is known.
fn drawn() -> Result<u64, ControlRefusal> {
    let mut bytes = [0; 8];
    os::fill_random(&mut bytes).map_err(|error| failed(RequestWork::FoundingServer, &error))?;
    Ok(u64::from_le_bytes(bytes))
}

impl Server {
    /// Makes a server follow the root server: its members, its machines, and its version. This
    /// machine's member leads it.
    pub(crate) fn follow_the_root(&self, hosted: &HostedServer) {
        if !self.group().is_current() {
            return;
        }
        let since = hosted.group().query(|directory, _| directory.registered());
        let registry = self.group().query(|directory, store| {
            (directory.registered() > since).then(|| directory.registry(since, store))
        });
        if let Some(registry) = registry {
            hosted.group().propose(Input::Registry(registry));
        }
        let (version, root) = (hosted.group().version(), self.group().version());
        if version < root {
            hosted.group().propose(Input::Raise { to: version.next() });
        }
        if let Err(error) = self.follow_members(hosted) {
            tracing::warn!(%error, server = hosted.id().0, "the members of a server could not be changed; it is tried again");
        }
    }

    fn follow_members(&self, hosted: &HostedServer) -> Result<(), raft::MembersError> {
        let (root, own) = (self.group().standing().members, hosted.group().standing().members);
        let stays = |member: &&Member| member.host.keeping != Keeping::Drains;
        let missing = |member: &&Member| !own.iter().any(|it| it.id == member.id && it.host == member.host);
        for member in root.iter().filter(stays).filter(missing) {
            wait(hosted.group().set_member(member.id, member.host.clone()))?;
        }
        let leaves = |member: &&Member| !root.iter().filter(stays).any(|it| it.id == member.id);
        for member in own.iter().filter(leaves).filter(|_| !root.is_empty()) {
            if member.id == hosted.group().member() {
                // The next leader removes this member.
                drop(hosted.group().hand_over());
                return Ok(());
            }
            wait(hosted.group().remove_member(member.id))?;
        }
        wait(hosted.group().settle_voters())
    }

    /// Whether no server beside the root server has a member on the machines of `members`, as far
    /// as this machine's replicas know.
    pub(crate) fn is_left_by(&self, members: &[u64]) -> bool {
        let has = |hosted: &HostedServer| {
            hosted.group().standing().members.iter().any(|member| members.contains(&member.id))
        };
        !self.all_hosted().iter().any(|hosted| !hosted.is_root() && has(hosted))
    }

    /// Makes another server of the directory. Blocks until it has as many voters as the root
    /// server.
    fn found(&self, progress: &mut dyn FnMut(&ControlProgress)) -> Result<ServerId, ControlRefusal> {
        let (tell, told) = sync_channel(1);
        let number = drawn()?;
        self.waiting().lock().founded.insert(number, tell);
        self.group().propose(Input::Found { number, founder: self.next_founder() });
        let founded = told
            .recv_timeout(TIMEOUT)
            .map_err(|_| ControlRefusal::DirectorySilent { within_s: TIMEOUT.as_secs() })?;
        let id = founded.map_err(|error: FoundError| failed(RequestWork::FoundingServer, &error))?;
        progress(&ControlProgress::ServerFounded { server: id.0 });
        let begun = Instant::now();
        while !self.is_safe(id) {
            if begun.elapsed() > TIMEOUT || self.is_stopping() {
                return Err(ControlRefusal::ServerNotReady { server: id.0 });
            }
            std::thread::sleep(LOOK);
        }
        Ok(id)
    }

    /// The member that makes the next server, and leads it at first: each in its turn, of those
    /// that are up.
    fn next_founder(&self) -> u64 {
        let standing = self.group().standing();
        let is_up = |member: &&Member| {
            let heard = member.heard.is_some_and(|at| at.elapsed() < SILENT);
            member.votes && (heard || member.id == self.group().member())
        };
        let up: Vec<u64> = standing.members.iter().filter(is_up).map(|member| member.id).collect();
        let next = self.group().query(|directory, store| directory.servers(store).len()) + 1;
        up.get(next % up.len().max(1)).copied().unwrap_or(self.group().member())
    }

    /// Whether the server `id` has a leader, and as many voters as the root server.
    pub(crate) fn is_safe(&self, id: ServerId) -> bool {
        let voters = |members: &[Member]| members.iter().filter(|member| member.votes).count();
        let root = voters(&self.group().standing().members);
        self.hosted(id).is_some_and(|hosted| {
            let standing = hosted.group().standing();
            standing.leader.is_some() && voters(&standing.members) >= root
        })
    }

    /// Hands the region that begins at `path` over to a server, or to a new one, and pins it there
    /// if it is to stay. Blocks until the region is there. This machine's member of the root server
    /// leads.
    pub(crate) fn delegate(
        &self,
        path: &str,
        to: Option<u16>,
        pinned: bool,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<RegionMove, ControlRefusal> {
        let region = self.resolve(path.as_bytes());
        let region = region.ok_or_else(|| ControlRefusal::NoFile { path: path.to_owned() })?;
        let to = match to {
            Some(number) if self.hosted(ServerId(number)).is_none() => {
                return Err(ControlRefusal::NoSuchServer { server: number });
            }
            Some(number) => ServerId(number),
            None => self.found(progress)?,
        };
        if !self.is_safe(to) {
            return Err(ControlRefusal::ServerNotReady { server: to.0 });
        }
        let from = self.manager(&region).ok_or_else(|| ControlRefusal::NoFile { path: path.to_owned() })?;
        let from = from.id();
        self.move_region(path, &region, (from, to), progress)?;
        self.note_move(&region, to, MoveReason::Asked);
        if pinned {
            self.set_pin(&region, true)?;
        }
        Ok(RegionMove { path: path.to_owned(), region: region.to_string(), from: from.0, to: to.0, pinned })
    }

    /// Hands a region, which begins at `path`, over from one server to another. Blocks until it is
    /// there.
    pub(crate) fn move_region(
        &self,
        path: &str,
        region: &FileId,
        (from, to): (ServerId, ServerId),
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<(), ControlRefusal> {
        let server = self.hosted(from).ok_or(ControlRefusal::NoSuchServer { server: from.0 })?;
        let refused = |error: DelegateError| failed(RequestWork::Delegating, &error);
        let may = server.group().query(|directory, store| directory.may_delegate(store, region, to));
        may.map_err(refused)?;
        progress(&ControlProgress::Delegating { region: region.to_string(), from: from.0, to: to.0 });
        let (tell, told) = sync_channel(1);
        self.waiting().lock().delegated.insert(region.clone(), tell);
        server.group().pass_on(Input::Delegate { region: region.clone(), to });
        // Each replica hears the result, whichever member leads.
        let left = told.recv_timeout(HANDED_OVER_WITHIN);
        self.waiting().lock().delegated.remove(region);
        left.map_err(|_| ControlRefusal::RegionStays { path: path.to_owned() })?.map_err(refused)?;
        let begun = Instant::now();
        while self.manager(region).is_none_or(|hosted| hosted.id() != to) {
            if begun.elapsed() > TIMEOUT || self.is_stopping() {
                return Err(ControlRefusal::ServerNotReady { server: to.0 });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The server that manages `file`, as far as this machine's replicas know.
    pub(crate) fn manager(&self, file: &FileId) -> Option<Arc<HostedServer>> {
        let (mut at, mut asked) = (self.root().clone(), Vec::new());
        loop {
            let next = at.group().query(|directory, _| directory.server_of(file));
            if next == at.id() {
                return Some(at);
            }
            // A region on its way may make two servers name each other.
            asked.push(at.id());
            at = self.hosted(next).filter(|_| !asked.contains(&next))?;
        }
    }

    /// The file at this path from the root, whichever servers manage the directories of the path.
    pub(crate) fn resolve(&self, path: &[u8]) -> Option<FileId> {
        let mut at = FileId::root();
        for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            let manager = self.manager(&at)?;
            at = match name {
                b".." => self.parent(&at).map_or_else(FileId::root, |(dir, _)| dir),
                name => manager.group().query(|directory, store| directory.child(store, &at, name))?,
            };
        }
        Some(at)
    }

    pub(crate) fn parent(&self, file: &FileId) -> Option<(FileId, Label)> {
        self.manager(file)?.group().query(|directory, store| directory.link(store, file))
    }

    /// The path of a file from the root. It begins at the identifier if the file has no path.
    pub(crate) fn path(&self, file: &FileId) -> String {
        let (mut labels, mut at) = (Vec::new(), file.clone());
        while at != FileId::root() {
            let Some((dir, label)) = self.parent(&at).filter(|_| labels.len() < DEPTH_MAX) else { break };
            labels.push(label);
            at = dir;
        }
        let from = if at == FileId::root() { String::new() } else { at.to_string() };
        if labels.is_empty() && from.is_empty() {
            return "/".to_owned();
        }
        labels.iter().rev().fold(from, |path, label| path + "/" + &String::from_utf8_lossy(label.as_bytes()))
    }
}
