//! The objects that are open on this machine: their caching leases, their locks, the opens of each,
//! and the acts that wait (`lease::caching`, whose caller this is).

use crate::listed::Listed;
use crate::path::name_of;
use crate::ranges::ByteLocks;
use crate::{BreakSink, StoreError};
use ident::FileId;
use lease::caching::{
    Act, Actor, Break, CachingState, ClientGuid, Clients, Judgement, LeaseHolder, LeaseKey, Object, ObjectId,
    OpenId,
};
use lease::{Label, Time};
use namespace::Link;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of an object: a file or directory, or a named stream of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) file: FileId,
    /// The stream's name, folded.
    pub(crate) stream: Option<String>,
}

impl ObjectKey {
    /// A file's content, or a directory.
    pub(crate) fn of(file: &FileId) -> ObjectKey {
        ObjectKey { file: file.clone(), stream: None }
    }
}

/// An act that waits. It is judged again, and returns true when it waits no longer.
type WaitingAct = Box<dyn FnMut(&mut KnownObject, Time, &mut Vec<Break>) -> bool + Send>;

/// An open object.
pub(crate) struct KnownObject {
    pub(crate) key: ObjectKey,
    pub(crate) caching: Object,
    pub(crate) locks: ByteLocks,
    /// The acts that wait, in the order of their arrival.
    waiters: Vec<WaitingAct>,
    /// Revocations that are under way. Nothing may be taken for covered meanwhile.
    pub(crate) revoking: u32,
    /// Counts the revocations: a cover that was asked for before one does not count after it.
    pub(crate) revoked: u64,
    /// Opens that are under way, and need the object to stay.
    pub(crate) pins: u32,
    /// The deletion disposition is set.
    pub(crate) deleting: Option<Deleting>,
    /// Bytes set aside.
    pub(crate) allocation: u64,
    /// Persistent opens whose clients are away. Nobody else opens the object meanwhile.
    pub(crate) away: BTreeSet<OpenId>,
}

/// A deletion disposition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deleting {
    pub(crate) link: Link,
    /// The parent key of the open that has set it.
    pub(crate) by: Option<LeaseKey>,
    /// The opens that have set it by POSIX' rules: the name goes when one of them closes, whoever
    /// else has the file open.
    pub(crate) unlinks: BTreeSet<OpenId>,
}

/// The table's knowledge of an open.
#[derive(Clone, Debug)]
pub(crate) struct OpenRecord {
    pub(crate) object: ObjectId,
    pub(crate) client: ClientGuid,
    pub(crate) holder: Option<LeaseHolder>,
    /// The name by which it was opened. Renames change it. The root of the machine has none.
    pub(crate) link: Option<Link>,
    /// The stream's name, in its exact case. Renames change it.
    pub(crate) stream: Option<String>,
    /// The directories above it, from the share's root.
    pub(crate) above: Vec<FileId>,
    /// The labels on the way, each in the directory of `above` at the same place.
    pub(crate) labels: Vec<Label>,
    /// The path from the share's root, in names of Windows.
    pub(crate) path: Vec<String>,
}

impl OpenRecord {
    /// The place on its way at which it goes down from `dir` by such a name, into a directory.
    fn below(&self, dir: &FileId, is_it: impl Fn(&Label) -> bool) -> Option<usize> {
        let way = self.above.iter().zip(&self.labels).take(self.above.len().saturating_sub(1));
        way.enumerate().find(|(_, (above, label))| *above == dir && is_it(label)).map(|(at, _)| at)
    }
}

/// All of it.
#[derive(Default)]
pub(crate) struct Table {
    ids: FxHashMap<ObjectKey, ObjectId>,
    pub(crate) objects: BTreeMap<ObjectId, KnownObject>,
    pub(crate) opens: BTreeMap<OpenId, OpenRecord>,
    pub(crate) clients: Clients,
    pub(crate) listed: Listed,
    sinks: FxHashMap<ClientGuid, Arc<dyn BreakSink>>,
    /// Handles that the store has at the client, by file.
    pub(crate) handles: FxHashMap<FileId, u64>,
    /// Breaks were sent that have to be acknowledged. The clock looks at them.
    pub(crate) breaks: bool,
    last: u64,
}

impl Table {
    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Keeps this number for an open of before a restart. No open under way has it.
    pub(crate) fn reserve(&mut self, open: OpenId) {
        self.last = self.last.max(open.0);
    }

    /// The object, if anybody has it open.
    pub(crate) fn id(&self, key: &ObjectKey) -> Option<ObjectId> {
        self.ids.get(key).copied()
    }

    /// The object, which is noted from here on if it was not open.
    pub(crate) fn id_or_new(&mut self, key: &ObjectKey, is_directory: bool) -> ObjectId {
        if let Some(id) = self.id(key) {
            return id;
        }
        let id = ObjectId(self.number());
        let nothing = CachingState::NONE;
        let known = KnownObject {
            key: key.clone(),
            caching: if is_directory { Object::directory(nothing) } else { Object::file(nothing) },
            locks: ByteLocks::default(),
            waiters: Vec::new(),
            revoking: 0,
            revoked: 0,
            pins: 0,
            deleting: None,
            allocation: 0,
            away: BTreeSet::new(),
        };
        self.ids.insert(key.clone(), id);
        self.objects.insert(id, known);
        id
    }

    /// Forgets the object if nobody has it open and nobody waits for it.
    pub(crate) fn forget_unused(&mut self, id: ObjectId) {
        let unused = |known: &KnownObject| {
            !known.caching.is_open() && known.waiters.is_empty() && known.revoking == 0 && known.pins == 0
        };
        if self.objects.get(&id).is_some_and(unused)
            && let Some(known) = self.objects.remove(&id)
        {
            self.ids.remove(&known.key);
            self.listed.forget(id);
        }
    }

    /// The objects of a file: its content, and its streams.
    pub(crate) fn of_file(&self, file: &FileId) -> Vec<ObjectId> {
        self.id(&ObjectKey::of(file)).into_iter().chain(self.streams_of(file)).collect()
    }

    /// The streams of a file that somebody has open.
    pub(crate) fn streams_of(&self, file: &FileId) -> Vec<ObjectId> {
        let is_stream =
            |(_, known): &(&ObjectId, &KnownObject)| known.key.stream.is_some() && known.key.file == *file;
        self.objects.iter().filter(is_stream).map(|(id, _)| *id).collect()
    }

    /// The directories whose listing shows the file, itself among them as `.`.
    pub(crate) fn listings(&self, file: &FileId) -> Vec<ObjectId> {
        let itself = self.id(&ObjectKey::of(file)).filter(|id| self.listed.has(*id));
        self.listed.dirs(file).iter().copied().chain(itself).collect()
    }

    /// The objects that somebody has open by this name.
    pub(crate) fn by_link(&self, link: &Link) -> Vec<ObjectId> {
        let named = self.opens.values().filter(|open| open.link.as_ref() == Some(link));
        let mut found: Vec<ObjectId> = named.map(|open| open.object).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The objects that are open below a directory.
    pub(crate) fn below(&self, dir: &FileId) -> Vec<ObjectId> {
        let below = self.opens.values().filter(|open| open.above.contains(dir));
        let mut found: Vec<ObjectId> = below.map(|open| open.object).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The objects that are open below a directory, which has a name like this: exactly, or as the
    /// fold says.
    pub(crate) fn below_name(&self, dir: &FileId, is_it: impl Fn(&Label) -> bool) -> Vec<ObjectId> {
        let is_below = |open: &&OpenRecord| open.below(dir, &is_it).is_some();
        let mut found: Vec<ObjectId> = self.opens.values().filter(is_below).map(|open| open.object).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Notes the rename of a directory by another front door, for what is open below it.
    pub(crate) fn renamed_beside(&mut self, from: &Link, to: &Link) {
        for open in self.opens.values_mut() {
            let Some(at) = open.below(&from.dir, |label| *label == from.label) else { continue };
            open.labels[at] = to.label.clone();
            if from.dir == to.dir {
                if let (Some(name), Some(part)) = (name_of(&to.label, false), open.path.get_mut(at)) {
                    *part = name;
                }
            } else {
                // The way to the new place is not known from the share's root.
                open.above.splice(..=at, [to.dir.clone()]);
                open.labels.drain(..at);
            }
        }
    }

    /// Sets the address of a client.
    pub(crate) fn connect(&mut self, client: ClientGuid, sink: Option<Arc<dyn BreakSink>>) {
        match sink {
            Some(sink) => _ = self.sinks.insert(client, sink),
            None => _ = self.sinks.remove(&client),
        }
    }

    /// Judges an act that is no open, and breaks what it takes away.
    pub(crate) fn act(&mut self, id: ObjectId, now: Time, act: Act, by: Actor) -> Judgement<()> {
        let Some(known) = self.objects.get_mut(&id) else { return Judgement::Go(()) };
        let mut breaks = Vec::new();
        let judgement = known.caching.act(now, act, by, &mut breaks);
        self.send(id, now, breaks);
        judgement
    }

    /// Judges, now and again after each change, until it need not wait. Then `then` is done, or
    /// what it returns. `judge` is asked with the object's lock held and does not block.
    ///
    /// If the act goes on at once, its result is returned.
    pub(crate) fn judge<T: Send + 'static>(
        &mut self,
        id: ObjectId,
        now: Time,
        mut judge: impl FnMut(&mut KnownObject, Time, &mut Vec<Break>) -> Result<Judgement<T>, StoreError>
        + Send
        + 'static,
        then: impl FnOnce(Result<T, StoreError>) + Send + 'static,
        is_given_up: impl Fn() -> bool + Send + 'static,
    ) -> Judged<T> {
        let Some(known) = self.objects.get_mut(&id) else { return Judged::Gone };
        let mut breaks = Vec::new();
        let first = judge(known, now, &mut breaks);
        let judged = match first {
            Ok(Judgement::Go(value)) => Judged::Done(Ok(value)),
            Err(error) => Judged::Done(Err(error)),
            Ok(Judgement::Waits(_)) => {
                let mut then = Some(then);
                known.waiters.push(Box::new(move |known, now, out| {
                    if is_given_up() {
                        return true;
                    }
                    let result = match judge(known, now, out) {
                        Ok(Judgement::Waits(_)) => return false,
                        Ok(Judgement::Go(value)) => Ok(value),
                        Err(error) => Err(error),
                    };
                    if let Some(then) = then.take() {
                        then(result);
                    }
                    true
                }));
                Judged::Waits
            }
        };
        self.send(id, now, breaks);
        judged
    }

    /// Judges again the acts that wait for the object, first come, first served.
    pub(crate) fn settle(&mut self, id: ObjectId, now: Time) {
        let Some(known) = self.objects.get_mut(&id) else { return };
        let mut breaks = Vec::new();
        let mut waiters = std::mem::take(&mut known.waiters);
        waiters.retain_mut(|waiter| !waiter(known, now, &mut breaks));
        waiters.append(&mut known.waiters);
        known.waiters = waiters;
        self.send(id, now, breaks);
        self.forget_unused(id);
    }

    /// Sends breaks. One that cannot be sent is acknowledged with none in the client's place.
    pub(crate) fn send(&mut self, id: ObjectId, now: Time, breaks: Vec<Break>) {
        let mut due = breaks;
        let mut lost = false;
        while let Some(broken) = due.first().copied() {
            due.remove(0);
            let client = match broken.holder {
                LeaseHolder::Lease(lease) => Some(lease.client),
                LeaseHolder::Oplock(open) => self.opens.get(&open).map(|open| open.client),
            };
            self.breaks |= broken.acknowledge;
            let sink = client.and_then(|client| self.sinks.get(&client));
            if sink.is_some_and(|sink| sink.broken(&broken)) || !broken.acknowledge {
                continue;
            }
            if let Some(known) = self.objects.get_mut(&id) {
                lost |= known.caching.acknowledge(now, broken.holder, CachingState::NONE, &mut due).is_ok();
            }
        }
        if lost {
            self.settle(id, now);
        }
    }

    /// Ends the breaks whose time is over, and returns the time of the next.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Time> {
        let is_due =
            |known: &KnownObject| known.caching.next_deadline().is_some_and(|deadline| deadline <= now);
        let due: Vec<ObjectId> =
            self.objects.iter().filter(|(_, known)| is_due(known)).map(|(id, _)| *id).collect();
        for id in due {
            let expired =
                self.objects.get_mut(&id).map(|known| known.caching.expire(now)).unwrap_or_default();
            tracing::warn!(?expired, "clients have not acknowledged a break in time");
            self.settle(id, now);
        }
        self.objects.values().filter_map(|known| known.caching.next_deadline()).min()
    }

    /// Acknowledges in the place of a client that has no connection any more.
    pub(crate) fn disconnect(&mut self, client: ClientGuid, now: Time) {
        self.connect(client, None);
        let mine = self.opens.values().filter(|open| open.client == client);
        let mut held: Vec<(ObjectId, LeaseHolder)> =
            mine.filter_map(|open| Some((open.object, open.holder?))).collect();
        held.sort_unstable();
        held.dedup();
        for (id, holder) in held {
            let Some(known) = self.objects.get_mut(&id) else { continue };
            if !known.caching.held(holder).is_some_and(|grant| grant.is_breaking) {
                continue;
            }
            let mut breaks = Vec::new();
            if known.caching.acknowledge(now, holder, CachingState::NONE, &mut breaks).is_ok() {
                self.send(id, now, breaks);
                self.settle(id, now);
            }
        }
    }
}

/// The state of an act when it was judged for the first time.
pub(crate) enum Judged<T> {
    /// It is done, or refused.
    Done(Result<T, StoreError>),
    /// It waits.
    Waits,
    /// Nobody has the object open.
    Gone,
}

impl Table {
    /// Ends an open, or one that was under way. Its lease ends with its last.
    pub(crate) fn close(&mut self, object: ObjectId, open: OpenId) {
        let ended = self.objects.get_mut(&object).and_then(|known| known.caching.close(open));
        let holder = self.opens.remove(&open).and_then(|open| open.holder);
        if let Some(LeaseHolder::Lease(lease)) = holder {
            let is_left = self.opens.values().any(|open| open.holder == holder && open.object == object);
            if ended.is_some() || !is_left {
                self.clients.unbind(lease, object);
            }
        }
        if let Some(known) = self.objects.get_mut(&object) {
            known.away.remove(&open);
        }
        if let Some(known) = self.objects.get_mut(&object).filter(|known| !known.caching.is_open()) {
            known.allocation = 0;
            // The file went with its last open. An act that waited finds that out by itself.
            known.deleting = None;
        }
    }

    /// Notes a rename of the open's object, and of what is below it.
    pub(crate) fn renamed(
        &mut self,
        open: OpenId,
        from: &Link,
        to: &Link,
        (above, labels, path): (&[FileId], &[Label], Vec<String>),
    ) {
        let Some(record) = self.opens.get(&open) else { return };
        let (object, old, root) = (record.object, record.path.clone(), record.above.first().cloned());
        let Some(known) = self.objects.get_mut(&object) else { return };
        known.deletion_follows(from, to);
        let file = known.key.file.clone();
        for record in self.opens.values_mut() {
            let same_root = record.above.first() == root.as_ref();
            if record.object == object && record.link.as_ref() == Some(from) {
                record.link = Some(to.clone());
                (record.above, record.labels) = (above.to_vec(), labels.to_vec());
                if same_root {
                    record.path.clone_from(&path);
                }
            } else if let Some(at) = record.above.iter().position(|dir| *dir == file) {
                record.labels = labels.iter().chain(&record.labels[at..]).cloned().collect();
                record.above = above.iter().chain(&record.above[at..]).cloned().collect();
                if same_root && record.path.len() >= old.len() {
                    record.path = path.iter().chain(&record.path[old.len()..]).cloned().collect();
                }
            }
        }
    }
}

impl Table {
    /// Notes the name that an object's file has now, which another front door or machine has given
    /// it.
    pub(crate) fn found(&mut self, object: ObjectId, old: &Link, new: &Link) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.deletion_follows(old, new);
        }
        let mine = |open: &&mut OpenRecord| open.object == object && open.link.as_ref() == Some(old);
        for open in self.opens.values_mut().filter(mine) {
            open.link = Some(new.clone());
            if old.dir != new.dir {
                // The way to the new place is not known from the share's root.
                open.above = vec![new.dir.clone()];
                open.labels.clear();
            }
            open.labels.pop();
            open.labels.push(new.label.clone());
            if let (Some(last), Some(name)) = (open.path.last_mut(), name_of(&new.label, false)) {
                *last = name;
            }
        }
    }

    /// Gives an open stream another name. False, if a stream of that name is open.
    pub(crate) fn rename_stream(&mut self, object: ObjectId, (to, folded): (&str, String)) -> bool {
        let Some(known) = self.objects.get_mut(&object) else { return false };
        let key = ObjectKey { stream: Some(folded), ..known.key.clone() };
        if self.ids.get(&key).is_some_and(|other| *other != object) {
            return false;
        }
        self.ids.remove(&known.key);
        self.ids.insert(key.clone(), object);
        known.key = key;
        for open in self.opens.values_mut().filter(|open| open.object == object) {
            open.stream = Some(to.to_owned());
        }
        true
    }
}

impl KnownObject {
    /// Has the pending deletion go along with a renamed link, as it does everywhere.
    fn deletion_follows(&mut self, from: &Link, to: &Link) {
        if let Some(deleting) = self.deleting.as_mut().filter(|deleting| deleting.link == *from) {
            deleting.link = to.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lease::caching::{ACKNOWLEDGE_WITHIN_MS, AccessMask, Asks, LeaseId, LeaseVersion, Opening, Sharing};
    use parking_lot::Mutex;

    struct Counts(Mutex<usize>);

    impl BreakSink for Counts {
        fn broken(&self, _: &Break) -> bool {
            *self.0.lock() += 1;
            true
        }
    }

    /// A table with one file, which a client has open with RWH.
    fn leased() -> (Table, ObjectId, LeaseHolder, Arc<Counts>) {
        let mut table = Table::default();
        let key = ObjectKey::of(&FileId::root().child(1));
        let id = table.id_or_new(&key, false);
        let lease = LeaseId { client: ClientGuid([1; 16]), key: LeaseKey::new([1; 16]).unwrap() };
        let sink = Arc::new(Counts(Mutex::new(0)));
        table.connect(lease.client, Some(sink.clone()));
        let opening = Opening {
            access: AccessMask::READ_DATA,
            sharing: Sharing::ALL,
            overwrites: false,
            locked: false,
            deleting: false,
            asks: Asks::Lease { lease, state: CachingState::RWH, version: LeaseVersion::V1 },
        };
        let known = table.objects.get_mut(&id).unwrap();
        known.caching.extend_cover(CachingState::RWH);
        let open = OpenId(1000);
        assert!(matches!(known.caching.open(Time(0), open, opening, &mut Vec::new()), Ok(Judgement::Go(_))));
        (table, id, LeaseHolder::Lease(lease), sink)
    }

    fn reads(table: &mut Table, id: ObjectId, name: u8, order: &Arc<Mutex<Vec<u8>>>) -> bool {
        let order = Arc::clone(order);
        let judged = table.judge(
            id,
            Time(0),
            |known, now, out| Ok(known.caching.act(now, Act::Read, Actor::Other, out)),
            move |_| order.lock().push(name),
            || false,
        );
        matches!(judged, Judged::Waits)
    }

    #[test]
    fn acts_that_wait_go_on_in_the_order_of_their_arrival_when_the_time_is_over() {
        let (mut table, id, holder, sink) = leased();
        let order = Arc::default();
        for name in 1..=3 {
            assert!(reads(&mut table, id, name, &order));
        }
        assert_eq!(*sink.0.lock(), 1, "one break for all");
        let deadline = Time(ACKNOWLEDGE_WITHIN_MS);
        assert_eq!(table.expire(Time(ACKNOWLEDGE_WITHIN_MS - 1)), Some(deadline));
        assert!(order.lock().is_empty());
        assert_eq!(table.expire(deadline), None);
        assert_eq!(*order.lock(), [1, 2, 3]);
        let held = table.objects[&id].caching.held(holder).unwrap();
        assert_eq!(held.state, CachingState::NONE);
    }

    #[test]
    fn a_break_that_cannot_be_sent_is_over() {
        let (mut table, id, _, sink) = leased();
        table.connect(ClientGuid([1; 16]), None);
        assert!(!reads(&mut table, id, 1, &Arc::default()) || *sink.0.lock() == 0);
        assert_eq!(table.expire(Time(0)), None);
    }

    #[test]
    fn an_object_that_nobody_has_open_is_forgotten() {
        let (mut table, id, _, _) = leased();
        table.close(id, OpenId(1000));
        table.settle(id, Time(0));
        assert!(table.objects.is_empty() && table.ids.is_empty());
    }
}
