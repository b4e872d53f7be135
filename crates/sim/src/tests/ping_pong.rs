//! Ping-pong between machines: its cost, and that no answer is stale.

use super::locks::machines::Machines;
use client::{Call, Reply, call};
use ident::FileId;
use lease::OpenModes;
use namespace::{FileKind, Stat, Timestamp};

const WRITING: OpenModes = OpenModes::posix(false, true);
const READING: OpenModes = OpenModes::posix(true, false);

impl Machines {
    /// Opens the file; returns whether content read through the handle is better not kept.
    fn opens(&mut self, at: usize, open: OpenModes) -> bool {
        let file = self.file(0);
        match self.host.does(at, Call::OpenFile(call::OpenFile { file, open, mask: 0 })) {
            Reply::Opened { uncached, .. } => uncached,
            other => panic!("{other:?}"),
        }
    }

    fn closes(&mut self, at: usize, open: OpenModes) {
        let file = self.file(0);
        self.host.does(at, Call::Close(call::Close { file, open }));
    }

    fn writes(&mut self, at: usize, text: &str) {
        self.opens(at, WRITING);
        self.writes_on(at, text);
        self.closes(at, WRITING);
    }

    /// Writes through an open handle.
    fn writes_on(&mut self, at: usize, text: &str) {
        let (file, data) = (self.file(0), text.as_bytes().to_vec().into());
        self.host.does(at, Call::Write(call::Write { file, offset: 0, data, append: false }));
    }

    fn reads(&mut self, at: usize) -> String {
        self.opens(at, READING);
        let text = self.reads_on(at);
        self.closes(at, READING);
        text
    }

    /// Reads through an open handle, past the kernel's pages.
    fn reads_on(&mut self, at: usize) -> String {
        let read = Call::Read(call::Read {
            file: self.file(0),
            offset: 0,
            length: 4096,
            kept: false,
            quietly: false,
        });
        let Reply::Data(parts) = self.host.does(at, read) else { panic!("no data") };
        let bytes = |part: &content::ReadPart| match part {
            content::ReadPart::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?} of a small file"),
        };
        String::from_utf8(parts.iter().flat_map(bytes).collect()).unwrap()
    }

    fn stats(&mut self, at: usize, file: &FileId) -> (Stat, bool) {
        self.host.stat(at, file).unwrap()
    }
}

fn creates(machines: &mut Machines, at: usize, name: &str) {
    machines.host.make(at, &FileId::root(), name, FileKind::Regular).unwrap();
}

/// After some rounds, a write and a read of it cost four messages and a flush.
fn costs_four_messages(
    machines: &mut Machines,
    writes: impl Fn(&mut Machines, &str),
    reads: impl Fn(&mut Machines) -> String,
) {
    for round in 0..100 {
        let text = format!("round {round:03}");
        let cost = machines.cost(|machines| {
            writes(machines, &text);
            assert_eq!(reads(machines), text);
        });
        if round >= 8 {
            assert_eq!(cost, (4, 1), "round {round}");
        }
    }
}

#[test]
fn a_small_file_that_one_writes_and_another_reads_costs_four_messages_and_one_flush() {
    let mut machines = Machines::new(1, 2);
    costs_four_messages(&mut machines, |it, text| it.writes(0, text), |it| it.reads(1));
    // Reads by a third machine now and then see the same.
    for round in 0..20 {
        let text = format!("again {round:03}");
        machines.writes(0, &text);
        assert_eq!((machines.reads(1), machines.reads(0)), (text.clone(), text));
    }
}

/// An open must report to the kernel that reads go past its pages.
#[test]
fn who_opens_what_another_wrote_lately_and_keeps_it_open_pays_no_more() {
    let mut machines = Machines::new(8, 2);
    machines.writes(0, "round 000");
    let file = machines.file(0);
    machines.stats(1, &file);
    assert!(machines.opens(1, READING), "it may come to pass to and fro");
    machines.opens(0, WRITING);
    costs_four_messages(&mut machines, |it, text| it.writes_on(0, text), |it| it.reads_on(1));
}

#[test]
fn pages_are_kept_of_what_nobody_else_wrote_lately() {
    let mut machines = Machines::new(9, 2);
    machines.writes(0, "mine");
    let file = machines.file(0);
    assert!(!machines.opens(0, READING), "who wrote it has it to itself");
    machines.stats(1, &file);
    assert!(
        !machines.opens(1, OpenModes::posix(true, true)),
        "who may write may come to be the one who does"
    );
    machines.closes(1, OpenModes::posix(true, true));
    assert!(machines.opens(1, READING) && machines.opens(1, READING));
    assert_eq!(machines.reads_on(1), "mine");
    assert!(!machines.opens(1, READING), "who reads it once more may read it often");
}

#[test]
fn pages_are_kept_of_what_was_written_long_ago() {
    let mut machines = Machines::new(10, 2);
    machines.writes(0, "long ago");
    let file = machines.file(0);
    machines.stats(1, &file);
    assert!(machines.opens(1, READING));
    for _ in 0..40 {
        machines.host.pass_time(10_000).unwrap();
        machines.host.deliver().unwrap();
    }
    machines.stats(1, &file);
    assert!(!machines.opens(1, READING));
}

/// As when a file is opened each time: the kernel asks for its size first.
#[test]
fn who_is_told_once_more_what_nobody_has_changed_costs_no_flush() {
    let mut machines = Machines::new(7, 2);
    let file = machines.file(0);
    for round in 0..100 {
        let text = format!("round {round:03}");
        let first = machines.cost(|machines| {
            machines.writes(0, &text);
            assert_eq!(machines.stats(1, &file).0.size, text.len() as u64);
        });
        let second = machines.cost(|machines| assert_eq!(machines.reads(1), text));
        if round >= 8 {
            // The writer is in write-through by now.
            assert_eq!((first, second), ((4, 1), (2, 0)), "round {round}");
        }
    }
}

#[test]
fn what_does_not_change_any_more_is_leased() {
    let mut machines = Machines::new(2, 2);
    for round in 0..10 {
        machines.writes(0, &format!("round {round}"));
        machines.reads(1);
    }
    for _ in 0..6 {
        assert_eq!(machines.reads(1), "round 9");
    }
    // The bytes were dropped with the last handle. The reader asks for them under its lease; the
    // writer is not asked.
    let cost = machines.cost(|machines| assert_eq!(machines.reads(1), "round 9"));
    assert_eq!(cost.0, 2);
    let file = machines.file(0);
    let cost = machines.cost(|machines| assert!(machines.stats(1, &file).1));
    assert_eq!(cost, (0, 0));
}

#[test]
fn a_file_that_two_write_in_turns_is_what_was_written_last() {
    let mut machines = Machines::new(3, 3);
    for round in 0..60 {
        let text = format!("round {round}");
        machines.writes(round % 3, &text);
        for at in 0..3 {
            assert_eq!(machines.reads(at), text, "machine {at} in round {round}");
        }
    }
}

#[test]
fn the_size_of_a_growing_file_is_told_to_who_looks_and_its_writer_keeps_it() {
    let mut machines = Machines::new(4, 2);
    let file = machines.file(0);
    let mut kept = true;
    for round in 1..30 {
        machines.writes(0, &"x".repeat(round));
        let stat;
        (stat, kept) = machines.stats(1, &file);
        assert_eq!(stat.size, round as u64);
    }
    assert!(!kept, "what passes to and fro was leased");
    // Each change was looked at, and so goes to the server at once, until no machine looks any
    // more.
    let costs = [1, 2, 3].map(|_| machines.cost(|machines| machines.writes(0, "it needs nobody")));
    assert_eq!(costs, [(2, 1), (2, 1), (0, 0)]);
}

#[test]
fn a_directorys_times_are_told_to_who_looks_and_who_makes_names_in_it_keeps_the_right() {
    let mut machines = Machines::new(5, 2);
    let root = FileId::root();
    let mut last: Option<Timestamp> = None;
    let mut kept = true;
    for round in 0..20 {
        creates(&mut machines, round % 2, &format!("name {round}"));
        let stat;
        (stat, kept) = machines.stats(1 - round % 2, &root);
        assert!(last.is_none_or(|last| last < stat.mtime), "the times before the last name in round {round}");
        last = Some(stat.mtime);
    }
    assert!(!kept);
    // The way to a name needs no times of the directory, and no request is sent for them.
    let cost = machines.cost(|machines| {
        let glance = machines.host.does(0, Call::Glance(call::Glance { file: root.clone() }));
        assert!(matches!(glance, Reply::Uncached(_)), "{glance:?}");
    });
    assert_eq!(cost, (0, 0));
}

/// A lease only to touch gives no knowledge of the times: older knowledge of them goes.
#[test]
fn who_may_only_touch_does_not_know() {
    let mut machines = Machines::new(6, 2);
    let root = FileId::root();
    for round in 0..8 {
        creates(&mut machines, 0, &format!("mine {round}"));
        creates(&mut machines, 1, &format!("theirs {round}"));
        let (there, _) = machines.stats(1, &root);
        let (here, _) = machines.stats(0, &root);
        assert_eq!((here.mtime, here.attributes.ctime), (there.mtime, there.attributes.ctime));
    }
}
