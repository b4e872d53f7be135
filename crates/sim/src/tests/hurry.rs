//! Content that a program waits for is published at once. Once no program has the file open, its
//! content moves to where content of its size belongs.

use crate::calls::create;
use crate::cluster::Cluster;
use client::{Call, Reply, call};
use content::{SYNCED_BYTES_MAX, URGENT_BYTES_MAX};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::FileKind;

const BOTH: OpenModes = OpenModes::posix(true, true);

impl Cluster {
    fn does(&mut self, call: Call) -> Reply {
        self.complete(call).unwrap().unwrap()
    }

    /// Makes an open file with so many durable bytes.
    fn synced(&mut self, name: &str, bytes: u64) -> FileId {
        let (dir, label) = (FileId::root(), Label::new(name.as_bytes()).unwrap());
        let create = create(dir, label, FileKind::Regular, Some(BOTH));
        let Reply::Node(entry, _) = self.does(create) else { panic!("no node") };
        let (file, data) = (entry.file, vec![7; bytes as usize].into());
        self.does(Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false }));
        self.does(Call::Sync(call::Sync { file: file.clone() }));
        file
    }
}

#[test]
fn what_is_synced_needs_no_share_and_gets_one_when_nobody_has_it_open() {
    let rows = [(URGENT_BYTES_MAX, 0, 0), (SYNCED_BYTES_MAX, 0, 1), (SYNCED_BYTES_MAX + 1, 1, 1)];
    for (bytes, synced, shut) in rows {
        let mut cluster = Cluster::new(1, 1 << 30).unwrap();
        let file = cluster.synced("name", bytes);
        cluster.settle().unwrap();
        assert_eq!(cluster.shares(), synced, "{bytes} bytes that were synced");
        cluster.does(Call::Close(call::Close { file: file.clone(), open: BOTH }));
        cluster.settle().unwrap();
        assert_eq!(cluster.shares(), shut, "{bytes} bytes that nobody has open");
        cluster.does(Call::SyncAll);
        cluster.settle().unwrap();
        let read = Call::Read(call::Read {
            file,
            offset: 0,
            length: SYNCED_BYTES_MAX as u32 + 2,
            kept: true,
            quietly: false,
        });
        let Reply::Data(parts) = cluster.does(read) else { panic!("no data") };
        assert_eq!(cluster.gather(&parts).unwrap(), vec![7; bytes as usize]);
        cluster.check().unwrap();
        cluster.check_no_garbage().unwrap();
    }
}

#[test]
fn who_ends_while_what_was_synced_goes_to_a_share_loses_nothing() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, 1 << 30).unwrap();
        let file = cluster.synced("name", SYNCED_BYTES_MAX);
        cluster.does(Call::Close(call::Close { file: file.clone(), open: BOTH }));
        for _ in 0..seed {
            cluster.step().unwrap();
        }
        cluster.crash_client().unwrap();
        cluster.settle().unwrap();
        cluster.sweep_shares();
        let read = Call::Read(call::Read {
            file,
            offset: 0,
            length: SYNCED_BYTES_MAX as u32,
            kept: true,
            quietly: false,
        });
        let Reply::Data(parts) = cluster.does(read) else { panic!("no data") };
        assert_eq!(cluster.gather(&parts).unwrap(), vec![7; SYNCED_BYTES_MAX as usize], "seed {seed}");
        cluster.check().unwrap();
        cluster.check_no_garbage().unwrap();
    }
}
