//! Starting points for the tests of several modules.

use crate::server::{ServerId, ServerSession};
use crate::{Call, Client, Input, Now, Output, Settings, call};
use ident::FileId;
use lease::{Field, Kind, OpenModes, Time};
use namespace::{Attributes, ContentHead, Cred, FileKind, Timestamp};
use wire::{FileGrant, LogEntry, Rights, Space, ToClient, ToServer, Values, Version};

pub(crate) fn at(ms: u64) -> Now {
    Now { time: Time(ms), wall: Timestamp::default() }
}

impl Client {
    pub(crate) fn server(&self) -> &ServerSession {
        self.servers.get(ServerId::ROOT)
    }

    pub(crate) fn server_mut(&mut self) -> &mut ServerSession {
        self.servers.get_mut(ServerId::ROOT)
    }
}

/// A session begins, with all rights and an empty allowance.
pub(crate) fn opened() -> ToClient {
    ToClient::Opened {
        inodes: (2, 9),
        allowance: (0, 0),
        space: Space::default(),
        term_ms: 30_000,
        version: Version::NEWEST,
        rights: Rights::FULL,
    }
}

/// A directory that is known to have no entries.
pub(crate) fn empty(dir: &FileId) -> FileGrant {
    let (kind, mode, links, ino) = (FileKind::Directory, 0o755, 1, 2);
    let time = Timestamp::default();
    let attributes =
        Attributes { kind, mode, uid: 0, gid: 0, links, ino, rdev: 0, ctime: time, btime: time, atime: time };
    let values = Values { attributes: Some(attributes), children_up_to: Some(u64::MAX), ..Values::default() };
    let fields = vec![(Field::Attributes, Kind::Read), (Field::Children, Kind::Read)];
    let (excluded, excluded_xattrs) = (Vec::new(), Vec::new());
    FileGrant { file: dir.clone(), whole: false, fields, excluded, excluded_xattrs, values }
}

/// A client that holds all of an empty regular file, has it open to write, and has this allowance.
pub(crate) fn writer(allowance: u64) -> (Client, FileId) {
    let (mut client, mut out) = (Client::new(Settings::new([7; 32])), Vec::new());
    let file = FileId::root().child(2);
    let mut session = opened();
    if let ToClient::Opened { allowance: of, .. } = &mut session {
        *of = (allowance, 100_000);
    }
    client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
    client.handle(at(0), Input::Message(ServerId::ROOT, session), &mut out);
    let empty = empty(&file);
    let attributes =
        empty.values.attributes.map(|it| Attributes { kind: FileKind::Regular, mode: 0o644, ..it });
    let values = Values { attributes, content: Some(ContentHead::default()), ..Values::default() };
    let grant = FileGrant { whole: true, fields: vec![(Field::Content, Kind::Write)], values, ..empty };
    let granted = ToClient::Granted { number: 1, grants: vec![grant], gone: Vec::new() };
    client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
    let open =
        Call::OpenFile(call::OpenFile { file: file.clone(), open: OpenModes::posix(false, true), mask: 0 });
    client.call(at(1), &Cred::default(), open, &mut out);
    (client, file)
}

/// The log entries in `out`.
pub(crate) fn logged(out: &[Output]) -> Vec<LogEntry> {
    let entries = |output: &Output| match output {
        Output::Send(_, ToServer::Log { entries, .. }) => entries.clone(),
        _ => Vec::new(),
    };
    out.iter().flat_map(entries).collect()
}
