//! Classes of information about a file (MS-FSCC §2.4).

use super::short_names::short_name;
use super::{Information, posix_sids, reparse_tag};
use crate::handle::Handle;
use crate::time::filetime;
use crate::wire::{Malformed, NtStatus, Reader, Writer, utf16};
use objects::{Info, Open, StreamInfo};

/// FILE_READ_ATTRIBUTES.
const READ_ATTRIBUTES: u32 = 0x80;
/// FileFsVolumeInformation has the same.
const VOLUME: u64 = 0x4c45_4153;

fn times(out: &mut Vec<u8>, info: &Info) {
    for time in [info.created, info.accessed, info.written, info.changed] {
        out.u64(filetime(time));
    }
}

fn basic(out: &mut Vec<u8>, info: &Info) {
    times(out, info);
    out.u32(info.attributes.0);
    out.u32(0);
}

fn standard(out: &mut Vec<u8>, info: &Info) {
    out.u64(info.allocation);
    out.u64(info.size);
    out.u32(info.links);
    out.u8(u8::from(info.delete_pending));
    out.u8(u8::from(info.is_directory));
    out.u16(0);
}

/// Returns information of a class. The extended attributes have classes of their own.
pub(crate) async fn query_file(
    class: u8,
    handle: &Handle,
    open: &Open,
    has_posix: bool,
) -> Result<Information, NtStatus> {
    let needs_attributes = matches!(class, 4 | 18 | 34 | 35);
    if needs_attributes && open.access().0 & READ_ATTRIBUTES == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let info = open.info().await?;
    let mut out = Vec::new();
    match class {
        4 => basic(&mut out, &info),
        5 => standard(&mut out, &info),
        6 => out.u64(info.number),
        7 => out.u32(open.ea_size().await?),
        8 => out.u32(open.access().0),
        14 => out.u64(*handle.position.lock()),
        16 => out.u32(*handle.mode.lock()),
        17 => out.u32(0),
        18 => {
            basic(&mut out, &info);
            standard(&mut out, &info);
            out.u64(info.number);
            out.u32(open.ea_size().await?);
            out.u32(open.access().0);
            out.u64(*handle.position.lock());
            out.u32(*handle.mode.lock());
            out.u32(0);
            let path = utf16(&format!("\\{}", open.path()));
            out.u32(path.len() as u32);
            out.put(&path);
            return Ok(Information { bytes: out, least: 104 });
        }
        21 => {
            let path = open.path();
            let name = path.rsplit('\\').next().unwrap_or_default();
            let name = utf16(&short_name(name.split(':').next().unwrap_or_default()));
            out.u32(name.len() as u32);
            out.put(&name);
            return Ok(Information { bytes: out, least: 8 });
        }
        22 => {
            let all = open.streams().await?;
            return Ok(Information { least: if all.is_empty() { 0 } else { 32 }, bytes: streams(&all) });
        }
        28 => {
            out.u64(info.size);
            out.u64(0);
        }
        34 => {
            times(&mut out, &info);
            out.u64(info.allocation);
            out.u64(info.size);
            out.u32(info.attributes.0);
            out.u32(0);
        }
        35 => {
            out.u32(info.attributes.0);
            out.u32(reparse_tag(&info));
        }
        48 => {
            let path = utf16(&open.path());
            out.u32(path.len() as u32);
            out.put(&path);
            return Ok(Information { bytes: out, least: 4 });
        }
        59 => {
            out.u64(VOLUME);
            out.u64(info.number);
            out.u64(0);
        }
        100 if has_posix => {
            times(&mut out, &info);
            out.u64(info.size);
            out.u64(info.allocation);
            out.u32(info.attributes.0);
            out.u64(info.number);
            out.u64(0);
            out.u32(info.links);
            out.u32(reparse_tag(&info));
            out.u32(info.posix.mode & 0o7777);
            out.put(&posix_sids(&info));
        }
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    Ok(Information::fixed(out))
}

/// Returns FileStreamInformation.
fn streams(all: &[StreamInfo]) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for (i, stream) in all.iter().enumerate() {
        out.pad(0, 8);
        let start = out.len();
        if i > 0 {
            out.set_u32(last, (start - last) as u32);
        }
        let name = utf16(&format!(":{}:$DATA", stream.name));
        out.u32(0);
        out.u32(name.len() as u32);
        out.u64(stream.size);
        out.u64(stream.allocation);
        out.put(&name);
        last = start;
    }
    out
}

/// Parses FileFullEaInformation (§2.4.16).
pub(crate) fn full_eas(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Malformed> {
    const ATTRIBUTES_MAX: usize = 256;
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        let mut reader = Reader::at(bytes, at);
        let next = reader.u32()? as usize;
        reader.u8()?;
        let (name_length, value_length) = (reader.u8()?, reader.u16()?);
        let name = reader.take(usize::from(name_length))?;
        reader.u8()?;
        let value = reader.take(usize::from(value_length))?;
        let name =
            String::from_utf8(name.to_vec()).map_err(|_| Malformed("an attribute's name is no text"))?;
        all.push((name, value.to_vec()));
        if next == 0 {
            return Ok(all);
        }
        if !next.is_multiple_of(4) || all.len() >= ATTRIBUTES_MAX {
            return Err(Malformed("the list of attributes is odd"));
        }
        at += next;
    }
}

/// Returns FileFullEaInformation.
pub(crate) fn emit_eas(all: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for (i, (name, value)) in all.iter().enumerate() {
        out.pad(0, 4);
        let start = out.len();
        if i > 0 {
            out.set_u32(last, (start - last) as u32);
        }
        out.u32(0);
        out.u8(0);
        out.u8(name.len() as u8);
        out.u16(value.len() as u16);
        out.put(name.as_bytes());
        out.u8(0);
        out.put(value);
        last = start;
    }
    out
}
