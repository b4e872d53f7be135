//! The header of a message (MS-SMB2 §2.2.1).

use super::cursor::{Malformed, Reader, Writer};
use super::status::NtStatus;

/// The bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// The first bytes of a message.
pub const PROTOCOL: [u8; 4] = *b"\xfeSMB";
/// The first bytes of a message of SMB 1.
pub const SMB1_PROTOCOL: [u8; 4] = *b"\xffSMB";

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are the protocol's")]
pub enum Command {
    Negotiate,
    SessionSetup,
    Logoff,
    TreeConnect,
    TreeDisconnect,
    Create,
    Close,
    Flush,
    Read,
    Write,
    Lock,
    Ioctl,
    Cancel,
    Echo,
    QueryDirectory,
    ChangeNotify,
    QueryInfo,
    SetInfo,
    OplockBreak,
}

impl Command {
    /// All, by number.
    pub const ALL: [Command; 19] = [
        Command::Negotiate,
        Command::SessionSetup,
        Command::Logoff,
        Command::TreeConnect,
        Command::TreeDisconnect,
        Command::Create,
        Command::Close,
        Command::Flush,
        Command::Read,
        Command::Write,
        Command::Lock,
        Command::Ioctl,
        Command::Cancel,
        Command::Echo,
        Command::QueryDirectory,
        Command::ChangeNotify,
        Command::QueryInfo,
        Command::SetInfo,
        Command::OplockBreak,
    ];

    /// Returns the command of a number.
    pub fn of(number: u16) -> Option<Command> {
        Command::ALL.get(usize::from(number)).copied()
    }
}

/// The flags of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// SMB2_FLAGS_SERVER_TO_REDIR: an answer.
    pub const ANSWER: u32 = 0x1;
    /// SMB2_FLAGS_ASYNC_COMMAND: there is an AsyncId.
    pub const ASYNC: u32 = 0x2;
    /// SMB2_FLAGS_RELATED_OPERATIONS.
    pub const RELATED: u32 = 0x4;
    /// SMB2_FLAGS_SIGNED.
    pub const SIGNED: u32 = 0x8;
    /// SMB2_FLAGS_REPLAY_OPERATION.
    pub const REPLAY: u32 = 0x2000_0000;

    /// Returns whether any of the bits is set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// CreditCharge.
    pub charge: u16,
    /// Status of an answer. In a request: ChannelSequence.
    pub status: NtStatus,
    /// The command's number, of which there may be no [`Command`].
    pub command: u16,
    /// Credits asked for, or granted.
    pub credits: u16,
    /// The flags.
    pub flags: Flags,
    /// The distance to the next header of a compound, or 0.
    pub next: u32,
    /// The number of the request.
    pub message_id: u64,
    /// TreeId in the upper half, or the AsyncId.
    pub tree_or_async: u64,
    /// The session.
    pub session_id: u64,
    /// The signature.
    pub signature: [u8; 16],
}

impl Header {
    /// Parses the header at the beginning of a message.
    pub fn parse(message: &[u8]) -> Result<Header, Malformed> {
        let mut reader = Reader::new(message);
        if reader.array::<4>()? != PROTOCOL {
            return Err(Malformed("it is not of SMB 2"));
        }
        if reader.u16()? != HEADER_BYTES as u16 {
            return Err(Malformed("the header has another size"));
        }
        Ok(Header {
            charge: reader.u16()?,
            status: NtStatus(reader.u32()?),
            command: reader.u16()?,
            credits: reader.u16()?,
            flags: Flags(reader.u32()?),
            next: reader.u32()?,
            message_id: reader.u64()?,
            tree_or_async: reader.u64()?,
            session_id: reader.u64()?,
            signature: reader.array()?,
        })
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put(&PROTOCOL);
        out.u16(HEADER_BYTES as u16);
        out.u16(self.charge);
        out.u32(self.status.0);
        out.u16(self.command);
        out.u16(self.credits);
        out.u32(self.flags.0);
        out.u32(self.next);
        out.u64(self.message_id);
        out.u64(self.tree_or_async);
        out.u64(self.session_id);
        out.put(&self.signature);
    }

    /// Returns the TreeId of a header without AsyncId.
    pub fn tree_id(&self) -> u32 {
        (self.tree_or_async >> 32) as u32
    }

    /// Returns the ChannelSequence of a request, which stands in the place of the status.
    pub fn channel_sequence(&self) -> u16 {
        self.status.0 as u16
    }

    /// Returns the header of the answer.
    pub fn answer(&self, status: NtStatus, credits: u16) -> Header {
        Header {
            status,
            credits,
            flags: Flags(Flags::ANSWER | (self.flags.0 & (Flags::RELATED | Flags::REPLAY))),
            next: 0,
            signature: [0; 16],
            ..*self
        }
    }

    /// Returns the nonce of AES-GMAC (§3.1.4.1): message number, side, and whether it is a cancel.
    pub fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.message_id.to_le_bytes());
        let is_answer = u32::from(self.flags.has(Flags::ANSWER));
        let is_cancel = u32::from(self.command == Command::Cancel as u16) << 1;
        nonce[8..].copy_from_slice(&(is_answer | is_cancel).to_le_bytes());
        nonce
    }
}
