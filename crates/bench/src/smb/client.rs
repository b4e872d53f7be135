//! A client of SMB 3.1.1 that costs little: one request is under way at a time, and signatures of
//! answers are not checked.

use super::logon;
use super::protection::{CIPHER, Keys, SIGNING, Way};
use crypto::smb::PreauthHash;
use smb::wire::bodies::{
    BufferResponse, CreateRequest, CreateResponse, Empty, FileId, FileRequest, NegotiateRequest,
    QueryDirectoryRequest, ReadRequest, ReadResponse, SessionSetupRequest, SessionSetupResponse,
    TreeConnectRequest, WriteRequest,
};
use smb::wire::contexts::{LeaseContext, LeaseV2, to_bytes};
use smb::wire::negotiate::{Dialect, context, emit_context, numbers_data, preauth_data};
use smb::wire::{Command, Flags, HEADER_BYTES, Header, Malformed, NtStatus, Reader, Writer, utf16};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The user of all clients.
pub(super) const USER: &str = "root";
/// The user's password.
pub(super) const PASSWORD: &str = "secret";
/// The share that all clients connect to.
pub(super) const SHARE: &str = "work";

/// Bytes that a credit stands for.
const CREDIT_BYTES: usize = 64 << 10;
/// Credits asked for with each request.
const CREDITS: u16 = 256;
const SIGNING_REQUIRED: u16 = 2;
/// Leases, large requests, directory leases, encryption.
const CAPABILITIES: u32 = 0x66;
/// FileIdBothDirectoryInformation.
const ID_BOTH: u8 = 37;
/// The bytes of a listing that are asked for at once.
const LISTING_BYTES: usize = 1 << 20;

/// The use that an open is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum OpenPurpose {
    /// An existing file is read.
    Read,
    /// A file is written from its beginning, and made if need be.
    Replace,
    /// A new directory is made.
    MakeDirectory,
    /// A directory is listed.
    List,
    /// A directory is listed under a lease that caches its names and handle.
    ListUnderLease,
}

impl OpenPurpose {
    /// DesiredAccess, CreateDisposition and CreateOptions.
    fn fields(self) -> (u32, u32, u32) {
        match self {
            OpenPurpose::Read => (0x0012_0089, 1, 0x40),
            OpenPurpose::Replace => (0x0012_019f, 5, 0x40),
            OpenPurpose::MakeDirectory => (0x0012_019f, 2, 1),
            OpenPurpose::List | OpenPurpose::ListUnderLease => (0x0012_0089, 1, 1),
        }
    }
}

/// READ and HANDLE caching.
pub(super) const READ_AND_HANDLE: u32 = 3;

/// A client with a session and a tree connect.
pub(super) struct SmbClient {
    stream: TcpStream,
    keys: Keys,
    next: u64,
    session: u64,
    tree: u32,
    /// The last answer.
    answer: Vec<u8>,
}

/// A request that is not protected yet.
struct Message {
    header: Header,
    bytes: Vec<u8>,
}

fn malformed(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

impl SmbClient {
    /// Connects, logs on, and connects to the share.
    pub(super) fn connect(address: SocketAddr, way: Way) -> io::Result<SmbClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut client =
            SmbClient { stream, keys: Keys::None, next: 0, session: 0, tree: 0, answer: Vec::new() };
        let mut hash = PreauthHash::START;
        client.negotiate(&mut hash)?;
        let challenge = client.set_up(&mut hash, &logon::negotiate())?;
        let (token, key) = logon::authenticate(&challenge, USER, PASSWORD).map_err(malformed)?;
        client.set_up(&mut hash, &token)?;
        client.keys = Keys::new(way, &key, &hash);
        client.connect_to_share()?;
        Ok(client)
    }

    fn negotiate(&mut self, hash: &mut PreauthHash) -> io::Result<()> {
        static CLIENTS: AtomicU64 = AtomicU64::new(1);
        let mut client_guid = [0; 16];
        client_guid[..8].copy_from_slice(&CLIENTS.fetch_add(1, Relaxed).to_le_bytes());
        let fixed = NegotiateRequest {
            dialect_count: 1,
            security_mode: SIGNING_REQUIRED,
            capabilities: CAPABILITIES,
            client_guid,
            context_offset: 104,
            context_count: 3,
            ..NegotiateRequest::default()
        };
        let mut body = fixed.to_bytes();
        body.u16(Dialect::V3_1_1 as u16);
        for (kind, data) in [
            (context::PREAUTH, preauth_data(&[5; 32])),
            (context::ENCRYPTION, numbers_data(&[CIPHER])),
            (context::SIGNING, numbers_data(&[SIGNING])),
        ] {
            body.pad(0, 8);
            emit_context(&mut body, kind, &data);
        }
        hash.update(&self.send(Command::Negotiate, &body, 1)?);
        let header = self.receive()?;
        check(&header)?;
        hash.update(&self.answer);
        Ok(())
    }

    /// Sends a token of the logon. Returns the server's.
    fn set_up(&mut self, hash: &mut PreauthHash, token: &[u8]) -> io::Result<Vec<u8>> {
        let fixed = SessionSetupRequest {
            security_mode: SIGNING_REQUIRED as u8,
            security_offset: 88,
            security_length: token.len() as u16,
            ..SessionSetupRequest::default()
        };
        let body = [&fixed.to_bytes(), token].concat();
        hash.update(&self.send(Command::SessionSetup, &body, 1)?);
        let header = self.receive()?;
        self.session = header.session_id;
        // The last answer is no part of the hash.
        if header.status == NtStatus::MORE_PROCESSING_REQUIRED {
            hash.update(&self.answer);
        } else {
            check(&header)?;
        }
        let fixed = SessionSetupResponse::parse(&self.answer).map_err(malformed)?;
        let (at, length) = (usize::from(fixed.security_offset), usize::from(fixed.security_length));
        Reader::buffer(&self.answer, at, length).map(<[u8]>::to_vec).map_err(malformed)
    }

    fn connect_to_share(&mut self) -> io::Result<()> {
        let path = utf16(&format!("\\\\127.0.0.1\\{SHARE}"));
        let fixed = TreeConnectRequest { flags: 0, path_offset: 72, path_length: path.len() as u16 };
        let header = self.ask(Command::TreeConnect, &[fixed.to_bytes(), path].concat(), 0)?;
        self.tree = header.tree_id();
        Ok(())
    }

    /// Opens a file by its path in the share. Returns it, and the state of the lease that it has.
    pub(super) fn open(&mut self, path: &str, purpose: OpenPurpose) -> io::Result<(FileId, u32)> {
        self.ask(Command::Create, &create(path, purpose), 0)?;
        let answer = CreateResponse::parse(&self.answer).map_err(malformed)?;
        Ok((answer.file, self.lease_state(&answer)?))
    }

    /// Opens a file and closes it, by one message with both requests.
    pub(super) fn open_and_close(&mut self, path: &str, purpose: OpenPurpose) -> io::Result<()> {
        let close = FileRequest { file: FileId::RELATED, ..FileRequest::default() }.to_bytes();
        let mut create = self.message(Command::Create, &create(path, purpose), 1);
        create.bytes.pad(0, 8);
        create.header.next = create.bytes.len() as u32;
        create.bytes.set_u32(20, create.header.next);
        let mut close = self.message(Command::Close, &close, 1);
        close.header.flags.0 |= Flags::RELATED;
        close.bytes.set_u32(16, close.header.flags.0);
        // The messages of a compound are signed one by one.
        let both = [create, close].map(|one| self.keys.protect(&one.header, one.bytes));
        self.send_frame(&both.concat())?;
        let first = self.receive()?;
        check(&first)?;
        let second = Header::parse(self.answer.get(first.next as usize..).unwrap_or_default());
        check(&second.map_err(malformed)?)
    }

    /// The state of the lease in the only context of an answer to CREATE, 0 without one.
    fn lease_state(&self, answer: &CreateResponse) -> io::Result<u32> {
        if answer.context_length == 0 {
            return Ok(0);
        }
        let at = answer.context_offset as usize;
        let mut context = Reader::at(&self.answer, at + 10);
        let data = context.u16().map_err(malformed)?;
        Reader::at(&self.answer, at + usize::from(data) + 16).u32().map_err(malformed)
    }

    /// Closes a file.
    pub(super) fn close(&mut self, file: FileId) -> io::Result<()> {
        let body = FileRequest { file, ..FileRequest::default() }.to_bytes();
        self.ask(Command::Close, &body, 0).map(drop)
    }

    /// Makes a file durable.
    pub(super) fn flush(&mut self, file: FileId) -> io::Result<()> {
        let body = FileRequest { file, ..FileRequest::default() }.to_bytes();
        self.ask(Command::Flush, &body, 0).map(drop)
    }

    /// Writes to a file.
    pub(super) fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> io::Result<()> {
        let fixed = WriteRequest {
            data_offset: 112,
            length: data.len() as u32,
            offset,
            file,
            ..WriteRequest::default()
        };
        self.ask(Command::Write, &[&fixed.to_bytes(), data].concat(), data.len()).map(drop)
    }

    /// Reads from a file. Returns the number of bytes that were there.
    pub(super) fn read(&mut self, file: FileId, offset: u64, length: usize) -> io::Result<usize> {
        let fixed = ReadRequest { length: length as u32, offset, file, ..ReadRequest::default() };
        let mut body = fixed.to_bytes();
        body.u8(0);
        self.ask(Command::Read, &body, length)?;
        Ok(ReadResponse::parse(&self.answer).map_err(malformed)?.length as usize)
    }

    /// The bytes that the last read has returned.
    #[cfg(test)]
    pub(super) fn content(&self) -> &[u8] {
        let read = ReadResponse::parse(&self.answer).unwrap();
        &self.answer[usize::from(read.data_offset)..][..read.length as usize]
    }

    /// Lists a directory from its beginning. Returns the number of entries.
    pub(super) fn list(&mut self, dir: FileId) -> io::Result<usize> {
        let (mut entries, mut restart) = (0, 1);
        loop {
            let fixed = QueryDirectoryRequest {
                class: ID_BOTH,
                flags: restart,
                file: dir,
                name_offset: 96,
                name_length: 2,
                max_output: LISTING_BYTES as u32,
                ..QueryDirectoryRequest::default()
            };
            let body = [fixed.to_bytes(), utf16("*")].concat();
            self.send(Command::QueryDirectory, &body, credits(LISTING_BYTES))?;
            let header = self.receive()?;
            if header.status == NtStatus::NO_MORE_FILES {
                return Ok(entries);
            }
            check(&header)?;
            entries += self.listed().map_err(malformed)?;
            restart = 0;
        }
    }

    /// The number of entries in the answer.
    fn listed(&self) -> Result<usize, Malformed> {
        let fixed = BufferResponse::parse(&self.answer)?;
        let (mut at, mut count) = (usize::from(fixed.offset), 0);
        loop {
            count += 1;
            match Reader::at(&self.answer, at).u32()? {
                0 => return Ok(count),
                next => at += next as usize,
            }
        }
    }

    /// Ends the session.
    pub(super) fn log_off(mut self) -> io::Result<()> {
        self.ask(Command::Logoff, &Empty::default().to_bytes(), 0).map(drop)
    }

    /// Sends a request with so many bytes of payload either way, and waits for its answer, which
    /// must be one of success.
    fn ask(&mut self, command: Command, body: &[u8], payload: usize) -> io::Result<Header> {
        self.send(command, body, credits(payload))?;
        let header = self.receive()?;
        check(&header)?;
        Ok(header)
    }

    /// Sends a request. Returns it as it was before it was protected.
    fn send(&mut self, command: Command, body: &[u8], charge: u16) -> io::Result<Vec<u8>> {
        let Message { header, bytes } = self.message(command, body, charge);
        // Only a logon needs the bytes that went out.
        let plain = if matches!(self.keys, Keys::None) { bytes.clone() } else { Vec::new() };
        let bytes = self.keys.protect(&header, bytes);
        self.send_frame(&bytes)?;
        Ok(plain)
    }

    fn message(&mut self, command: Command, body: &[u8], charge: u16) -> Message {
        let header = Header {
            charge,
            status: NtStatus::SUCCESS,
            command: command as u16,
            credits: CREDITS,
            flags: Flags(0),
            next: 0,
            message_id: self.next,
            tree_or_async: u64::from(self.tree) << 32,
            session_id: self.session,
            signature: [0; 16],
        };
        self.next += u64::from(charge.max(1));
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        header.emit(&mut bytes);
        bytes.put(body);
        Message { header, bytes }
    }

    fn send_frame(&mut self, message: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(4 + message.len());
        frame.put(&(message.len() as u32).to_be_bytes());
        frame.put(message);
        self.stream.write_all(&frame)
    }

    /// Waits for the answer to the last request. Breaks, and words that something waits, do not
    /// count.
    fn receive(&mut self) -> io::Result<Header> {
        loop {
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            self.answer.resize(u32::from_be_bytes(length) as usize, 0);
            self.stream.read_exact(&mut self.answer)?;
            self.keys.open(&mut self.answer)?;
            let header = Header::parse(&self.answer).map_err(malformed)?;
            if header.message_id != u64::MAX && header.status != NtStatus::PENDING {
                return Ok(header);
            }
        }
    }
}

/// The body of a CREATE.
fn create(path: &str, purpose: OpenPurpose) -> Vec<u8> {
    let name = utf16(path);
    let (access, disposition, options) = purpose.fields();
    let context_at = (120 + name.len()).next_multiple_of(8);
    let lease = matches!(purpose, OpenPurpose::ListUnderLease).then(|| {
        let v2 = Some(LeaseV2 { parent: None, epoch: 0 });
        let lease = LeaseContext { key: [7; 16], state: READ_AND_HANDLE, flags: 0, v2 };
        to_bytes(&[(b"RqLs", lease.to_bytes())])
    });
    let fixed = CreateRequest {
        oplock_level: if lease.is_some() { 0xff } else { 0 },
        impersonation: 2,
        access,
        sharing: 7,
        disposition,
        options,
        name_offset: 120,
        name_length: name.len() as u16,
        context_offset: if lease.is_some() { context_at as u32 } else { 0 },
        context_length: lease.as_ref().map_or(0, |lease| lease.len() as u32),
        ..CreateRequest::default()
    };
    let mut body = fixed.to_bytes();
    body.put(&name);
    match lease {
        Some(lease) => {
            body.resize(context_at - HEADER_BYTES, 0);
            body.put(&lease);
        }
        None => body.u8(0),
    }
    body
}

/// The credits that a payload costs.
fn credits(payload: usize) -> u16 {
    payload.div_ceil(CREDIT_BYTES).max(1) as u16
}

fn check(header: &Header) -> io::Result<()> {
    match header.status {
        NtStatus::SUCCESS => Ok(()),
        status => Err(io::Error::other(format!("command {} of SMB: {status}", header.command))),
    }
}
