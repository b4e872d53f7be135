//! Classes of information about a volume (MS-FSCC §2.5).

use super::Information;
use crate::wire::{NtStatus, Writer, utf16};
use objects::{Store, VolumeSpace};

const SECTOR: u32 = 512;
/// SSINFO_FLAGS_ALIGNED_DEVICE and SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE, and
/// SSINFO_FLAGS_TRIM_ENABLED (MS-FSCC §2.5.8).
const ALIGNED: u32 = 3;
const TRIMS: u32 = 8;
const SERIAL: u32 = 0x4c45_4153;
/// FILE_DEVICE_DISK.
const DISK: u32 = 7;
/// FILE_DEVICE_IS_MOUNTED.
const IS_MOUNTED: u32 = 0x20;
/// FILE_CASE_SENSITIVE_SEARCH, _CASE_PRESERVED_NAMES, _UNICODE_ON_DISK, _PERSISTENT_ACLS,
/// _SUPPORTS_SPARSE_FILES, _NAMED_STREAMS, _SUPPORTS_HARD_LINKS, _SUPPORTS_EXTENDED_ATTRIBUTES,
/// _SUPPORTS_BLOCK_REFCOUNTING.
const ATTRIBUTES: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x4_0000 | 0x40_0000 | 0x80_0000 | 0x800_0000;
/// FILE_READ_ONLY_VOLUME.
const READ_ONLY: u32 = 0x8_0000;

fn units(out: &mut Vec<u8>, space: &VolumeSpace) {
    out.u32(space.cluster / SECTOR);
    out.u32(SECTOR);
}

/// Returns information of a class.
pub(crate) async fn query_volume(
    class: u8,
    store: &Store,
    label: &str,
    is_read_only: bool,
    guid: &[u8; 16],
    has_posix: bool,
) -> Result<Information, NtStatus> {
    let mut out = Vec::new();
    match class {
        1 => {
            let label = utf16(label);
            out.u64(0);
            out.u32(SERIAL);
            out.u32(label.len() as u32);
            out.u16(0);
            out.put(&label);
            return Ok(Information { bytes: out, least: 24 });
        }
        3 => {
            let space = store.space().await?;
            let cluster = u64::from(space.cluster.max(1));
            out.u64(space.total / cluster);
            out.u64(space.free / cluster);
            units(&mut out, &space);
        }
        4 => {
            out.u32(DISK);
            out.u32(IS_MOUNTED);
        }
        5 => {
            let name = utf16("NTFS");
            out.u32(ATTRIBUTES | if is_read_only { READ_ONLY } else { 0 });
            out.u32(255);
            out.u32(name.len() as u32);
            out.put(&name);
            return Ok(Information { bytes: out, least: 16 });
        }
        // No quota is kept: nothing is filtered, and there are no limits.
        6 => {
            out.put(&[0; 24]);
            out.u64(u64::MAX);
            out.u64(u64::MAX);
            out.u64(0);
        }
        7 => {
            let space = store.space().await?;
            let cluster = u64::from(space.cluster.max(1));
            out.u64(space.total / cluster);
            out.u64(space.free / cluster);
            out.u64(space.free / cluster);
            units(&mut out, &space);
        }
        8 => {
            out.put(guid);
            out.put(&[0; 48]);
        }
        11 => {
            for number in [SECTOR, 4096, 4096, 4096, ALIGNED | TRIMS, 0, 0] {
                out.u32(number);
            }
        }
        100 if has_posix => {
            let space = store.space().await?;
            let cluster = u64::from(space.cluster.max(1));
            out.u32(1 << 20);
            out.u32(space.cluster);
            out.u64(space.total / cluster);
            out.u64(space.free / cluster);
            out.u64(space.free / cluster);
            out.u64(u64::MAX);
            out.u64(u64::MAX);
            out.u64(u64::from(SERIAL));
        }
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    Ok(Information::fixed(out))
}
