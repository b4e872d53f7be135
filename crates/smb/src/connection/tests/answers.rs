//! The server's answers as a client reads them: each is what its command has.

use crate::wire::bodies::{
    BufferResponse, CloseResponse, CreateResponse, Empty, IoctlResponse, LeaseAcknowledgment, LeaseBreak,
    NegotiateResponse, OplockBreak, ReadResponse, SessionSetupResponse, SetInfoResponse, TreeConnectResponse,
    WriteResponse,
};
use crate::wire::{Command, Flags, HEADER_BYTES, Header, Malformed, NtStatus, Reader};

/// Reads a message of the server, which may be a compound. Returns each header with its message.
pub(super) fn read_answers(message: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let (mut answers, mut rest) = (Vec::new(), message);
    loop {
        let header = Header::parse(rest).unwrap();
        assert!(header.flags.has(Flags::ANSWER), "{header:?}");
        let next = header.next as usize;
        assert!(next == 0 || next >= HEADER_BYTES && next.is_multiple_of(8) && next < rest.len());
        let (this, after) = if next == 0 { (rest, &[][..]) } else { rest.split_at(next) };
        let is_read = read_body(&header, this);
        assert!(is_read.is_ok(), "{header:?}, {is_read:?}: {this:02x?}");
        answers.push((header, this.to_vec()));
        if next == 0 {
            return answers;
        }
        rest = after;
    }
}

fn inside(message: &[u8], at: usize, length: usize) -> Result<(), Malformed> {
    Reader::buffer(message, at, length).map(|_| ())
}

fn buffer(message: &[u8]) -> Result<(), Malformed> {
    let body = BufferResponse::parse(message)?;
    inside(message, usize::from(body.offset), body.length as usize)
}

fn read_body(header: &Header, message: &[u8]) -> Result<(), Malformed> {
    use Command as C;
    // A status that is an error's to all commands but one.
    let goes_on = match header.status {
        NtStatus::MORE_PROCESSING_REQUIRED => header.command == C::SessionSetup as u16,
        status => status == NtStatus::BUFFER_OVERFLOW,
    };
    let has_body = goes_on || !header.status.is_error();
    let is_copied = header.command == C::Ioctl as u16 && message.get(HEADER_BYTES) == Some(&49);
    if !is_copied && (!has_body || header.status == NtStatus::PENDING) {
        let mut reader = Reader::at(message, HEADER_BYTES);
        let size = reader.u16()?;
        reader.u16()?;
        let length = reader.u32()?;
        reader.take(length.max(1) as usize)?;
        return if size == 9 { Ok(()) } else { Err(Malformed("it is no error's body")) };
    }
    match C::of(header.command).ok_or(Malformed("it is no command"))? {
        C::Negotiate => {
            let body = NegotiateResponse::parse(message)?;
            inside(message, usize::from(body.security_offset), usize::from(body.security_length))
        }
        C::SessionSetup => {
            let body = SessionSetupResponse::parse(message)?;
            inside(message, usize::from(body.security_offset), usize::from(body.security_length))
        }
        C::TreeConnect => TreeConnectResponse::parse(message).map(|_| ()),
        C::Create => {
            let body = CreateResponse::parse(message)?;
            inside(message, body.context_offset as usize, body.context_length as usize)
        }
        C::Close => CloseResponse::parse(message).map(|_| ()),
        C::Read => {
            let body = ReadResponse::parse(message)?;
            inside(message, usize::from(body.data_offset), body.length as usize)
        }
        C::Write => WriteResponse::parse(message).map(|_| ()),
        C::Ioctl => {
            let body = IoctlResponse::parse(message)?;
            inside(message, body.output_offset as usize, body.output_count as usize)
        }
        C::QueryDirectory | C::ChangeNotify | C::QueryInfo => buffer(message),
        C::SetInfo => SetInfoResponse::parse(message).map(|_| ()),
        C::OplockBreak => OplockBreak::parse(message)
            .map(|_| ())
            .or_else(|_| LeaseAcknowledgment::parse(message).map(|_| ()))
            .or_else(|_| LeaseBreak::parse(message).map(|_| ())),
        C::Logoff | C::TreeDisconnect | C::Flush | C::Lock | C::Cancel | C::Echo => {
            Empty::parse(message).map(|_| ())
        }
    }
}
