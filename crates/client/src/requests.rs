//! What the server was asked and has not answered: all of it is asked again over a new connection, since nobody knows how far it came over the last one.

use crate::Output;
use crate::client::Client;
use ident::FileId;
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, ToServer};

/// See the module. Requests for numbers and space stand where what they ask for is kept.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By number.
    numbered: BTreeMap<u64, ToServer>,
    /// Operations that the server is doing for this client: until their effects are known here, updates wait.
    ships: BTreeSet<u64>,
    /// Directories of which integers were asked for.
    reserving: BTreeSet<FileId>,
}

impl Requests {
    /// Whether the server is doing operations for this client.
    pub fn any_shipped(&self) -> bool {
        !self.ships.is_empty()
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

    /// Whether anything of `file` was asked for: what a call was granted of it before stays until then, or it might have to ask for ever.
    pub fn want(&self, file: &FileId) -> bool {
        let wants = |message: &ToServer| match message {
            ToServer::Ask { wants, .. } => wants.iter().any(|want| want.file == *file),
            _ => false,
        };
        self.numbered.values().any(wants)
    }

    /// Integers of `dir` came.
    pub fn reserved(&mut self, dir: &FileId) {
        self.reserving.remove(dir);
    }

    /// Everything once more: what is done only once comes first, then the rest in the order in which it was asked.
    fn again(&self) -> Vec<ToServer> {
        let ships = self.ships.iter().filter_map(|number| self.numbered.get(number));
        let others = self
            .numbered
            .iter()
            .filter(|(number, _)| !self.ships.contains(number))
            .map(|(_, message)| message);
        let reserving = self.reserving.iter().map(|dir| ToServer::Reserve { dir: dir.clone() });
        ships.chain(others).cloned().chain(reserving).collect()
    }
}

impl Client {
    /// Says something to the server, if there is a way; otherwise it is said when there is one.
    pub(crate) fn send(&self, message: ToServer, out: &mut Vec<Output>) {
        if self.session.is_connected() {
            out.push(Output::Send(message));
        }
    }

    /// Asks, under a number.
    pub(crate) fn request(&mut self, number: u64, message: ToServer, out: &mut Vec<Output>) {
        if matches!(message, ToServer::Ask { mode: AskMode::Ship, .. }) {
            self.requests.ships.insert(number);
        }
        self.send(message.clone(), out);
        self.requests.numbered.insert(number, message);
    }

    /// Asks for integers of `dir`.
    pub(crate) fn request_integers(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        self.requests.reserving.insert(dir.clone());
        self.send(ToServer::Reserve { dir: dir.clone() }, out);
    }

    /// Asks for everything again that was not answered.
    pub(crate) fn ask_again(&mut self, out: &mut Vec<Output>) {
        for message in self.requests.again() {
            self.send(message, out);
        }
        if std::mem::take(&mut self.reserving_inodes) {
            self.reserve_inodes(out);
        }
        if let Some((bytes, files)) = self.allowance.asking.take() {
            self.ask_allowance(bytes, files, out);
        }
    }
}
