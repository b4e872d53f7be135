//! What the server was asked and has not answered: all of it is asked again over a new connection,
//! since nobody knows how far it came over the last one.

use crate::client::Client;
use crate::{Call, Output};
use ident::FileId;
use lease::{Kind, Label};
use namespace::{Knowledge, Known, Operation, fold};
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, ToServer};

/// See the module. Requests for numbers and space stand where what they ask for is kept.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By number.
    numbered: BTreeMap<u64, Request>,
    /// Operations that the server is doing for this client: until their effects are known here,
    /// updates wait.
    ships: BTreeSet<u64>,
    /// Directories of which integers were asked for.
    reserving: BTreeSet<FileId>,
}

#[derive(Debug)]
struct Request {
    message: ToServer,
    /// The last log entry before it, if it went over this connection for the first time.
    behind: Option<u64>,
    /// It is not said before what was handed out below has gone.
    held: bool,
}

impl Request {
    fn wants(&self, file: &FileId) -> bool {
        matches!(&self.message, ToServer::Ask { wants, .. } if wants.iter().any(|want| want.file == *file))
    }
}

impl Requests {
    /// Departs from Farsite §6, as `directory::Turn::will_acknowledge` says.
    ///
    /// The answer to the request `number` says that the server has the log up to this entry, and
    /// has refused none of what it has not said so of: what came before the request it had seen by
    /// then. Of a request that was made before over another connection it says nothing, since that
    /// may be what is answered.
    pub fn applied_by(&self, number: u64) -> Option<u64> {
        self.numbered.get(&number)?.behind
    }

    /// Whether the server is doing operations for this client.
    pub fn any_shipped(&self) -> bool {
        !self.ships.is_empty()
    }

    /// Whether the request `number` has the server do something.
    pub fn is_shipped(&self, number: u64) -> bool {
        self.ships.contains(&number)
    }

    /// Whether the request `number` was not said yet.
    pub fn is_held(&self, number: u64) -> bool {
        self.numbered.get(&number).is_some_and(|request| request.held)
    }

    /// What the server is doing for this client.
    fn shipped(&self) -> impl Iterator<Item = &Operation> {
        self.ships.iter().filter_map(|number| self.operation(*number))
    }

    /// Whether the server was told that this is in doubt until it has answered.
    fn is_doubted(&self, file: &FileId) -> bool {
        self.ships.iter().filter_map(|number| self.numbered.get(number)).any(|request| request.wants(file))
    }

    /// What the request `number` is for, unless it is for content.
    pub fn operation(&self, number: u64) -> Option<&Operation> {
        match &self.numbered.get(&number)?.message {
            ToServer::Ask { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Whether the server does not remember the results of any more.
    pub fn ships_full(&self) -> bool {
        self.ships.len() >= wire::SHIPS_MAX
    }

    /// The request `number` was answered. Whether it was under way.
    pub fn answered(&mut self, number: u64) -> bool {
        self.ships.remove(&number);
        self.numbered.remove(&number).is_some()
    }

    /// Whether anything of `file` was asked for: what a call was granted of it before stays until
    /// then, or it might have to ask for ever.
    pub fn want(&self, file: &FileId) -> bool {
        self.numbered.values().any(|request| request.wants(file))
    }

    /// Integers of `dir` came.
    pub fn reserved(&mut self, dir: &FileId) {
        self.reserving.remove(dir);
    }

    /// Everything once more: what is done only once comes first, then the rest in the order in
    /// which it was asked.
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
    /// Whether the server is doing something that changes what `call` asks for. Others may have
    /// been told of it before it is known here, so what was leased before is no answer.
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

    /// Whether the server is doing something that changes what names like `folded` are bound to.
    pub(crate) fn is_name_in_doubt(&self, dir: &FileId, folded: &Label) -> bool {
        let is_it = |(of, label): (&FileId, &Label)| of == dir && fold(label) == *folded;
        self.requests.shipped().any(|operation| names(operation).into_iter().flatten().any(is_it))
    }

    /// Whether the server is doing something that changes `file`. What it was told to be in doubt
    /// stays so, also when the name is not known here any more by which it was found.
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

    /// Those among them that it says the names of.
    pub(crate) fn found_by_name(&self, operation: &Operation) -> impl Iterator<Item = FileId> {
        names(operation).into_iter().flatten().filter_map(|(dir, label)| self.named(dir, label))
    }

    fn named(&self, dir: &FileId, label: &Label) -> Option<FileId> {
        match self.files.child(dir, label, Kind::Read) {
            Known::Used(entry) => Some(entry.file),
            Known::Unused | Known::Unknown => None,
        }
    }

    /// Says something to the server, if there is a way; otherwise it is said when there is one.
    pub(crate) fn send(&self, message: ToServer, out: &mut Vec<Output>) {
        if self.session.is_connected() {
            out.push(Output::Send(message));
        }
    }

    /// Asks, under a number.
    pub(crate) fn request(&mut self, number: u64, message: ToServer, out: &mut Vec<Output>) {
        self.hold(number, message);
        self.say_held(number, out);
    }

    /// Is going to ask, under a number. What the server is to do is in doubt from now on.
    pub(crate) fn hold(&mut self, number: u64, message: ToServer) {
        if matches!(message, ToServer::Ask { mode: AskMode::Ship, .. }) {
            self.requests.ships.insert(number);
        }
        self.requests.numbered.insert(number, Request { message, behind: None, held: true });
    }

    /// Asks what was held back.
    pub(crate) fn say_held(&mut self, number: u64, out: &mut Vec<Output>) {
        let behind = self.session.is_connected().then(|| self.log.sent());
        let Some(request) = self.requests.numbered.get_mut(&number) else { return };
        (request.behind, request.held) = (behind, false);
        let message = request.message.clone();
        self.send(message, out);
    }

    /// Asks for integers of `dir`.
    pub(crate) fn request_integers(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        self.requests.reserving.insert(dir.clone());
        self.send(ToServer::Reserve { dir: dir.clone() }, out);
    }

    /// Asks for everything again that was not answered.
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
    use namespace::{Cred, Rules};
    use wire::{LogEntry, Space, ToClient};

    fn resumed(through: u64) -> ToClient {
        let (rejected, space, rules) = (Vec::new(), Space::default(), Rules::NEWEST.number());
        ToClient::Resumed { through, rejected, space, term_ms: 30_000, rules }
    }

    /// Logs something and asks; the number of the question.
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
        // Over the next connection the answer may be to what was asked over the last one, before
        // the log has come once more.
        client.handle(at(2), Input::Greeting, &mut out);
        client.handle(at(2), Input::Message(resumed(1)), &mut out);
        client.handle(at(2), granted(second), &mut out);
        assert_eq!(client.log.applied(), 1);
        let third = logs_and_asks(&mut client, 4);
        client.handle(at(3), granted(third), &mut out);
        assert_eq!((client.log.applied(), client.log.last()), (3, 3));
    }
}
