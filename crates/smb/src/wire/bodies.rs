//! The fixed parts of bodies (MS-SMB2 §2.2.3 to §2.2.40). Fields have the protocol's names.
#![allow(missing_docs, reason = "the names are the protocol's; each struct names its section")]

use super::cursor::{Malformed, Reader, Writer};
use super::header::HEADER_BYTES;

/// The number of an open, in two halves (§2.2.14.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    pub persistent: u64,
    pub volatile: u64,
}

impl FileId {
    /// The file of the request before, in a compound.
    pub const RELATED: FileId = FileId { persistent: u64::MAX, volatile: u64::MAX };
}

/// A field of fixed size.
trait Field: Sized {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Field for $number {
            fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                reader.$number()
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.$number(*self);
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64);

impl<const N: usize> Field for [u8; N] {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.array()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put(self);
    }
}

impl Field for FileId {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(FileId { persistent: reader.u64()?, volatile: reader.u64()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.persistent);
        out.u64(self.volatile);
    }
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// StructureSize, which counts a byte of the buffer if there is one.
                pub const SIZE: u16 = $size;

                /// Parses the body of a whole message.
                pub fn parse(message: &[u8]) -> Result<$name, Malformed> {
                    let mut reader = Reader::at(message, HEADER_BYTES);
                    if reader.u16()? != $size {
                        return Err(Malformed("the body has another size"));
                    }
                    Ok($name { $($field: <$type as Field>::read(&mut reader)?,)* })
                }

                /// Appends the fixed part.
                pub fn emit(&self, out: &mut Vec<u8>) {
                    out.u16($size);
                    $(self.$field.write(out);)*
                }

                /// Returns the fixed part.
                pub fn to_bytes(&self) -> Vec<u8> {
                    let mut out = Vec::with_capacity(usize::from($name::SIZE) + 1);
                    self.emit(&mut out);
                    out
                }
            }
        )*

        #[cfg(test)]
        pub(crate) fn parse_all(message: &[u8]) {
            $(
                if let Ok(body) = $name::parse(message) {
                    let again = [&message[..HEADER_BYTES], &body.to_bytes()].concat();
                    assert_eq!(message[..again.len()], again);
                    assert_eq!($name::parse(&again), Ok(body));
                }
            )*
        }

        #[cfg(test)]
        pub(crate) const SIZES: &[u16] = &[$($size),*];
    };
}

bodies! {
    /// §2.2.3. Of a dialect before 3.1.1 the last three fields are ClientStartTime.
    NegotiateRequest = 36 {
        dialect_count: u16, security_mode: u16, reserved: u16, capabilities: u32, client_guid: [u8; 16],
        context_offset: u32, context_count: u16, reserved2: u16,
    }
    /// §2.2.4.
    NegotiateResponse = 65 {
        security_mode: u16, dialect: u16, context_count: u16, server_guid: [u8; 16], capabilities: u32,
        max_transact: u32, max_read: u32, max_write: u32, system_time: u64, start_time: u64,
        security_offset: u16, security_length: u16, context_offset: u32,
    }
    /// §2.2.5.
    SessionSetupRequest = 25 {
        flags: u8, security_mode: u8, capabilities: u32, channel: u32, security_offset: u16,
        security_length: u16, previous_session_id: u64,
    }
    /// §2.2.6.
    SessionSetupResponse = 9 { flags: u16, security_offset: u16, security_length: u16, }
    /// §2.2.9.
    TreeConnectRequest = 9 { flags: u16, path_offset: u16, path_length: u16, }
    /// §2.2.10.
    TreeConnectResponse = 16 {
        share_type: u8, reserved: u8, share_flags: u32, capabilities: u32, maximal_access: u32,
    }
    /// §2.2.7, §2.2.8, §2.2.11, §2.2.12, §2.2.18, §2.2.27 to §2.2.30: bodies without fields.
    Empty = 4 { reserved: u16, }
    /// §2.2.13.
    CreateRequest = 57 {
        security_flags: u8, oplock_level: u8, impersonation: u32, create_flags: u64, reserved: u64,
        access: u32, attributes: u32, sharing: u32, disposition: u32, options: u32, name_offset: u16,
        name_length: u16, context_offset: u32, context_length: u32,
    }
    /// §2.2.14.
    CreateResponse = 89 {
        oplock_level: u8, flags: u8, action: u32, created: u64, accessed: u64, written: u64, changed: u64,
        allocation: u64, size: u64, attributes: u32, reserved: u32, file: FileId, context_offset: u32,
        context_length: u32,
    }
    /// §2.2.15, §2.2.17: CLOSE and FLUSH.
    FileRequest = 24 { flags: u16, reserved: u32, file: FileId, }
    /// §2.2.16.
    CloseResponse = 60 {
        flags: u16, reserved: u32, created: u64, accessed: u64, written: u64, changed: u64, allocation: u64,
        size: u64, attributes: u32,
    }
    /// §2.2.19.
    ReadRequest = 49 {
        padding: u8, flags: u8, length: u32, offset: u64, file: FileId, minimum: u32, channel: u32,
        remaining: u32, channel_offset: u16, channel_length: u16,
    }
    /// §2.2.20.
    ReadResponse = 17 { data_offset: u8, reserved: u8, length: u32, remaining: u32, flags: u32, }
    /// §2.2.21.
    WriteRequest = 49 {
        data_offset: u16, length: u32, offset: u64, file: FileId, channel: u32, remaining: u32,
        channel_offset: u16, channel_length: u16, flags: u32,
    }
    /// §2.2.22.
    WriteResponse = 17 {
        reserved: u16, count: u32, remaining: u32, channel_offset: u16, channel_length: u16,
    }
    /// §2.2.26. The locks follow.
    LockRequest = 48 { count: u16, sequence: u32, file: FileId, }
    /// §2.2.31.
    IoctlRequest = 57 {
        reserved: u16, code: u32, file: FileId, input_offset: u32, input_count: u32, max_input: u32,
        output_offset: u32, output_count: u32, max_output: u32, flags: u32, reserved2: u32,
    }
    /// §2.2.32.
    IoctlResponse = 49 {
        reserved: u16, code: u32, file: FileId, input_offset: u32, input_count: u32, output_offset: u32,
        output_count: u32, flags: u32, reserved2: u32,
    }
    /// §2.2.33.
    QueryDirectoryRequest = 33 {
        class: u8, flags: u8, index: u32, file: FileId, name_offset: u16, name_length: u16, max_output: u32,
    }
    /// §2.2.34, §2.2.36, §2.2.38: a buffer.
    BufferResponse = 9 { offset: u16, length: u32, }
    /// §2.2.35.
    ChangeNotifyRequest = 32 { flags: u16, max_output: u32, file: FileId, filter: u32, reserved: u32, }
    /// §2.2.37.
    QueryInfoRequest = 41 {
        info_type: u8, class: u8, max_output: u32, input_offset: u16, reserved: u16, input_length: u32,
        additional: u32, flags: u32, file: FileId,
    }
    /// §2.2.39.
    SetInfoRequest = 33 {
        info_type: u8, class: u8, length: u32, offset: u16, reserved: u16, additional: u32, file: FileId,
    }
    /// §2.2.40.
    SetInfoResponse = 2 {}
    /// §2.2.23.1, §2.2.24.1, §2.2.25.1: of an oplock, notification, acknowledgment and answer.
    OplockBreak = 24 { level: u8, reserved: u8, reserved2: u32, file: FileId, }
    /// §2.2.23.2: of a lease, the notification.
    LeaseBreak = 44 {
        epoch: u16, flags: u32, key: [u8; 16], current: u32, new: u32, reason: u32, access_hint: u32,
        share_hint: u32,
    }
    /// §2.2.24.2, §2.2.25.2: of a lease, acknowledgment and answer.
    LeaseAcknowledgment = 36 { reserved: u16, flags: u32, key: [u8; 16], state: u32, duration: u64, }
}

/// One lock of a request (§2.2.26.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockElement {
    pub offset: u64,
    pub length: u64,
    pub flags: u32,
}

impl LockElement {
    /// SMB2_LOCKFLAG_SHARED_LOCK.
    pub const SHARED: u32 = 1;
    /// SMB2_LOCKFLAG_EXCLUSIVE_LOCK.
    pub const EXCLUSIVE: u32 = 2;
    /// SMB2_LOCKFLAG_UNLOCK.
    pub const UNLOCK: u32 = 4;
    /// SMB2_LOCKFLAG_FAIL_IMMEDIATELY.
    pub const AT_ONCE: u32 = 16;

    /// Parses the locks of a request. Their number is bounded by the message.
    pub fn parse_all(message: &[u8], count: u16) -> Result<Vec<LockElement>, Malformed> {
        let mut reader = Reader::at(message, HEADER_BYTES + 24);
        let one = |reader: &mut Reader<'_>| {
            let element = LockElement { offset: reader.u64()?, length: reader.u64()?, flags: reader.u32()? };
            reader.u32()?;
            Ok(element)
        };
        (0..count).map(|_| one(&mut reader)).collect()
    }
}

/// Returns the body of an error (§2.2.2), without error data.
pub fn error_body() -> Vec<u8> {
    let mut out = Vec::with_capacity(9);
    out.u16(9);
    out.u16(0);
    out.u32(0);
    out.u8(0);
    out
}

/// Returns the body of an error with error data. SMB 3.1.1 has the data in an error context
/// (§2.2.2.1).
pub fn error_body_with(data: &[u8], is_in_context: bool) -> Vec<u8> {
    if data.is_empty() {
        return error_body();
    }
    let mut out = Vec::with_capacity(16 + data.len());
    out.u16(9);
    out.u16(u16::from(is_in_context));
    let context_bytes = if is_in_context { 8 } else { 0 };
    out.u32((data.len() + context_bytes) as u32);
    if is_in_context {
        out.u32(data.len() as u32);
        // SMB2_ERROR_ID_DEFAULT.
        out.u32(0);
    }
    out.put(data);
    out
}

/// Returns the body of an answer with a buffer ([`BufferResponse`]).
pub fn buffer_body(buffer: &[u8]) -> Vec<u8> {
    let fixed = BufferResponse { offset: HEADER_BYTES as u16 + 8, length: buffer.len() as u32 };
    let mut out = fixed.to_bytes();
    out.put(buffer);
    if buffer.is_empty() {
        out.u8(0);
    }
    out
}
