//! Requests that the server has not answered. The client sends all of them again over a new
//! connection, since their fate on the last one is unknown.

use crate::client::Client;
use crate::{Call, Output};
use ident::FileId;
use lease::{Kind, Label};
use namespace::{Knowledge, Known, Operation, fold};
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, ToServer};

/// Requests with a number, and requests for integers. Requests for inode numbers and space stand
/// with their blocks and the allowance.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By number.
    numbered: BTreeMap<u64, RequestUnderWay>,
    /// Operations that the server is doing for this client. Updates wait until their effects are
    /// known here.
    ships: BTreeSet<u64>,
    /// Directories for which integers are requested.
    reserving: BTreeSet<FileId>,
}

#[derive(Debug)]
struct RequestUnderWay {
    message: ToServer,
    /// The last log entry before the request, if this connection is the first that it went over.
    behind: Option<u64>,
    /// The request is not sent before front doors have revoked its files.
    held: bool,
}

impl RequestUnderWay {
    fn wants(&self, file: &FileId) -> bool {
        matches!(&self.message, ToServer::Ask { wants, .. } if wants.iter().any(|want| want.file == *file))
    }
}

impl Requests {
    /// The last log entry that an answer to the request `number` acknowledges. Departs from Farsite
    /// §6, as `directory::Turn::will_acknowledge` says.
    ///
    /// The server saw the entries that were sent before the request, and has reported every refusal
    /// among them. A request that was repeated over a new connection acknowledges nothing: the
    /// answer may be to the first sending.
    pub fn applied_by(&self, number: u64) -> Option<u64> {
        self.numbered.get(&number)?.behind
    }

    /// Whether the server is doing operations for this client.
    pub fn any_shipped(&self) -> bool {
        !self.ships.is_empty()
    }

    /// Whether the server is doing the operation of the request `number`.
    pub fn is_shipped(&self, number: u64) -> bool {
        self.ships.contains(&number)
    }

    /// Whether the request `number` is not sent yet.
    pub fn is_held(&self, number: u64) -> bool {
        self.numbered.get(&number).is_some_and(|request| request.held)
    }

    /// The operations that the server is doing for this client.
    fn shipped(&self) -> impl Iterator<Item = &Operation> {
        self.ships.iter().filter_map(|number| self.operation(*number))
    }

    /// Whether a request declares `file` to be in doubt until it is answered.
    fn is_doubted(&self, file: &FileId) -> bool {
        self.ships.iter().filter_map(|number| self.numbered.get(number)).any(|request| request.wants(file))
    }

    /// The operation of the request `number`, unless the request is for content.
    pub fn operation(&self, number: u64) -> Option<&Operation> {
        match &self.numbered.get(&number)?.message {
            ToServer::Ask { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Whether the server remembers the results of no more operations.
    pub fn ships_full(&self) -> bool {
        self.ships.len() >= wire::SHIPS_MAX
    }

    /// Removes the request `number`, which was answered. Returns whether it was under way.
    pub fn answered(&mut self, number: u64) -> bool {
        self.ships.remove(&number);
        self.numbered.remove(&number).is_some()
    }

    /// Whether a request for a lease on `file` is under way. The leases that the waiting call
    /// already has stay until the answer, or it might have to ask for ever.
    pub fn want(&self, file: &FileId) -> bool {
        self.numbered.values().any(|request| request.wants(file))
    }

    /// Notes that integers of `dir` came.
    pub fn reserved(&mut self, dir: &FileId) {
        self.reserving.remove(dir);
    }

    /// All requests once more. Operations that are done only once come first, then the rest in
    /// their order.
    fn again(&self) -> Vec<ToServer> {
        let ships = self.ships.iter().filter_map(|number| self.numbered.get(number));
        let others = self.numbered.iter().filter(|(number, _)| !self.ships.contains(number));
        let said = ships.chain(others.map(|(_, request)| request)).filter(|request| !request.held);
        let numbered = said.map(|request| request.message.clone());
        let reserving = self.reserving.iter().map(|dir| ToServer::Reserve { dir: dir.clone() });
        numbered.chain(reserving).collect()
    }
}

/// The names that an operation binds or unbinds.
pub(crate) fn names(operation: &Operation) -> [Option<(&FileId, &Label)>; 2] {
    match operation {
        Operation::Create { dir, label, .. }
        | Operation::Link { dir, label, .. }
        | Operation::Unlink { dir, label, .. } => [Some((dir, label)), None],
        Operation::Rename { from_dir, from, to_dir, to, .. } => [Some((from_dir, from)), Some((to_dir, to))],
        _ => [None, None],
    }
}

impl Client {
    /// Whether the server is doing an operation that changes the answer to `call`. Other clients
    /// may see its result before this one does, so a value leased earlier is no answer.
    pub(crate) fn is_in_doubt(&self, call: &Call) -> bool {
        if !self.requests.any_shipped() {
            return false;
        }
        match call {
            Call::Lookup { dir, label } => {
                let named = |operation: &Operation| names(operation).contains(&Some((dir, label)));
                self.requests.shipped().any(named)
                    || self.named(dir, label).is_some_and(|file| self.is_changing(&file))
            }
            Call::List { dir: file, .. }
            | Call::Parent { dir: file }
            | Call::Links { file }
            | Call::Stat { file }
            | Call::Glance { file }
            | Call::Access { file, .. }
            | Call::Open { file, .. }
            | Call::GetXattr { file, .. }
            | Call::ListXattrs { file } => self.is_changing(file),
            _ => false,
        }
    }

    /// Whether the server is doing an operation that changes the binding of names like `folded`.
    pub(crate) fn is_name_in_doubt(&self, dir: &FileId, folded: &Label) -> bool {
        let is_it = |(of, label): (&FileId, &Label)| of == dir && fold(label) == *folded;
        self.requests.shipped().any(|operation| names(operation).into_iter().flatten().any(is_it))
    }

    /// Whether the server is doing an operation that changes `file`. A file that a request declared
    /// to be in doubt stays so, even when the client no longer knows its name.
    pub(crate) fn is_changing(&self, file: &FileId) -> bool {
        self.requests.is_doubted(file)
            || self
                .requests
                .shipped()
                .any(|operation| self.changes(operation).any(|changed| changed == *file))
    }

    /// The files that an operation changes, as far as is known here.
    pub(crate) fn changes(&self, operation: &Operation) -> impl Iterator<Item = FileId> {
        operation.files().into_iter().cloned().chain(self.found_by_name(operation))
    }

    /// The files among them that the operation finds by name.
    pub(crate) fn found_by_name(&self, operation: &Operation) -> impl Iterator<Item = FileId> {
        names(operation).into_iter().flatten().filter_map(|(dir, label)| self.named(dir, label))
    }

    fn named(&self, dir: &FileId, label: &Label) -> Option<FileId> {
        match self.files.child(dir, label, Kind::Read) {
            Known::Used(entry) => Some(entry.file),
            Known::Unused | Known::Unknown => None,
        }
    }

    /// Sends a message to the server if there is a connection. Otherwise it goes over the next one.
    pub(crate) fn send(&self, message: ToServer, out: &mut Vec<Output>) {
        if self.session.is_connected() {
            out.push(Output::Send(message));
        }
    }

    /// Sends a numbered request.
    pub(crate) fn request(&mut self, number: u64, message: ToServer, out: &mut Vec<Output>) {
        self.hold(number, message);
        self.say_held(number, out);
    }

    /// Adds a numbered request that is not sent yet. The files of an operation are in doubt from
    /// now on.
    pub(crate) fn hold(&mut self, number: u64, message: ToServer) {
        if matches!(message, ToServer::Ask { mode: AskMode::Ship, .. }) {
            self.requests.ships.insert(number);
        }
        self.requests.numbered.insert(number, RequestUnderWay { message, behind: None, held: true });
    }

    /// Sends a request that was held back.
    pub(crate) fn say_held(&mut self, number: u64, out: &mut Vec<Output>) {
        let behind = self.session.is_connected().then(|| self.log.sent());
        let Some(request) = self.requests.numbered.get_mut(&number) else { return };
        (request.behind, request.held) = (behind, false);
        let message = request.message.clone();
        self.send(message, out);
    }

    /// Requests integers of `dir`.
    pub(crate) fn request_integers(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        self.requests.reserving.insert(dir.clone());
        self.send(ToServer::Reserve { dir: dir.clone() }, out);
    }

    /// Sends all unanswered requests again.
    pub(crate) fn ask_again(&mut self, out: &mut Vec<Output>) {
        self.requests.numbered.values_mut().for_each(|request| request.behind = None);
        for message in self.requests.again() {
            self.send(message, out);
        }
        if std::mem::take(&mut self.reserving_inodes) {
            self.reserve_inodes(out);
        }
        if let Some((bytes, files, lacks)) = self.allowance.asking.take() {
            self.ask_allowance(bytes, files, lacks, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, opened};
    use crate::{Call, Input, Settings};
    use namespace::Cred;
    use wire::{LogEntry, Space, ToClient, Version};

    fn resumed(through: u64) -> ToClient {
        let (rejected, space, version) = (Vec::new(), Space::default(), Version::NEWEST);
        ToClient::Resumed { through, rejected, space, term_ms: 30_000, version }
    }

    /// Logs an entry and makes a request. Returns the request's number.
    fn logs_and_asks(client: &mut Client, file: u64) -> u64 {
        let mut out = Vec::new();
        client.log.push(LogEntry::Release(Vec::new()), 16);
        client.call(at(1), &Cred::default(), Call::Stat { file: FileId::root().child(file) }, &mut out);
        let sent: Vec<&ToServer> = out
            .iter()
            .filter_map(|out| if let Output::Send(message) = out { Some(message) } else { None })
            .collect();
        let [ToServer::Log { answer: false, .. }, ToServer::Ask { number, .. }] = sent.as_slice() else {
            panic!("{sent:?}")
        };
        *number
    }

    #[test]
    fn an_answer_says_that_the_server_has_the_log_before_the_question() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        let granted = |number| Input::Message(ToClient::Granted { number, grants: vec![], gone: vec![] });
        client.handle(at(0), Input::Greeting, &mut out);
        client.handle(at(0), Input::Message(opened()), &mut out);
        let (first, second) = (logs_and_asks(&mut client, 2), logs_and_asks(&mut client, 3));
        client.handle(at(1), granted(first), &mut out);
        assert_eq!((client.log.applied(), client.log.last()), (1, 2), "and of no more");
        // Over the new connection the answer may be to the request of the last one, which came
        // before the log was sent again.
        client.handle(at(2), Input::Greeting, &mut out);
        client.handle(at(2), Input::Message(resumed(1)), &mut out);
        client.handle(at(2), granted(second), &mut out);
        assert_eq!(client.log.applied(), 1);
        let third = logs_and_asks(&mut client, 4);
        client.handle(at(3), granted(third), &mut out);
        assert_eq!((client.log.applied(), client.log.last()), (3, 3));
    }
}
