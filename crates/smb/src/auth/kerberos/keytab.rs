//! Keytabs: files with the keys of services, in the one format that MIT, Heimdal and Windows write
//! (version 2).

use super::WEAK;
use super::messages::Request;
use crate::auth::refused::Refused;
use crate::wire::Malformed;
use crypto::kerberos::{EncryptionKey, EncryptionType};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 2] = [5, 2];
/// The longest file, bytes.
const BYTES_MAX: usize = 1 << 20;
/// The service's name in principals of SMB.
const SERVICE: &str = "cifs";
/// The permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// The keys of a machine's SMB service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keytab {
    pub(super) entries: Vec<KeytabEntry>,
}

/// A key of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeytabEntry {
    pub(super) realm: String,
    /// The host of `cifs/HOST`.
    pub(super) host: String,
    pub(super) version: KeyVersion,
    pub(super) key: EncryptionKey,
}

/// The version of a key. Old entries keep its lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyVersion {
    Byte(u8),
    Whole(u32),
}

impl KeyVersion {
    pub(super) fn is(self, number: u32) -> bool {
        match self {
            KeyVersion::Byte(byte) => u32::from(byte) == number & 0xff,
            KeyVersion::Whole(whole) => whole == number,
        }
    }
}

/// A keytab that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the keytab {} {problem}", .file.display())]
pub struct KeytabError {
    file: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("may be read or written by others than its owner: chmod 600")]
    IsOpen,
    #[error("is longer than 1 MiB")]
    TooLong,
    #[error("cannot be understood: {}", .0.0)]
    Malformed(#[from] Malformed),
    #[error("has no key of a principal cifs/HOST with AES")]
    NoKey,
}

impl Keytab {
    /// Reads a file, which its owner alone may read and write.
    pub fn read(file: &Path) -> Result<Keytab, KeytabError> {
        read(file).map_err(|problem| KeytabError { file: file.to_owned(), problem })
    }

    /// Parses a keytab. Keys of other services, and of weak types, are left out.
    pub fn parse(bytes: &[u8]) -> Result<Keytab, Malformed> {
        let mut rest = Cursor(bytes);
        if rest.array()? != MAGIC {
            return Err(Malformed("it is no keytab of version 2"));
        }
        let mut entries = Vec::new();
        while !rest.0.is_empty() {
            let length = i32::from_be_bytes(rest.array()?);
            match usize::try_from(length) {
                // Room that is allocated behind the last entry.
                Ok(0) => break,
                Ok(length) => entries.extend(KeytabEntry::parse(Cursor(rest.take(length)?))?),
                // A hole, where an entry was removed.
                Err(_) => drop(rest.take(length.unsigned_abs() as usize)?),
            }
        }
        Ok(Keytab { entries })
    }

    /// Decrypts the part of a ticket that is for this service.
    pub(super) fn open(&self, request: &Request<'_>) -> Result<Vec<u8>, Refused> {
        let sealed = request.ticket;
        let kind = EncryptionType::of(sealed.kind).ok_or(WEAK)?;
        let [service, host] = &request.service[..] else {
            return Err(Refused("the ticket is for a principal that is no service"));
        };
        // Clients of Windows write names as their users do.
        let is_named = |entry: &&KeytabEntry| {
            service.eq_ignore_ascii_case(SERVICE) && host.eq_ignore_ascii_case(&entry.host)
        };
        // The refusal of the entry that comes closest says the most.
        let mut closest = 0;
        for entry in self.entries.iter().filter(is_named) {
            let agreements = [
                entry.realm == request.realm,
                entry.key.kind() == kind,
                sealed.version.is_none_or(|version| entry.version.is(version)),
            ];
            let agree = agreements.iter().take_while(|agrees| **agrees).count();
            if agree == agreements.len()
                && let Ok(plain) = entry.key.decrypt(super::usage::TICKET, sealed.cipher)
            {
                return Ok(plain);
            }
            closest = closest.max(1 + agree);
        }
        Err(Refused(CLOSE[closest]))
    }
}

/// The reasons to refuse a ticket, by how much of it a key of the keytab agrees with.
const CLOSE: [&str; 5] = [
    "the ticket is for another service",
    "the ticket is of another realm",
    "the keytab has no key of the ticket's encryption type",
    "the keytab has no key of the ticket's version",
    "the ticket is encrypted with another key than the keytab's",
];

fn read(file: &Path) -> Result<Keytab, Problem> {
    let file = File::open(file)?;
    if file.metadata()?.permissions().mode() & OTHERS != 0 {
        return Err(Problem::IsOpen);
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > BYTES_MAX {
        return Err(Problem::TooLong);
    }
    let keytab = Keytab::parse(&bytes)?;
    if keytab.entries.is_empty() { Err(Problem::NoKey) } else { Ok(keytab) }
}

impl KeytabEntry {
    /// Parses an entry, and returns it if it is of use here.
    fn parse(mut bytes: Cursor<'_>) -> Result<Option<KeytabEntry>, Malformed> {
        let count = bytes.u16()?;
        let realm = bytes.text()?;
        let mut components = Vec::new();
        for _ in 0..count {
            components.push(bytes.text()?);
        }
        // The name's type, and when it was written.
        bytes.take(8)?;
        let [byte] = bytes.array()?;
        let kind = EncryptionType::of(i32::from(bytes.u16()?));
        let length = usize::from(bytes.u16()?);
        let key = bytes.take(length)?;
        // Behind the key there may be the whole version, and more that nobody has defined.
        let version = match bytes.array().map(u32::from_be_bytes) {
            Ok(whole) if whole != 0 => KeyVersion::Whole(whole),
            _ => KeyVersion::Byte(byte),
        };
        let (Some(kind), [service, host]) = (kind, &components[..]) else { return Ok(None) };
        let key = EncryptionKey::new(kind, key).ok_or(Malformed("a key has another length"))?;
        if !service.eq_ignore_ascii_case(SERVICE) {
            return Ok(None);
        }
        Ok(Some(KeytabEntry { realm, host: host.clone(), version, key }))
    }
}

/// Fields in the order of the network.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(*array)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = usize::from(self.u16()?);
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| Malformed("a name is not in UTF-8"))
    }
}
