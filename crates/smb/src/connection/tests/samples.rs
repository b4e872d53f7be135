//! Valid requests of a session, to be damaged: every command, information class, control code and
//! create context that the server knows.

use crate::chance::Chance;
use crate::wire::bodies::{
    ChangeNotifyRequest, CreateRequest, Empty, FileId, FileRequest, IoctlRequest, LeaseAcknowledgment,
    LockElement, LockRequest, OplockBreak, QueryDirectoryRequest, QueryInfoRequest, ReadRequest,
    SetInfoRequest, TreeConnectRequest, WriteRequest,
};
use crate::wire::contexts::{LeaseContext, LeaseV2, to_bytes};
use crate::wire::negotiate::POSIX_GUID;
use crate::wire::{Command, HEADER_BYTES, Writer, utf16};

const ALL_ACCESS: u32 = 0x1f_01ff;
/// Control codes, each with its file's kind and input.
const CODES: [u32; 16] = [
    0x0006_0194,
    0x0006_01b0,
    0x0009_003c,
    0x0009_c040,
    0x0009_00c4,
    0x0009_00c0,
    0x0009_40cf,
    0x0009_8344,
    0x0009_80c8,
    0x0011_c017,
    0x0014_0078,
    0x0014_01fc,
    0x0014_4064,
    0x0014_40f2,
    0x0014_80f2,
    0x0009_009c,
];
const NAMES: [&str; 10] = ["f", "F", "d\\g", "f:s", "f:s:$DATA", "d", "missing\\x", "", "f::$DATA", "q*"];

/// The files that a session has open.
#[derive(Clone, Copy)]
pub(super) struct Files {
    pub(super) file: FileId,
    pub(super) dir: FileId,
    pub(super) pipe: FileId,
}

pub(super) fn tree_connect(share: &str) -> Vec<u8> {
    let path = utf16(&format!("\\\\box\\{share}"));
    let fixed = TreeConnectRequest { flags: 0, path_offset: 72, path_length: path.len() as u16 };
    [fixed.to_bytes(), path].concat()
}

pub(super) fn create(name: &str, disposition: u32, options: u32, contexts: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let (name, contexts) = (utf16(name), to_bytes(contexts));
    let context_offset = (120 + name.len()).next_multiple_of(8);
    let fixed = CreateRequest {
        oplock_level: if contexts.is_empty() { 0 } else { 0xff },
        impersonation: 2,
        access: ALL_ACCESS,
        sharing: 7,
        disposition,
        options,
        name_offset: 120,
        name_length: name.len() as u16,
        context_offset: if contexts.is_empty() { 0 } else { context_offset as u32 },
        context_length: contexts.len() as u32,
        ..CreateRequest::default()
    };
    let mut body = [fixed.to_bytes(), name].concat();
    body.resize(context_offset - HEADER_BYTES, 0);
    body.put(&contexts);
    body
}

/// A descriptor with one entry.
fn descriptor() -> Vec<u8> {
    let mut bytes = vec![1, 0, 4, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0];
    bytes.put(&[2, 0, 28, 0, 1, 0, 0, 0, 0, 0, 20, 0]);
    bytes.u32(ALL_ACCESS);
    bytes.put(&[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    bytes
}

/// An extended attribute `a`.
fn attribute() -> Vec<u8> {
    vec![0, 0, 0, 0, 0, 1, 3, 0, b'a', 0, 1, 2, 3]
}

fn contexts(chance: &mut Chance) -> Vec<(&'static [u8], Vec<u8>)> {
    let lease = |v2| LeaseContext { key: [9; 16], state: 7, flags: 0, v2 }.to_bytes();
    let guid = chance.bytes(16);
    let mut all: Vec<(&'static [u8], Vec<u8>)> = vec![
        (b"MxAc", Vec::new()),
        (b"QFid", Vec::new()),
        (b"RqLs", lease(Some(LeaseV2 { parent: Some([2; 16]), epoch: 9 }))),
        (b"RqLs", lease(None)),
        (b"DHnQ", vec![0; 16]),
        (b"DHnC", vec![3; 16]),
        (b"DH2Q", [&[0; 16][..], &guid].concat()),
        (b"DH2C", [&[1; 16][..], &guid, &[0; 4]].concat()),
        (b"AlSi", 4096_u64.to_le_bytes().to_vec()),
        (b"TWrp", vec![0; 8]),
        (b"ExtA", attribute()),
        (b"SecD", descriptor()),
        (b"AAPL", vec![0; 24]),
        (&POSIX_GUID, 0o644_u32.to_le_bytes().to_vec()),
    ];
    (0..chance.below(4)).map(|_| all.swap_remove(chance.below(all.len()))).collect()
}

fn named(flags: usize, length: u32, name: &[u8]) -> Vec<u8> {
    let mut target = vec![flags as u8, 0, 0, 0, 0, 0, 0, 0];
    target.u64(0);
    target.u32(length);
    target.put(name);
    target
}

fn set_info(chance: &mut Chance, files: &Files) -> Vec<u8> {
    let name = utf16(chance.pick(&["f", "f2", "d\\f", ":t"]));
    let number = chance.pick(&[0_u64, 1, 100, 1 << 20]).to_le_bytes().to_vec();
    let (info_type, class, buffer) = match chance.below(12) {
        0 => (3, 0, descriptor()),
        1 => (1, 4, [number, vec![0; 24], vec![0x20, 0, 0, 0, 0, 0, 0, 0]].concat()),
        2 => (1, chance.pick(&[10, 11, 65]), named(chance.below(4), name.len() as u32, &name)),
        3 => (1, chance.pick(&[13, 64]), vec![0; 4]),
        4 => (1, 15, attribute()),
        5 => (1, chance.pick(&[14, 19, 20, 39]), number),
        6 => (1, 16, vec![0; 4]),
        _ => (chance.pick(&[1, 1, 1, 2, 3]), chance.below(80) as u8, chance.bytes(40)),
    };
    let fixed = SetInfoRequest {
        info_type,
        class,
        length: buffer.len() as u32,
        offset: 96,
        additional: 7,
        file: chance.pick(&[files.file, files.dir, files.pipe]),
        ..SetInfoRequest::default()
    };
    [fixed.to_bytes(), buffer].concat()
}

fn ioctl(chance: &mut Chance, files: &Files) -> Vec<u8> {
    let code = chance.pick(&CODES);
    let mut input = Vec::new();
    match code {
        0x0011_c017 => {
            // BIND to srvsvc, or an operation of it.
            let kind = chance.pick(&[0, 11]);
            input.put(&[5, 0, kind, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0]);
            input.put(&[0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
            input.put(b"\xc8\x4f\x32\x4b\x70\x16\xd3\x01\x12\x78\x5a\x47\xbf\x6e\xe1\x88\x03\0\0\0");
            input.put(b"\x04\x5d\x88\x8a\xeb\x1c\xc9\x11\x9f\xe8\x08\x00\x2b\x10\x48\x60\x02\0\0\0");
        }
        0x0014_40f2 | 0x0014_80f2 => {
            input.u64(files.file.persistent);
            input.u64(files.file.volatile);
            input.u64(0);
            input.u32(2);
            input.u32(0);
            for at in [0, 100] {
                input.u64(at);
                input.u64(at + 10);
                input.u64(10);
            }
        }
        0x0009_8344 => {
            input.u64(files.file.persistent);
            input.u64(files.file.volatile);
            [0, 4096, 4096].into_iter().for_each(|number| input.u64(number));
        }
        _ => {
            input.u64(0);
            input.u64(4096);
        }
    }
    let pipe = code == 0x0011_c017;
    let fixed = IoctlRequest {
        code,
        file: if pipe { files.pipe } else { chance.pick(&[files.file, files.dir, FileId::RELATED]) },
        input_offset: 120,
        input_count: input.len() as u32,
        max_output: chance.pick(&[0, 12, 32, 4096, 65_536]),
        flags: 1,
        ..IoctlRequest::default()
    };
    [fixed.to_bytes(), input].concat()
}

fn lock(chance: &mut Chance, files: &Files) -> Vec<u8> {
    let count = 1 + chance.below(4) as u16;
    let flags = chance.pick(&[LockElement::SHARED, LockElement::EXCLUSIVE, LockElement::UNLOCK]);
    let fixed = LockRequest { count, sequence: chance.below(2000) as u32, file: files.file };
    let mut body = fixed.to_bytes();
    for at in 0..u64::from(count) {
        body.u64(at * 100);
        body.u64(50);
        body.u32(if flags == LockElement::UNLOCK { flags } else { flags | LockElement::AT_ONCE });
        body.u32(0);
    }
    body
}

/// Returns a request by its command and body.
pub(super) fn sample(chance: &mut Chance, files: &Files) -> (Command, Vec<u8>) {
    let any = chance.pick(&[files.file, files.file, files.dir, files.pipe]);
    let max_output = chance.pick(&[0, 8, 100, 4096, 65_536]);
    match chance.below(24) {
        0 => (Command::TreeConnect, tree_connect(chance.pick(&["share", "IPC$", "none"]))),
        1..5 => {
            let all = contexts(chance);
            let disposition = chance.below(6) as u32;
            let options = chance.pick(&[0, 0, 1, 0x40, 0x1000, 0x20_0000]);
            (Command::Create, create(chance.pick(&NAMES), disposition, options, &all))
        }
        5 => (Command::Flush, FileRequest { flags: 0, reserved: 0, file: any }.to_bytes()),
        6 => {
            let fixed = ReadRequest { length: max_output, file: any, ..ReadRequest::default() };
            (Command::Read, [fixed.to_bytes(), vec![0]].concat())
        }
        7 => {
            let length = chance.below(200);
            let fixed =
                WriteRequest { data_offset: 112, length: length as u32, file: any, ..Default::default() };
            (Command::Write, [fixed.to_bytes(), chance.bytes(length)].concat())
        }
        8 => (Command::Lock, lock(chance, files)),
        9..12 => (Command::Ioctl, ioctl(chance, files)),
        12..14 => {
            let name = utf16(chance.pick(&["*", "f", "?", "<.>", "\"*"]));
            let fixed = QueryDirectoryRequest {
                class: chance.pick(&[1, 2, 3, 12, 37, 38, 60, 63, 100]),
                flags: chance.below(32) as u8,
                index: 0,
                file: files.dir,
                name_offset: 96,
                name_length: name.len() as u16,
                max_output,
            };
            (Command::QueryDirectory, [fixed.to_bytes(), name].concat())
        }
        14 => {
            let fixed =
                ChangeNotifyRequest { flags: 1, max_output, file: files.dir, filter: 0xfff, reserved: 0 };
            (Command::ChangeNotify, fixed.to_bytes())
        }
        15..18 => {
            let info_type = chance.pick(&[1, 1, 1, 2, 3, 4]);
            let class = chance.below(102) as u8;
            let fixed = QueryInfoRequest {
                info_type,
                class,
                max_output,
                additional: 15,
                file: any,
                ..Default::default()
            };
            (Command::QueryInfo, fixed.to_bytes())
        }
        18..22 => (Command::SetInfo, set_info(chance, files)),
        22 => {
            let lease = LeaseAcknowledgment { key: [9; 16], state: 3, ..LeaseAcknowledgment::default() };
            let oplock = OplockBreak { level: 1, file: files.file, ..OplockBreak::default() };
            (Command::OplockBreak, chance.pick(&[&lease.to_bytes(), &oplock.to_bytes()]).clone())
        }
        _ => {
            let command =
                chance.pick(&[Command::Echo, Command::Echo, Command::Cancel, Command::TreeDisconnect]);
            (command, Empty::default().to_bytes())
        }
    }
}
