//! Reparse points, as far as they are symbolic links (MS-FSCC §2.1.2.4, §2.3.26, §2.3.81, MS-SMB2
//! §2.2.2.2.1).

use super::call::BoundRequest;
use crate::handle::{Handle, HandleKind};
use crate::wire::{NtStatus, Reader, Writer, text_of};
use objects::{LinkOnPath, ObjectPath, link_target, link_text};
use parking_lot::Mutex;
use std::sync::Arc;

/// IO_REPARSE_TAG_SYMLINK.
const SYMLINK: u32 = 0xa000_000c;
/// SymLinkErrorTag: "SYML".
const ERROR_TAG: u32 = 0x4c4d_5953;
/// SYMLINK_FLAG_RELATIVE.
const RELATIVE: u32 = 1;
/// The length of the fields between the lengths and the names.
const FIXED_BYTES: usize = 12;

/// Makes a symbolic link of an open (FSCTL_SET_REPARSE_POINT). The open is the link's then.
pub(super) async fn set(
    call: &BoundRequest<'_>,
    handle: &Arc<Handle>,
    input: &[u8],
) -> Result<Vec<u8>, NtStatus> {
    let target = parse(input)?;
    // Names are the directories', where the open has no rights.
    call.session.cred()?;
    let open = handle.object()?.become_link(&target).await?;
    let mut link = Handle::new(handle.file, handle.tree.clone(), HandleKind::Object(open));
    link.path = handle.path.clone();
    link.action = handle.action;
    link.sequence = handle.sequence.clone();
    link.mode = Mutex::new(*handle.mode.lock());
    handle.forget().await;
    call.session.add(Arc::new(link))?;
    Ok(Vec::new())
}

/// Returns the link that is open (FSCTL_GET_REPARSE_POINT).
pub(super) async fn get(handle: &Handle) -> Result<Vec<u8>, NtStatus> {
    let target = handle.object()?.link_target().await?;
    let data = names(&target);
    let mut out = Vec::with_capacity(8 + data.len());
    out.u32(SYMLINK);
    out.u16(data.len() as u16);
    out.u16(0);
    out.put(&data);
    Ok(out)
}

/// Returns the data of STATUS_STOPPED_ON_SYMLINK: the client is to follow the link itself.
pub(super) fn stopped(link: &LinkOnPath, path: &ObjectPath, is_posix: bool) -> Vec<u8> {
    let data = names(&link.target);
    let behind = path.behind(link.left, is_posix);
    let mut out = Vec::with_capacity(16 + data.len());
    out.u32((12 + data.len()) as u32);
    out.u32(ERROR_TAG);
    out.u32(SYMLINK);
    out.u16(data.len() as u16);
    out.u16((2 * behind.encode_utf16().count()) as u16);
    out.put(&data);
    out
}

/// The fields of a link from SubstituteNameOffset on. Both names are the target.
fn names(target: &[u8]) -> Vec<u8> {
    let (text, is_relative) = link_text(target);
    let name: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = name.len() as u16;
    let mut out = Vec::with_capacity(FIXED_BYTES + 2 * name.len());
    out.u16(0);
    out.u16(length);
    out.u16(length);
    out.u16(length);
    out.u32(if is_relative { RELATIVE } else { 0 });
    out.put(&name);
    out.put(&name);
    out
}

/// Parses a symbolic link's REPARSE_DATA_BUFFER. Returns the target as POSIX has it.
fn parse(input: &[u8]) -> Result<Vec<u8>, NtStatus> {
    const INVALID: NtStatus = NtStatus::IO_REPARSE_DATA_INVALID;
    let mut reader = Reader::new(input);
    let (tag, length) = (reader.u32().map_err(|_| INVALID)?, reader.u16().map_err(|_| INVALID)?);
    if tag != SYMLINK {
        return Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED);
    }
    let data = input.get(8..).filter(|data| data.len() == usize::from(length)).ok_or(INVALID)?;
    let mut reader = Reader::new(data);
    let mut field = || reader.u16().map(usize::from).map_err(|_| INVALID);
    let (at, length, _print_at, _print_length) = (field()?, field()?, field()?, field()?);
    let names = data.get(FIXED_BYTES..).ok_or(INVALID)?;
    let name = Reader::buffer(names, at, length).map_err(|_| INVALID)?;
    let name = text_of(name).map_err(|_| INVALID)?;
    link_target(&name).map_err(|_| INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(name: &str, flags: u32) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut out = Vec::new();
        out.u32(SYMLINK);
        out.u16((FIXED_BYTES + name.len()) as u16);
        out.u16(0);
        [0, name.len() as u16, 0, name.len() as u16].into_iter().for_each(|field| out.u16(field));
        out.u32(flags);
        out.put(&name);
        out
    }

    #[test]
    fn a_link_is_read_and_said_again() {
        assert_eq!(parse(&buffer(r"..\a\b", RELATIVE)), Ok(b"../a/b".to_vec()));
        let said = names(b"../a/b");
        assert_eq!(said[8..12], RELATIVE.to_le_bytes());
        assert_eq!(text_of(&said[12..24]).unwrap(), r"..\a\b");
        let absolute = parse(&buffer(r"\??\C:\a", 0)).unwrap();
        assert_eq!(absolute, b"/??/C:/a");
        assert_eq!(names(&absolute)[8..12], [0; 4]);
    }

    #[test]
    fn what_is_no_link_is_refused() {
        let good = buffer("target", RELATIVE);
        for length in 0..good.len() {
            assert_eq!(parse(&good[..length]), Err(NtStatus::IO_REPARSE_DATA_INVALID), "{length}");
        }
        let mut other = good.clone();
        other[0] ^= 1;
        assert_eq!(parse(&other), Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED));
        let mut beyond = good;
        beyond[10] = 200;
        assert_eq!(parse(&beyond), Err(NtStatus::IO_REPARSE_DATA_INVALID));
        assert_eq!(parse(&buffer("", RELATIVE)), Err(NtStatus::IO_REPARSE_DATA_INVALID));
    }

    #[test]
    fn a_client_hears_what_is_left_of_its_path() {
        let link = LinkOnPath { target: b"to".to_vec(), left: 2 };
        let path = ObjectPath::parse(r"a\link\b\cd", false).unwrap();
        let data = stopped(&link, &path, false);
        assert_eq!(data.len() as u32 - 4, u32::from_le_bytes(data[..4].try_into().unwrap()));
        assert_eq!(data[4..8], *b"SYML");
        // "\b\cd".
        assert_eq!(data[14..16], 10_u16.to_le_bytes());
    }
}
