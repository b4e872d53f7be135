//! Create contexts (MS-SMB2 §2.2.13.2 and §2.2.14.2).

use super::bodies::{CreateRequest, FileId};
use super::cursor::{Malformed, Reader, Writer};
use super::negotiate::POSIX_GUID;

/// The most contexts that a request may have.
const CONTEXTS_MAX: usize = 32;

/// A lease, asked for or granted (§2.2.13.2.8, §2.2.13.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseContext {
    /// The key.
    pub key: [u8; 16],
    /// The state.
    pub state: u32,
    /// The flags of an answer.
    pub flags: u32,
    /// The fields that only version 2 has.
    pub v2: Option<LeaseV2>,
}

/// The fields of version 2 of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseV2 {
    /// The key of the parent directory's lease.
    pub parent: Option<[u8; 16]>,
    /// The epoch.
    pub epoch: u16,
}

/// SMB2_LEASE_FLAG_BREAK_IN_PROGRESS.
pub const LEASE_BREAKING: u32 = 2;
/// SMB2_LEASE_FLAG_PARENT_LEASE_KEY_SET.
pub const LEASE_PARENT: u32 = 4;

impl LeaseContext {
    /// Parses the data of an `RqLs` context.
    pub fn parse(data: &[u8]) -> Result<LeaseContext, Malformed> {
        let mut reader = Reader::new(data);
        let (key, state, flags) = (reader.array()?, reader.u32()?, reader.u32()?);
        reader.u64()?;
        let v2 = match data.len() {
            32 => None,
            52 => {
                let (parent, epoch) = (reader.array()?, reader.u16()?);
                Some(LeaseV2 { parent: (flags & LEASE_PARENT != 0).then_some(parent), epoch })
            }
            _ => return Err(Malformed("a lease context has another size")),
        };
        Ok(LeaseContext { key, state, flags, v2 })
    }

    /// Returns the data of an `RqLs` context.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.key.to_vec();
        let parent = self.v2.and_then(|v2| v2.parent);
        out.u32(self.state);
        out.u32((self.flags & !LEASE_PARENT) | parent.map_or(0, |_| LEASE_PARENT));
        out.u64(0);
        if let Some(v2) = self.v2 {
            out.put(&parent.unwrap_or_default());
            out.u16(v2.epoch);
            out.u16(0);
        }
        out
    }
}

/// A durable handle of version 2, asked for (§2.2.13.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableV2 {
    /// How long the open outlives its connection, in ms; 0 leaves that to the server.
    pub timeout_ms: u32,
    /// 2: persistent.
    pub flags: u32,
    /// The create's identifier.
    pub create_guid: [u8; 16],
}

/// A reconnect to a durable handle of version 2 (§2.2.13.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectV2 {
    /// The open.
    pub file: FileId,
    /// The create's identifier.
    pub create_guid: [u8; 16],
    /// 2: persistent.
    pub flags: u32,
}

/// The contexts of a request. Contexts that are not known are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named in MS-SMB2 §2.2.13.2")]
pub struct CreateContexts {
    pub extended_attributes: Option<Vec<u8>>,
    pub security: Option<Vec<u8>>,
    pub durable: bool,
    pub reconnect: Option<FileId>,
    pub durable_v2: Option<DurableV2>,
    pub reconnect_v2: Option<ReconnectV2>,
    pub allocation: Option<u64>,
    pub maximal_access: bool,
    pub time_warp: Option<u64>,
    pub disk_id: bool,
    pub lease: Option<LeaseContext>,
    pub posix_mode: Option<u32>,
    pub apple: Option<Vec<u8>>,
    pub app_instance: Option<[u8; 16]>,
}

/// The name of SMB2_CREATE_APP_INSTANCE_ID.
const APP_INSTANCE_ID: [u8; 16] =
    [0x45, 0xbc, 0xa6, 0x6a, 0xef, 0xa7, 0xf7, 0x4a, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14, 0x4d, 0x74];

impl CreateContexts {
    /// Parses the contexts of a request.
    pub fn parse(message: &[u8], fixed: &CreateRequest) -> Result<CreateContexts, Malformed> {
        let all = Reader::buffer(message, fixed.context_offset as usize, fixed.context_length as usize)?;
        let mut contexts = CreateContexts::default();
        let (mut at, mut count) = (0_usize, 0);
        while at < all.len() {
            count += 1;
            if count > CONTEXTS_MAX {
                return Err(Malformed("there are too many contexts"));
            }
            let this = &all[at..];
            let mut reader = Reader::new(this);
            let (next, name_at, name_length) = (reader.u32()? as usize, reader.u16()?, reader.u16()?);
            reader.u16()?;
            let (data_at, data_length) = (reader.u16()?, reader.u32()?);
            if next != 0 && (!next.is_multiple_of(8) || next < 16) {
                return Err(Malformed("a context is out of place"));
            }
            let this =
                if next == 0 { this } else { this.get(..next).ok_or(Malformed("a context ends early"))? };
            let name = Reader::buffer(this, usize::from(name_at), usize::from(name_length))?;
            if name.len() < 4 {
                return Err(Malformed("a context has no name"));
            }
            let data = Reader::buffer(this, usize::from(data_at), data_length as usize)?;
            contexts.take(name, data)?;
            if next == 0 {
                break;
            }
            at += next;
        }
        Ok(contexts)
    }

    /// Checks that the contexts of durable opens go together: those of version 1 or those of
    /// version 2, and of these one (§3.3.5.9.6 to §3.3.5.9.12).
    pub fn check_durable(&self) -> Result<(), Malformed> {
        let v1 = self.durable || self.reconnect.is_some();
        match (v1, self.durable_v2.is_some(), self.reconnect_v2.is_some()) {
            (true, false, false) | (false, false, _) | (false, true, false) => Ok(()),
            _ => Err(Malformed("contexts of durable opens contradict each other")),
        }
    }

    fn take(&mut self, name: &[u8], data: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(data);
        match name {
            b"ExtA" => self.extended_attributes = Some(data.to_vec()),
            b"SecD" => self.security = Some(data.to_vec()),
            b"DHnQ" => {
                reader.take(16)?;
                self.durable = true;
            }
            b"DHnC" => self.reconnect = Some(file(&mut reader)?),
            b"DH2Q" => {
                let (timeout_ms, flags) = (reader.u32()?, reader.u32()?);
                reader.u64()?;
                self.durable_v2 = Some(DurableV2 { timeout_ms, flags, create_guid: reader.array()? });
            }
            b"DH2C" => {
                let (file, create_guid) = (file(&mut reader)?, reader.array()?);
                self.reconnect_v2 = Some(ReconnectV2 { file, create_guid, flags: reader.u32()? });
            }
            b"AlSi" => self.allocation = Some(reader.u64()?),
            b"MxAc" => self.maximal_access = true,
            b"TWrp" => self.time_warp = Some(reader.u64()?),
            b"QFid" => self.disk_id = true,
            b"RqLs" => self.lease = Some(LeaseContext::parse(data)?),
            b"AAPL" => self.apple = Some(data.to_vec()),
            name if name == APP_INSTANCE_ID => {
                reader.u32()?;
                self.app_instance = Some(reader.array()?);
            }
            name if name == POSIX_GUID => self.posix_mode = Some(reader.u32()?),
            _ => {}
        }
        Ok(())
    }
}

fn file(reader: &mut Reader<'_>) -> Result<FileId, Malformed> {
    Ok(FileId { persistent: reader.u64()?, volatile: reader.u64()? })
}

/// Returns a list of contexts, each a name and data.
pub fn to_bytes(contexts: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, (name, data)) in contexts.iter().enumerate() {
        let start = out.len();
        let data_at = (16 + name.len()).next_multiple_of(8);
        out.u32(0);
        out.u16(16);
        out.u16(name.len() as u16);
        out.u16(0);
        out.u16(if data.is_empty() { 0 } else { data_at as u16 });
        out.u32(data.len() as u32);
        out.put(name);
        out.pad(start, 8);
        out.put(data);
        if i + 1 < contexts.len() {
            out.pad(start, 8);
            let next = (out.len() - start) as u32;
            out.set_u32(start, next);
        }
    }
    out
}
