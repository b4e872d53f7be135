//! Copies on the server, above a real machine.

use super::block_on;
use super::late::Session;
use crate::connection::binding::tests::Bed;
use crate::wire::bodies::{FileId, IoctlRequest, ReadRequest, ReadResponse, WriteRequest};
use crate::wire::{Command, NtStatus, Writer};
use node::{Machine, MachineSettings};

const DUPLICATE: u32 = 0x0009_8344;
const SET_SPARSE: u32 = 0x0009_00c4;
/// FILE_OPEN_IF.
const OPEN_IF: u32 = 3;
const BLOCK: u64 = 4096;

impl Session {
    async fn writes(&mut self, file: FileId, offset: u64, data: &[u8]) {
        let length = data.len() as u32;
        let fixed = WriteRequest { data_offset: 112, length, offset, file, ..WriteRequest::default() };
        self.does(Command::Write, self.tree, &[&fixed.to_bytes(), data].concat()).await;
    }

    async fn reads(&mut self, file: FileId, length: u32) -> Vec<u8> {
        let fixed = ReadRequest { length, file, ..ReadRequest::default() };
        let mut body = fixed.to_bytes();
        body.u8(0);
        let (_, answer) = self.does(Command::Read, self.tree, &body).await;
        let read = ReadResponse::parse(&answer).unwrap();
        answer[usize::from(read.data_offset)..][..read.length as usize].to_vec()
    }

    async fn controls(&mut self, file: FileId, code: u32, input: &[u8]) -> NtStatus {
        let input_count = input.len() as u32;
        let fixed =
            IoctlRequest { code, file, input_offset: 120, input_count, flags: 1, ..Default::default() };
        self.asks(Command::Ioctl, self.tree, &[&fixed.to_bytes(), input].concat()).await.0.status
    }

    /// Duplicates a range of a file, from and to an offset.
    async fn duplicates(&mut self, source: FileId, target: FileId, range: [u64; 3]) -> NtStatus {
        let mut input = Vec::new();
        input.u64(source.persistent);
        input.u64(source.volatile);
        range.into_iter().for_each(|number| input.u64(number));
        self.controls(target, DUPLICATE, &input).await
    }
}

#[test]
fn extents_are_duplicated_within_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    block_on(async {
        let bed = Bed::sharing(machine.store().clone(), false);
        let (mut session, _) = Session::begin(&bed, "own").await;
        let tree = session.tree;
        let source = session.opens(tree, "source", OPEN_IF, 0x40).await;
        let target = session.opens(tree, "target", OPEN_IF, 0x40).await;
        let text = (0..2 * BLOCK).map(|at| (at / 16) as u8 | 1).collect::<Vec<u8>>();
        session.writes(source, 0, &text).await;
        session.writes(target, 0, &[0; 3 * BLOCK as usize]).await;
        assert_eq!(session.duplicates(source, target, [BLOCK, 0, BLOCK]).await, NtStatus::SUCCESS);
        assert_eq!(session.duplicates(source, target, [0, 2 * BLOCK, BLOCK]).await, NtStatus::SUCCESS);
        let (front, back) = text.split_at(BLOCK as usize);
        let wanted = [back, &[0; BLOCK as usize], front].concat();
        assert_eq!(session.reads(target, 4 * BLOCK as u32).await, wanted);
        // Within a file, if the ranges are apart.
        assert_eq!(session.duplicates(source, source, [0, BLOCK, BLOCK]).await, NtStatus::SUCCESS);
        assert_eq!(session.reads(source, 4 * BLOCK as u32).await, [front, front].concat());
        for (from, to, length) in [(0, 1, BLOCK), (BLOCK, 0, BLOCK + 1), (0, 0, 1), (u64::MAX, 0, 2)] {
            let status = session.duplicates(source, source, [from, to, length]).await;
            assert_eq!(status, NtStatus::NOT_SUPPORTED, "{from} {to} {length}");
        }
        assert_eq!(session.duplicates(source, target, [0, 3 * BLOCK, 1]).await, NtStatus::NOT_SUPPORTED);
        assert_eq!(session.duplicates(source, target, [0, 0, 0]).await, NtStatus::SUCCESS);
        let nobody = FileId { persistent: 1 << 40, volatile: 1 << 40 };
        assert_eq!(session.duplicates(nobody, target, [0, 0, 1]).await, NtStatus::INVALID_HANDLE);
        // A file without holes gets none.
        assert_eq!(session.controls(source, SET_SPARSE, &[1]).await, NtStatus::SUCCESS);
        assert_eq!(session.duplicates(source, target, [0, 0, 1]).await, NtStatus::NOT_SUPPORTED);
        assert_eq!(session.controls(target, SET_SPARSE, &[1]).await, NtStatus::SUCCESS);
        assert_eq!(session.duplicates(source, target, [0, 5 * BLOCK, BLOCK]).await, NtStatus::SUCCESS);
        assert_eq!(session.reads(target, 8 * BLOCK as u32).await[5 * BLOCK as usize..], *front);
        let at_end = [0, u64::MAX, 1];
        assert_eq!(session.duplicates(source, target, at_end).await, NtStatus::INVALID_PARAMETER);
        session.peer.connection.close().await;
    });
    machine.stop().unwrap();
}
