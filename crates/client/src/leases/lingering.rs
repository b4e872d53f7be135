//! Files that have lost their last name and are still known to a front door.
//!
//! For one call on a path a kernel makes two requests: it looks up the name, then asks about the
//! file. Between the two, this machine or another may replace the file. The second request still
//! has to work, as on a local disk. So such a file lingers: this client has it open for a while.
//! The front door's report that the file is forgotten ends that. If another machine takes the name,
//! the file lingers for as long as the kernel may need to come back.

use crate::calls::{Caller, Waiting};
use crate::client::Client;
use crate::knowledge::{LOOKED_UP_MS, LookedUp};
use crate::leases::lingering_files::Until;
use crate::server::ServerId;
use crate::{Call, Now, Output, call};
use ident::FileId;
use lease::{Field, Kind, Lease, OpenModes, Released, Time};
use namespace::{Effect, Entry, FileKind, Knowledge, Known, Link, Operation, Verdict, fold, operation};
use std::collections::BTreeSet;

/// A handle that keeps a file open and does nothing else.
const HANDLE: OpenModes = OpenModes::posix(false, false);

impl Client {
    /// Makes files linger from now on. Front doors cache answers, and report when they have
    /// forgotten a lingering file ([`crate::Input::Forgotten`]).
    pub fn has_below(&mut self) {
        self.is_handed_out = true;
    }

    /// Notes that a lookup is about to answer with `entry`, and that the kernel comes back for the
    /// file.
    ///
    /// Returns the lease that lets this client have the file open until then, if the client does
    /// not hold it. A directory needs none. It is not removed between two requests unless it is
    /// empty, and requests on a removed one are answered from its last state.
    pub(crate) fn look_up(&mut self, now: Now, entry: &Entry) -> Option<Lease> {
        if !self.is_handed_out || entry.kind == FileKind::Directory {
            return None;
        }
        let known = self.files.get_mut(&entry.file)?;
        if !known.own().has(&Field::Handles) && !known.covers(&Field::Handles, Kind::Touch) {
            return Some(Lease::new(entry.file.clone(), Field::Handles, Kind::Touch));
        }
        known.looked_up = LookedUp::at(now.time);
        None
    }

    /// Makes recently looked-up files linger when a recall asks whether this client has them open.
    /// Another machine may be about to remove them.
    pub(crate) fn linger_if_looked_up(&mut self, now: Now, recalled: &[Released]) {
        for Released { file, field, keep } in recalled {
            if *field != Field::Handles || keep.is_some_and(|kept| kept.covers(Kind::Touch)) {
                continue;
            }
            let Some(known) = self.files.get(file) else { continue };
            let is_wanted = known.looked_up.is_recent(now.time) || self.is_waited_for(file);
            if known.covers(&Field::Handles, Kind::Touch) && is_wanted {
                self.linger_for_a_while(now, file);
            }
        }
    }

    /// Whether a program here may be about to use a file whose handles the server wishes for, and
    /// not to learn of it if the file goes. The kernel has a name of the file, or had one until
    /// just now. All names in the directories `going` go together with the handles.
    pub(crate) fn may_be_used(&self, now: Now, wished: &Released, going: &BTreeSet<FileId>) -> bool {
        let Released { file, field, keep } = wished;
        if *field != Field::Handles || keep.is_some_and(|kept| kept.covers(Kind::Touch)) {
            return false;
        }
        let has_name = |link: &Link| {
            !going.contains(&link.dir)
                && self.files.holds(&link.dir, &Field::Child(fold(&link.label)), Kind::Read)
        };
        let Known::Used(links) = self.files.links(file, Kind::Read) else { return true };
        let was_looked_up = self.files.get(file).is_some_and(|known| known.looked_up.is_recent(now.time));
        was_looked_up || links.iter().any(has_name) || self.is_waited_for(file)
    }

    /// Whether a waiting call is on `file`, by whatever name it was found. The call is to be
    /// answered from that file, however long it takes.
    pub(crate) fn is_waited_for(&self, file: &FileId) -> bool {
        self.calls.iter().any(|(_, waiting)| match &waiting.call {
            Call::Stat(call::Stat { file: of })
            | Call::Glance(call::Glance { file: of })
            | Call::Peek(call::Peek { file: of })
            | Call::Access(call::Access { file: of, .. })
            | Call::ReadLink(call::ReadLink { file: of })
            | Call::Link(call::Link { file: of, .. })
            | Call::SetAttributes(call::SetAttributes { file: of, .. })
            | Call::OpenFile(call::OpenFile { file: of, .. })
            | Call::GetXattr(call::GetXattr { file: of, .. })
            | Call::ListXattrs(call::ListXattrs { file: of })
            | Call::SetXattr(call::SetXattr { file: of, .. })
            | Call::RemoveXattr(call::RemoveXattr { file: of, .. }) => of == file,
            _ => false,
        })
    }

    /// Makes `file` linger when its last handle is about to be closed. The file may go with the
    /// handle, although another program here has just looked it up.
    pub(crate) fn linger_if_left(&mut self, now: Now, file: &FileId) {
        let Some(known) = self.files.get(file) else { return };
        let has_name = known.attributes.is_some_and(|attributes| attributes.links > 0);
        if !has_name && known.looked_up.is_recent(now.time) {
            self.linger_for_a_while(now, file);
        }
    }

    fn linger_for_a_while(&mut self, now: Now, file: &FileId) {
        let Some(known) = self.files.get_mut(file).filter(|known| !known.gone) else { return };
        if self.is_handed_out && !self.lingering.0.contains_key(file) {
            known.add_handle(HANDLE);
            self.lingering.0.insert(file.clone(), Until::Time(now.time.after_ms(LOOKED_UP_MS)));
        }
    }

    /// The file that lingers if an operation decided here takes its last name. The kernel holds
    /// removed files, and files that its other threads have just found.
    ///
    /// Without the leases to have the file open, the file does not linger. A thread that finds it
    /// gone looks its name up once more.
    pub(crate) fn would_linger(&self, entry: &Known<Entry>) -> Option<FileId> {
        let Known::Used(entry) = entry else { return None };
        let known = self.files.get(&entry.file).filter(|_| self.is_handed_out)?;
        let lingers = entry.kind != FileKind::Directory
            && known.attributes.is_some_and(|attributes| attributes.links == 1)
            && !self.lingering.0.contains_key(&entry.file)
            && known.covers(&Field::Handles, Kind::Touch);
        lingers.then(|| entry.file.clone())
    }

    /// Makes `file` linger: the last entry of this server's log has taken its last name.
    pub(crate) fn lingers(&mut self, server: ServerId, file: &FileId) {
        if let Some(known) = self.files.get_mut(file) {
            known.add_handle(HANDLE);
            let removed = self.servers.get(server).log.last();
            self.lingering.0.insert(file.clone(), Until::Forgotten { server, removed });
        }
    }

    /// Ends the lingering of files that front doors have forgotten.
    pub(crate) fn on_forgotten(&mut self, now: Now, files: Vec<FileId>, out: &mut Vec<Output>) {
        for file in files {
            if let Some(until) = self.lingering.0.remove(&file) {
                let died = match until {
                    Until::Forgotten { server, removed } => self.dies_as_removed(&file, server, removed),
                    Until::Time(_) => false,
                };
                if !died {
                    self.ends_lingering(now, file, out);
                }
            }
        }
    }

    /// Ends the lingering of files that are due.
    pub(crate) fn end_lingering(&mut self, now: Now, out: &mut Vec<Output>) {
        let is_due = |until: &Until| matches!(until, Until::Time(until) if now.time >= *until);
        let due = self.lingering.0.iter().filter(|(_, until)| is_due(until));
        let mut due: Vec<FileId> = due.map(|(file, _)| file.clone()).collect();
        due.sort();
        for file in due {
            if self.is_waited_for(&file) {
                let later = Until::Time(now.time.after_ms(LOOKED_UP_MS / 2));
                self.lingering.0.insert(file, later);
            } else {
                self.lingering.0.remove(&file);
                self.ends_lingering(now, file, out);
            }
        }
    }

    /// When the first lingering file is due.
    pub(crate) fn lingering_deadline(&self) -> Option<Time> {
        let times = self.lingering.0.values().filter_map(|until| match until {
            Until::Time(until) => Some(*until),
            Until::Forgotten { .. } => None,
        });
        times.min()
    }

    /// Ends all lingering at the end of a session.
    pub(crate) fn forget_lingering(&mut self, server: ServerId) {
        let over = self.lingering.0.keys().filter(|file| self.server_of(file) == server);
        for file in over.cloned().collect::<Vec<FileId>>() {
            self.lingering.0.remove(&file);
            if let Some(known) = self.files.get_mut(&file) {
                known.remove_handle(HANDLE);
            }
        }
    }

    fn ends_lingering(&mut self, now: Now, file: FileId, out: &mut Vec<Output>) {
        let waiting = Waiting::own(now, Caller::Client, Call::Close(call::Close { file, open: HANDLE }));
        let ticket = self.calls.ticket();
        self.go_on(now, ticket, waiting, out);
    }

    /// Lets a forgotten file die with its last name, if its removal is still unsent. Nearly always
    /// the kernel forgets a file at once, before the log goes to the server. Then the server never
    /// learns that the file lingered.
    fn dies_as_removed(&mut self, file: &FileId, server: ServerId, removed: u64) -> bool {
        let known = self.files.get(file);
        let only = known.and_then(|known| known.handles.as_deref()).is_some_and(|all| all.is_only(HANDLE));
        let is_death = |verdict: Verdict| match verdict {
            Verdict::Done { effects, .. } => {
                matches!(&effects[..], [Effect::Death { file: dead }] if dead == file)
            }
            _ => false,
        };
        let disposes =
            Operation::Dispose(operation::Dispose { file: file.clone(), time: Default::default() });
        if !only
            || self.servers.any_shipped()
            || !is_death(namespace::decide(&disposes, &self.files))
            || !self.servers.get_mut(server).log.removes_at_once(removed, file)
        {
            return false;
        }
        if let Some(known) = self.files.get_mut(file) {
            known.remove_handle(HANDLE);
        }
        self.files.apply(&Effect::Death { file: file.clone() }, true);
        self.bury(server, removed, file);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, empty, opened};
    use crate::{Input, Outcome, Output, Reply, Settings};
    use lease::Label;
    use namespace::{Cred, Error};
    use wire::{FileGrant, LogEntry, ToClient, ToServer};

    fn label(name: &str) -> Label {
        Label::new(name.as_bytes()).unwrap()
    }

    /// A client that holds everything and has a front door with a cache. Also the root, and the
    /// file `x` in it.
    fn client() -> (Client, FileId, FileId) {
        let (dir, file) = (FileId::root(), FileId::root().child(7));
        let mut client = Client::new(Settings::new([0; 32]));
        let mut out = Vec::new();
        client.has_below();
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let whole = |of: &FileId| FileGrant { whole: true, fields: Vec::new(), ..empty(of) };
        let (mut above, mut below) = (whole(&dir), whole(&file));
        let entry = Entry { file: file.clone(), kind: FileKind::Regular, ino: 4, position: 3 };
        above.values.children.push((label("x"), entry));
        above.values.times = Some(namespace::Times::default());
        below.values.attributes.as_mut().unwrap().kind = FileKind::Regular;
        below.values.content = Some(namespace::ContentHead::default());
        let granted = ToClient::Granted { number: 0, grants: vec![above, below], gone: Vec::new() };
        client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
        (client, dir, file)
    }

    fn call(client: &mut Client, ms: u64, call: Call) -> Result<Reply, Error> {
        match client.call(at(ms), &Cred::default(), call, &mut Vec::new()) {
            Outcome::Done(result) => result,
            Outcome::Waiting(ticket) => panic!("{ticket:?} waits"),
        }
    }

    fn looks_up(client: &mut Client, ms: u64, dir: &FileId) {
        let found = call(client, ms, Call::Lookup(call::Lookup { dir: dir.clone(), label: label("x") }));
        assert!(matches!(found, Ok(Reply::Node(..))), "{found:?}");
    }

    fn unlinks(client: &mut Client, dir: &FileId) -> Result<Reply, Error> {
        call(
            client,
            2,
            Call::Unlink(call::Unlink {
                dir: dir.clone(),
                label: label("x"),
                directory: false,
                pending: None,
            }),
        )
    }

    /// The entries in the log, once all of it is sent.
    fn logged(client: &mut Client, ms: u64) -> Vec<LogEntry> {
        let mut out = Vec::new();
        client.handle(at(ms), Input::Tick, &mut out);
        client.flush_logs(&mut out);
        let entries = out.into_iter().filter_map(|output| match output {
            Output::Send(_, ToServer::Log { entries, .. }) => Some(entries),
            _ => None,
        });
        entries.flatten().collect()
    }

    #[test]
    fn what_was_removed_here_can_be_opened_until_the_kernel_has_forgotten_it() {
        let (mut client, dir, file) = client();
        assert!(matches!(unlinks(&mut client, &dir), Ok(Reply::Lingers(gone)) if gone == file));
        let stat = call(&mut client, 3, Call::Stat(call::Stat { file: file.clone() }));
        assert!(matches!(stat, Ok(Reply::Stat(stat)) if stat.attributes.links == 0));
        let open = Call::OpenFile(call::OpenFile {
            file: file.clone(),
            open: OpenModes::posix(true, true),
            mask: 6,
        });
        assert!(matches!(call(&mut client, 3, open), Ok(Reply::Opened { .. })));
        client.handle(at(4), Input::Forgotten(vec![file.clone()]), &mut Vec::new());
        let close = Call::Close(call::Close { file: file.clone(), open: OpenModes::posix(true, true) });
        assert!(call(&mut client, 5, close).is_ok());
        assert_eq!(
            call(&mut client, 6, Call::Stat(call::Stat { file: file.clone() })).err(),
            Some(Error::Stale)
        );
        let log = logged(&mut client, 7);
        let [
            LogEntry::Update { operation: Operation::Unlink(operation::Unlink { open: true, .. }), .. },
            LogEntry::Update { operation: Operation::Dispose { .. }, .. },
        ] = &log[..]
        else {
            panic!("{log:?}")
        };
    }

    /// Space that was promised to a file is free once the file has gone, on either machine's
    /// deletion.
    #[test]
    fn what_was_promised_of_a_file_ends_with_it() {
        let allocate = |client: &mut Client, file: &FileId| {
            let what = crate::AllocateMode::Reserve { keep_size: false };
            let all = Call::Allocate(call::Allocate { file: file.clone(), offset: 0, length: 1 << 20, what });
            assert!(call(client, 2, all).is_ok());
            assert_eq!(client.server().promised.bytes(), 1 << 20);
        };
        let ends: [fn(&mut Client, &FileId, &FileId); 4] = [
            |client, dir, file| {
                assert!(unlinks(client, dir).is_ok());
                client.handle(at(4), Input::Forgotten(vec![file.clone()]), &mut Vec::new());
            },
            |client, dir, file| {
                assert!(unlinks(client, dir).is_ok());
                assert!(call(client, 3, Call::Stat(call::Stat { file: file.clone() })).is_ok());
                assert!(!logged(client, 10).is_empty());
                client.handle(at(11), Input::Forgotten(vec![file.clone()]), &mut Vec::new());
            },
            |client, _, file| {
                let gone = ToClient::Granted { number: 0, grants: Vec::new(), gone: vec![file.clone()] };
                client.handle(at(4), Input::Message(ServerId::ROOT, gone), &mut Vec::new());
            },
            |client, _, file| {
                let content = Released { file: file.clone(), field: Field::Content, keep: None };
                let (mut out, recall) =
                    (Vec::new(), ToClient::Recall { leases: vec![content], ahead: Vec::new() });
                client.handle(at(4), Input::Message(ServerId::ROOT, recall), &mut out);
                let revoked = out.iter().find_map(|output| match output {
                    Output::Revoke { number, .. } => Some(*number),
                    _ => None,
                });
                let number = revoked.expect("the kernel has pages");
                client.handle(at(5), Input::Revoked { number, kept: Default::default() }, &mut Vec::new());
            },
        ];
        for (which, end) in ends.iter().enumerate() {
            let (mut client, dir, file) = client();
            client.server_mut().allowance.bytes = 1 << 30;
            allocate(&mut client, &file);
            end(&mut client, &dir, &file);
            assert_eq!(client.server().promised.bytes(), 0, "end {which}");
            assert!(client.server().allowance.bytes > (1 << 30) - (1 << 20), "end {which}");
        }
    }

    #[test]
    fn nobody_hears_of_what_was_forgotten_at_once() {
        for says_more in [false, true] {
            let (mut client, dir, file) = client();
            assert!(unlinks(&mut client, &dir).is_ok());
            if says_more {
                let change =
                    namespace::AttributeChange { mode: Some(0o600), ..namespace::AttributeChange::default() };
                let (size, through_handle) = (None, false);
                let call_ = Call::SetAttributes(call::SetAttributes {
                    file: file.clone(),
                    change,
                    size,
                    through_handle,
                });
                assert!(call(&mut client, 3, call_).is_ok());
            }
            client.handle(at(4), Input::Forgotten(vec![file.clone()]), &mut Vec::new());
            assert_eq!(
                call(&mut client, 6, Call::Stat(call::Stat { file: file.clone() })).err(),
                Some(Error::Stale)
            );
            let log = logged(&mut client, 7);
            let opens = |entry: &LogEntry| match entry {
                LogEntry::Update { operation: Operation::Unlink(operation::Unlink { open, .. }), .. } => {
                    Some(*open)
                }
                _ => None,
            };
            let expected = if says_more { (3, true) } else { (1, false) };
            assert_eq!((log.len(), log.iter().find_map(opens).unwrap()), expected, "{log:?}");
        }
    }

    #[test]
    fn what_was_just_looked_up_is_open_to_who_would_remove_it() {
        for (looked_up, recalled, lingers) in [(10, 20, true), (10, 1_900, true), (10, 5_000, false)] {
            let (mut client, dir, file) = client();
            looks_up(&mut client, looked_up, &dir);
            let leases = vec![Released { file: file.clone(), field: Field::Handles, keep: None }];
            let mut out = Vec::new();
            client.handle(
                at(recalled),
                Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead: Vec::new() }),
                &mut out,
            );
            let own = out.iter().find_map(|output| match output {
                Output::Send(_, ToServer::Log { entries, .. }) => {
                    entries.iter().find_map(|entry| match entry {
                        LogEntry::Return { own, .. } => Some(*own),
                        _ => None,
                    })
                }
                _ => None,
            });
            let expected = if lingers { HANDLE } else { OpenModes::CLOSED };
            assert_eq!(own, Some(expected), "looked up at {looked_up}, recalled at {recalled}");
            // The client requests the lease once more, so it releases the file in time.
            let due = client.deadline().unwrap();
            assert!(!lingers || due <= Time(recalled + LOOKED_UP_MS));
            out.clear();
            client.handle(at(recalled + LOOKED_UP_MS), Input::Tick, &mut out);
            let asks = |output: &Output| match output {
                Output::Send(_, ToServer::Ask { wants, .. }) => {
                    wants.iter().any(|want| want.file == file && want.field == Field::Handles)
                }
                _ => false,
            };
            assert_eq!(out.iter().any(asks), lingers, "{out:?}");
        }
    }

    /// The handles that go to the server when it wishes at `wished` ms for all names of the
    /// directory and for the handles of the file, which was looked up at 10 ms. The front door
    /// keeps the directory, or nothing.
    fn handles_released(wished: u64, keeps_names: bool) -> Vec<OpenModes> {
        let (mut client, dir, file) = client();
        client.files.get_mut(&file).unwrap().links =
            Some([Link { dir: dir.clone(), label: label("x") }].into_iter().collect());
        looks_up(&mut client, 10, &dir);
        let wish = |file: &FileId, field| Released { file: file.clone(), field, keep: None };
        let ahead = vec![wish(&file, Field::Handles), wish(&dir, Field::Children)];
        let mut out = Vec::new();
        client.handle(
            at(wished),
            Input::Message(ServerId::ROOT, ToClient::Recall { leases: Vec::new(), ahead }),
            &mut out,
        );
        let revoked = out.iter().find_map(|output| match output {
            Output::Revoke { number, .. } => Some(*number),
            _ => None,
        });
        let number = revoked.expect("the names go first");
        assert!(client.files.holds(&file, &Field::Handles, Kind::Write), "and the handles go later");
        let kept = BTreeSet::from_iter(keeps_names.then(|| dir.clone()));
        out.clear();
        client.handle(at(wished + 1), Input::Revoked { number, kept }, &mut out);
        let entries = out.into_iter().filter_map(|output| match output {
            Output::Send(_, ToServer::Log { entries, .. }) => Some(entries),
            _ => None,
        });
        let own = |entry: LogEntry| match entry {
            LogEntry::Return { own, .. } => Some(own),
            _ => None,
        };
        entries.flatten().filter_map(own).collect()
    }

    #[test]
    fn handles_that_are_wished_for_go_behind_the_names_and_stay_with_them() {
        assert_eq!(handles_released(5_000, false), [OpenModes::CLOSED], "the kernel has long been back");
        assert_eq!(handles_released(1_900, false), [], "the kernel may come back for the file");
        assert_eq!(handles_released(5_000, true), [], "the kernel has the name");
    }

    /// A client with little room forgets a file only when the kernel can no longer come back for
    /// it. With the leases would go the promise that the file can still be used.
    #[test]
    fn what_was_just_looked_up_is_not_evicted() {
        let (mut client, dir, file) = client();
        looks_up(&mut client, 10, &dir);
        client.settings.files_max = 0;
        let evicted = |client: &mut Client, ms: u64| {
            let mut out = Vec::new();
            for _ in 0..2 {
                client.handle(at(ms), Input::Tick, &mut out);
            }
            let numbers: Vec<u64> = out
                .iter()
                .filter_map(|output| match output {
                    Output::Revoke { number, .. } => Some(*number),
                    _ => None,
                })
                .collect();
            for number in numbers {
                client.handle(at(ms), Input::Revoked { number, kept: Default::default() }, &mut out);
            }
            client.files.get(&file).is_none()
        };
        assert!(!evicted(&mut client, 20));
        assert!(!evicted(&mut client, 1_900));
        assert!(evicted(&mut client, 10_000));
    }

    #[test]
    fn whoever_cannot_have_a_file_open_asks_for_that_before_it_is_told_of_the_file() {
        let (mut client, dir, file) = client();
        let leases = vec![Released { file: file.clone(), field: Field::Handles, keep: None }];
        client.handle(
            at(20),
            Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead: Vec::new() }),
            &mut Vec::new(),
        );
        let mut out = Vec::new();
        let lookup = Call::Lookup(call::Lookup { dir, label: label("x") });
        let outcome = client.call(at(30), &Cred::default(), lookup, &mut out);
        assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
        let asks = |output: &Output| match output {
            Output::Send(_, ToServer::Ask { operation: Operation::Lookup { .. }, wants, .. }) => {
                wants[..] == [Lease::new(file.clone(), Field::Handles, Kind::Touch)]
            }
            _ => false,
        };
        assert!(out.iter().any(asks), "{out:?}");
    }
}
