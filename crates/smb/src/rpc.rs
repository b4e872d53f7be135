//! The named pipe `srvsvc`, by which clients list shares (MS-RPCE §2.2.2, MS-SRVS §3.1.4).

mod ndr;

use crate::accounts::{Accounts, are_same};
use crate::wire::{Malformed, NtStatus, Reader, Writer};
use ndr::{Ndr, read_text};
use std::collections::VecDeque;

/// The longest fragment in either direction.
const FRAGMENT_MAX: usize = 4280;
/// The most bytes of a request in several fragments.
const REQUEST_MAX: usize = 64 << 10;
const HEADER: usize = 16;
/// The bytes of a response before its stub.
const RESPONSE_HEADER: usize = 24;
const FIRST_AND_LAST: u8 = 3;

/// The interface srvsvc, version 3.0.
const SRVSVC: [u8; 16] =
    [0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88];
/// The transfer syntax NDR, version 2.
const NDR: [u8; 20] = [
    0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60, 2, 0, 0,
    0,
];

/// Kinds of fragments.
mod kind {
    pub const REQUEST: u8 = 0;
    pub const RESPONSE: u8 = 2;
    pub const FAULT: u8 = 3;
    pub const BIND: u8 = 11;
    pub const BIND_ACK: u8 = 12;
    pub const BIND_NAK: u8 = 13;
}

/// Operations.
mod operation {
    pub const SHARE_ENUM: u16 = 15;
    pub const SHARE_INFO: u16 = 16;
    pub const SERVER_INFO: u16 = 21;
}

const OUT_OF_RANGE: u32 = 0x1c01_0002;
const PROTOCOL_ERROR: u32 = 0x1c01_000b;
const INVALID_LEVEL: u32 = 124;
const NO_SUCH_SHARE: u32 = 2310;

/// An open pipe.
pub(crate) struct Pipe {
    computer: String,
    is_bound: bool,
    /// Bytes of a fragment that has not come whole.
    incoming: Vec<u8>,
    /// The stub of a request in several fragments.
    stub: Vec<u8>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Pipe {
    /// Opens the pipe of this name.
    pub(crate) fn open(name: &str, computer: &str) -> Option<Pipe> {
        let name = name.trim_start_matches('\\');
        name.eq_ignore_ascii_case("srvsvc").then(|| Pipe {
            computer: computer.to_owned(),
            is_bound: false,
            incoming: Vec::new(),
            stub: Vec::new(),
            outgoing: VecDeque::new(),
        })
    }

    /// Takes what a client writes.
    pub(crate) fn write(&mut self, bytes: &[u8], accounts: &Accounts) -> Result<(), NtStatus> {
        if self.incoming.len() + bytes.len() > REQUEST_MAX || self.outgoing.len() > 64 {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        self.incoming.put(bytes);
        while let Some(length) = fragment_length(&self.incoming)? {
            let rest = self.incoming.split_off(length);
            let fragment = std::mem::replace(&mut self.incoming, rest);
            self.take(&fragment, accounts)?;
        }
        Ok(())
    }

    /// Returns the next bytes for a client.
    pub(crate) fn read(&mut self, max: usize) -> Result<Vec<u8>, NtStatus> {
        // A client that reads before there is an answer would wait for itself.
        let mut next = self.outgoing.pop_front().ok_or(NtStatus(0xc000_00d9))?;
        if next.len() > max {
            let rest = next.split_off(max);
            self.outgoing.push_front(rest);
        }
        Ok(next)
    }

    /// Returns the next bytes, and whether they are a whole fragment.
    pub(crate) fn transceive(&mut self, max: usize) -> Result<(Vec<u8>, bool), NtStatus> {
        let whole = self.outgoing.front().map_or(0, Vec::len);
        self.read(max).map(|bytes| (bytes, whole <= max))
    }

    fn take(&mut self, fragment: &[u8], accounts: &Accounts) -> Result<(), NtStatus> {
        let (kind, flags) = (fragment[2], fragment[3]);
        let call = Reader::at(fragment, 12).u32()?;
        match kind {
            kind::BIND => {
                let answer = self.bind(fragment)?;
                self.outgoing.push_back(framed(answer.0, FIRST_AND_LAST, call, &answer.1));
            }
            kind::REQUEST if self.is_bound => {
                let mut reader = Reader::at(fragment, HEADER);
                let (_, context, operation) = (reader.u32()?, reader.u16()?, reader.u16()?);
                if self.stub.len() + fragment.len() > REQUEST_MAX {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES);
                }
                self.stub.put(reader.rest());
                if flags & 2 != 0 {
                    let stub = std::mem::take(&mut self.stub);
                    self.answer(call, context, &self.operate(operation, &stub, accounts));
                }
            }
            _ => self.answer(call, 0, &Err(PROTOCOL_ERROR)),
        }
        Ok(())
    }

    fn bind(&mut self, fragment: &[u8]) -> Result<(u8, Vec<u8>), Malformed> {
        let mut reader = Reader::at(fragment, HEADER);
        reader.take(8)?;
        let count = reader.u8()?;
        reader.take(3)?;
        let mut results = Vec::new();
        for _ in 0..count {
            reader.u16()?;
            let transfers = reader.u8()?;
            reader.u8()?;
            let (interface, version) = (reader.array::<16>()?, reader.u32()?);
            let mut has_ndr = false;
            for _ in 0..transfers {
                has_ndr |= reader.array::<20>()? == NDR;
            }
            let is_ours = interface == SRVSVC && version & 0xffff == 3;
            results.push(if is_ours && has_ndr { (0, 0) } else { (2, if is_ours { 2 } else { 1 }) });
        }
        if results.is_empty() {
            return Ok((kind::BIND_NAK, vec![0; 4]));
        }
        self.is_bound |= results.contains(&(0, 0));
        let mut body = Vec::new();
        body.u16(FRAGMENT_MAX as u16);
        body.u16(FRAGMENT_MAX as u16);
        body.u32(0x53f0);
        let address = b"\\PIPE\\srvsvc\0";
        body.u16(address.len() as u16);
        body.put(address);
        body.pad(0, 4);
        body.u8(results.len() as u8);
        body.put(&[0; 3]);
        for (result, reason) in results {
            body.u16(result);
            body.u16(reason);
            body.put(if result == 0 { &NDR } else { &[0; 20] });
        }
        Ok((kind::BIND_ACK, body))
    }

    /// Queues a response in as many fragments as it needs, or a fault.
    fn answer(&mut self, call: u32, context: u16, result: &Result<Vec<u8>, u32>) {
        match result {
            Ok(stub) => {
                let pieces = stub.chunks(FRAGMENT_MAX - RESPONSE_HEADER).collect::<Vec<&[u8]>>();
                for (i, piece) in pieces.iter().enumerate() {
                    let flags = u8::from(i == 0) | u8::from(i + 1 == pieces.len()) << 1;
                    let mut body = Vec::new();
                    body.u32(stub.len() as u32);
                    body.u16(context);
                    body.u16(0);
                    body.put(piece);
                    self.outgoing.push_back(framed(kind::RESPONSE, flags, call, &body));
                }
            }
            Err(status) => {
                let mut body = Vec::new();
                body.u32(0);
                body.u16(context);
                body.u16(0);
                body.u32(*status);
                body.u32(0);
                self.outgoing.push_back(framed(kind::FAULT, FIRST_AND_LAST, call, &body));
            }
        }
    }

    /// Does an operation. An error is the status of a fault.
    fn operate(&self, operation: u16, stub: &[u8], accounts: &Accounts) -> Result<Vec<u8>, u32> {
        let malformed = |_: Malformed| PROTOCOL_ERROR;
        let mut reader = Reader::new(stub);
        // The server's name, which is this one whatever it says.
        if reader.u32().map_err(malformed)? != 0 {
            read_text(&mut reader).map_err(malformed)?;
        }
        match operation {
            operation::SHARE_ENUM => {
                let level = reader.u32().map_err(malformed)?;
                Ok(enumerate(level, accounts))
            }
            operation::SHARE_INFO => {
                let name = read_text(&mut reader).map_err(malformed)?;
                let level = reader.u32().map_err(malformed)?;
                Ok(share_info(&name, level, accounts))
            }
            operation::SERVER_INFO => {
                let level = reader.u32().map_err(malformed)?;
                Ok(self.server_info(level))
            }
            _ => Err(OUT_OF_RANGE),
        }
    }

    fn server_info(&self, level: u32) -> Vec<u8> {
        let mut out = Ndr::default();
        out.u32(level);
        if level != 100 && level != 101 {
            out.u32(0);
            return out.end(INVALID_LEVEL);
        }
        out.pointer();
        // Windows NT, version 6.1, a workstation and server.
        out.u32(500);
        let deferred = [self.computer.clone(), String::new()];
        out.pointer();
        if level == 101 {
            out.u32(6);
            out.u32(1);
            out.u32(0x9003);
            out.pointer();
        }
        let count = if level == 101 { 2 } else { 1 };
        deferred.iter().take(count).for_each(|text| out.text(text));
        out.end(0)
    }
}

/// The shares by name, type and comment.
fn all_shares(accounts: &Accounts) -> Vec<(String, u32, String)> {
    const DISK: u32 = 0;
    const PIPES: u32 = 0x8000_0003;
    let disks = accounts.shares().into_iter().map(|share| (share.name, DISK, String::new()));
    disks.chain([("IPC$".to_owned(), PIPES, "Named pipes".to_owned())]).collect()
}

/// NetrShareEnum (§3.1.4.8), levels 0 and 1.
fn enumerate(level: u32, accounts: &Accounts) -> Vec<u8> {
    let mut out = Ndr::default();
    out.u32(level);
    out.u32(level);
    if level > 1 {
        out.u32(0);
        out.u32(0);
        out.u32(0);
        return out.end(INVALID_LEVEL);
    }
    let all = all_shares(accounts);
    out.pointer();
    out.u32(all.len() as u32);
    out.pointer();
    out.u32(all.len() as u32);
    for (_, kind, _) in &all {
        out.pointer();
        if level == 1 {
            out.u32(*kind);
            out.pointer();
        }
    }
    for (name, _, comment) in &all {
        out.text(name);
        if level == 1 {
            out.text(comment);
        }
    }
    out.u32(all.len() as u32);
    // No resume handle.
    out.u32(0);
    out.end(0)
}

/// NetrShareGetInfo (§3.1.4.10), levels 0, 1 and 1005.
fn share_info(name: &str, level: u32, accounts: &Accounts) -> Vec<u8> {
    let mut out = Ndr::default();
    out.u32(level);
    let found = all_shares(accounts).into_iter().find(|share| are_same(&share.0, name));
    let (Some((name, kind, comment)), 0 | 1 | 1005) = (&found, level) else {
        out.u32(0);
        return out.end(if found.is_none() { NO_SUCH_SHARE } else { INVALID_LEVEL });
    };
    out.pointer();
    if level == 1005 {
        out.u32(0);
        return out.end(0);
    }
    out.pointer();
    if level == 1 {
        out.u32(*kind);
        out.pointer();
    }
    out.text(name);
    if level == 1 {
        out.text(comment);
    }
    out.end(0)
}

/// Returns the length of the first fragment, if it is there whole.
fn fragment_length(bytes: &[u8]) -> Result<Option<usize>, NtStatus> {
    if bytes.len() < HEADER {
        return Ok(None);
    }
    let length = usize::from(Reader::at(bytes, 8).u16()?);
    // Version 5, little-endian.
    if bytes[0] != 5 || bytes[4] & 0xf0 != 0x10 || length < HEADER + 8 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok((bytes.len() >= length).then_some(length))
}

fn framed(kind: u8, flags: u8, call: u32, body: &[u8]) -> Vec<u8> {
    let mut out = vec![5, 0, kind, flags, 0x10, 0, 0, 0];
    out.u16((HEADER + body.len()) as u16);
    out.u16(0);
    out.u32(call);
    out.put(body);
    out
}
