//! link, unlink, rmdir and rename, as rows: every combination of kinds, and the fate of the files.

use crate::situation::{NOW, Situation, rows};
use crate::tree::{Seen, at};
use ident::FileId;
use lease::{Field, Kind, Label, Lease, OpenModes};
use namespace::{
    Answer, Effect, Error, FileKind, LINKS_MAX, Operation, Timestamp, Verdict, decide, operation,
};

const KINDS: &str = "
    d        drwxrwxrwx 1:10
    f        -rw-r--r-- 1:10
    g        -rw-r--r-- 1:10
    h        = g
    l        lrwxrwxrwx 1:10
    empty    drwxr-xr-x 1:10
    void     drwxr-xr-x 1:10
    full     drwxr-xr-x 1:10
    full/x   -rw-r--r-- 1:10
    full/y   drwxr-xr-x 1:10
    full/y/z drwxr-xr-x 1:10";

#[test]
fn unlink_and_rmdir() {
    rows(
        KINDS,
        "0:0 unlink f         -> ok; f gone; f dead
         0:0 unlink f open    -> ok; f gone; f orphaned
         0:0 unlink g         -> ok; g gone; h is g; h links 1
         0:0 unlink g open    -> ok; h links 1
         0:0 unlink l         -> ok; l dead
         0:0 unlink empty     -> IsDirectory
         0:0 unlink full      -> IsDirectory
         0:0 unlink nothing   -> NotFound
         0:0 unlink f/x       -> NotDirectory
         0:0 rmdir f          -> NotDirectory
         0:0 rmdir l          -> NotDirectory
         0:0 rmdir nothing    -> NotFound
         0:0 rmdir full       -> NotEmpty
         0:0 rmdir empty      -> ok; empty dead
         0:0 rmdir empty open -> ok; empty gone; empty orphaned",
    );
}

#[test]
fn link() {
    rows(
        KINDS,
        "0:0 link f d/f       -> ok; d/f is f; f links 2
         0:0 link g d/f       -> ok; g links 3
         0:0 link l d/l       -> ok; d/l is l
         0:0 link empty d/e   -> NotPermitted
         0:0 link f g         -> Exists
         0:0 link f f         -> Exists
         0:0 link f l/x       -> NotDirectory",
    );
}

#[test]
fn rename_replaces_what_kinds_allow() {
    rows(
        KINDS,
        "0:0 rename f d/new       -> ok; f gone; d/new is f
         0:0 rename f new         -> ok; new is f; f gone
         0:0 rename f f           -> ok; f is f
         0:0 rename g h           -> ok; g is g; h is g; g links 2
         0:0 rename f g           -> ok; g is f; h is g; h links 1; f gone
         0:0 rename f g open      -> ok; h links 1
         0:0 rename h f           -> ok; f is g; g links 2; h gone; f dead
         0:0 rename h f open      -> ok; f orphaned
         0:0 rename f l           -> ok; l is f; l dead
         0:0 rename l f           -> ok; f is l; f dead
         0:0 rename f empty       -> IsDirectory
         0:0 rename l full        -> IsDirectory
         0:0 rename empty f       -> NotDirectory
         0:0 rename empty l       -> NotDirectory
         0:0 rename empty new     -> ok; new is empty
         0:0 rename empty d/new   -> ok; d/new is empty; empty gone
         0:0 rename empty void    -> ok; void is empty; void dead
         0:0 rename empty void open -> ok; void orphaned
         0:0 rename empty full    -> NotEmpty
         0:0 rename full empty    -> ok; empty is full; empty/y/z is full/y/z
         0:0 rename full full     -> ok
         0:0 rename full d/f      -> ok; d/f/x is full/x
         0:0 rename full full/y/z -> Invalid
         0:0 rename full full/new -> Invalid
         0:0 rename full full/y/new -> Invalid
         0:0 rename full/y full   -> NotEmpty
         0:0 rename full/y/z full -> NotEmpty
         0:0 rename full/y/z full/y -> NotEmpty
         0:0 rename full/y/z d/z  -> ok; d/z is full/y/z
         0:0 rename nothing f     -> NotFound
         0:0 rename nothing new   -> NotFound
         0:0 rename f l/x         -> NotDirectory
         0:0 rename l/x f         -> NotDirectory",
    );
}

#[test]
fn rename_without_replacement() {
    rows(
        KINDS,
        "0:0 noreplace f new     -> ok; new is f
         0:0 noreplace f g       -> Exists
         0:0 noreplace g h       -> Exists
         0:0 noreplace f f       -> Exists
         0:0 noreplace f empty   -> Exists
         0:0 noreplace empty f   -> Exists
         0:0 noreplace nothing f -> NotFound",
    );
}

#[test]
fn exchange() {
    rows(
        KINDS,
        "0:0 exchange f g           -> ok; g is f; f is g; f links 2
         0:0 exchange g h           -> ok; g is g; h is g
         0:0 exchange f f           -> ok
         0:0 exchange f full        -> ok; f is full; full is f; f/x is full/x
         0:0 exchange full empty    -> ok; empty/x is full/x; full is empty
         0:0 exchange full/x g      -> ok; full/x is g; g is full/x
         0:0 exchange full/y f      -> ok; f/z is full/y/z; full/y is f
         0:0 exchange full/y empty  -> ok; full/y is empty; empty is full/y
         0:0 exchange full full/y   -> Invalid
         0:0 exchange full/y full   -> Invalid
         0:0 exchange full/x full   -> Invalid
         0:0 exchange full/y/z full -> Invalid
         0:0 exchange f new         -> NotFound
         0:0 exchange new f         -> NotFound",
    );
}

/// The character device 0 marks what an overlay hides. It appears in the same step that moves the
/// file away.
#[test]
fn a_rename_leaves_a_whiteout() {
    rows(
        KINDS,
        "0:0 leave f new        -> ok; new is f; f c--------- 0:0
         0:0 leave f g          -> ok; g is f; f c--------- 0:0; h links 1
         0:0 leave full new     -> ok; new is full; new/x is full/x; full c--------- 0:0
         0:0 leave f empty/new  -> ok; empty/new is f; f c--------- 0:0
         0:0 leave g h          -> ok; g is g; h is g
         0:0 leave nothing new  -> NotFound",
    );
}

/// A listing ends at the last entry that existed when it began. It must not miss a name that is
/// bound throughout.
#[test]
fn a_label_that_is_there_throughout_keeps_its_position() {
    let position = |s: &mut Situation, path: &str| match s.run_text(&format!("0:0 lookup {path}")) {
        Ok(Answer::Entry(entry)) => entry.position,
        other => panic!("{path}: {other:?}"),
    };
    for (text, kept) in [("0:0 rename f g", &["g"][..]), ("0:0 exchange f full", &["f", "full"])] {
        let mut s = Situation::new(KINDS);
        let before: Vec<u64> = kept.iter().map(|path| position(&mut s, path)).collect();
        s.run_text(text).unwrap();
        let after: Vec<u64> = kept.iter().map(|path| position(&mut s, path)).collect();
        assert_eq!(before, after, "{text}");
    }
    let mut s = Situation::new(KINDS);
    let last = position(&mut s, "full");
    s.run_text("0:0 rename f new").unwrap();
    assert!(position(&mut s, "new") > last, "what is new comes behind");
}

/// A directory that gets another parent changes itself, since it contains `..`.
#[test]
fn moving_a_directory_needs_write_permission_on_it() {
    rows(
        "a     drwxrwxrwx 0:0
         b     drwxrwxrwx 0:0
         a/own drwxr-xr-x 1:10
         a/alt drwxr-xr-x 2:20
         b/alt drwxr-xr-x 2:20
         b/f   -rw-r--r-- 2:20",
        "1:10 rename a/alt b/x       -> AccessDenied
         1:10 rename a/alt a/x       -> ok
         1:10 rename a/own b/x       -> ok
         0:0  rename a/alt b/x       -> ok
         2:20 exchange a/own b/alt   -> AccessDenied
         1:10 exchange a/own b/alt   -> AccessDenied
         1:10 exchange a/own b/f     -> ok
         2:20 exchange b/f a/own     -> AccessDenied
         1:10 exchange a/own a/alt   -> ok",
    );
}

#[test]
fn rename_needs_write_permission_on_both_directories() {
    rows(
        "a   drwxrwxrwx 0:0
         b   drwxr-xr-x 0:0
         c   drwxr--r-- 0:0
         a/f -rw-r--r-- 1:10
         b/f -rw-r--r-- 1:10
         c/f -rw-r--r-- 1:10",
        "1:10 rename a/f b/x   -> AccessDenied
         1:10 rename b/f a/x   -> AccessDenied
         1:10 rename a/f b/f   -> AccessDenied
         1:10 rename a/f c/x   -> AccessDenied
         1:10 rename a/x b/x   -> NotFound
         1:10 rename a/x c/x   -> AccessDenied
         1:10 rename a/f a/x   -> ok
         1:10 noreplace a/f b/f -> Exists",
    );
}

#[test]
fn times_that_change() {
    let stat =
        |s: &mut Situation, path: &str| match s.run(&Operation::Stat(operation::Stat { file: s.id(path) })) {
            Ok(Answer::Stat(stat)) => (stat.mtime == at(NOW), stat.attributes.ctime == at(NOW)),
            other => panic!("{other:?}"),
        };
    let both = (true, true);
    let ctime = (false, true);
    let mut s = Situation::new(KINDS);
    s.run_text("0:0 rename f d/f").unwrap();
    assert_eq!([stat(&mut s, "."), stat(&mut s, "d"), stat(&mut s, "d/f")], [both, both, ctime]);
    let mut s = Situation::new(KINDS);
    s.run_text("0:0 unlink g").unwrap();
    assert_eq!([stat(&mut s, "."), stat(&mut s, "h"), stat(&mut s, "f")], [both, ctime, (false, false)]);
    s.run_text("0:0 link f full/new").unwrap();
    assert_eq!([stat(&mut s, "full"), stat(&mut s, "f")], [both, ctime]);
    s.run_text("0:0 exchange empty full/y").unwrap();
    assert_eq!(
        [stat(&mut s, "empty"), stat(&mut s, "full/y"), stat(&mut s, "d")],
        [ctime, ctime, (false, false)]
    );
}

#[test]
fn a_file_has_no_more_links_than_the_limit() {
    let mut s = Situation::new(KINDS);
    let f = s.id("f");
    let link = s.operation(&["0:0", "link", "f", "new"]);
    s.tree.files.get_mut(&f).unwrap().attributes.links = LINKS_MAX;
    assert!(matches!(decide(&link, &s.tree), Verdict::Refused { error: Error::TooManyLinks, .. }));
    s.tree.files.get_mut(&f).unwrap().attributes.links = LINKS_MAX - 1;
    assert!(matches!(decide(&link, &s.tree), Verdict::Done { .. }));
}

#[test]
fn an_orphan_is_disposed_of_and_linked_nowhere() {
    let mut s = Situation::new(KINDS);
    let (f, empty) = (s.id("f"), s.id("empty"));
    let link = s.operation(&["0:0", "link", "f", "new"]);
    let create = s.operation(&["0:0", "create", "644", "0", "empty/new"]);
    let into = s.operation(&["0:0", "rename", "g", "empty/new"]);
    assert_eq!(
        s.run(&Operation::Dispose(operation::Dispose { file: f.clone(), time: at(9) })),
        Err(Error::Invalid)
    );
    s.run_text("0:0 unlink f open").unwrap();
    s.run_text("0:0 rmdir empty open").unwrap();
    assert_eq!(s.run(&link), Err(Error::NotFound));
    assert_eq!(s.run(&create), Err(Error::NotFound));
    assert_eq!(s.run(&into), Err(Error::NotFound));
    for file in [f, empty] {
        s.run(&Operation::Dispose(operation::Dispose { file: file.clone(), time: at(9) })).unwrap();
        assert_eq!(s.run(&Operation::Stat(operation::Stat { file: file.clone() })), Err(Error::Stale));
        assert_eq!(s.run(&Operation::Dispose(operation::Dispose { file, time: at(9) })), Err(Error::Stale));
    }
}

/// The client's own values and its knowledge of the others' decide whether a file dies or is
/// orphaned.
#[test]
fn death_needs_to_know_that_nobody_else_has_it_open() {
    let mut s = Situation::new(KINDS);
    let f = s.id("f");
    let root = FileId::root();
    let label = Label::new(b"f").unwrap();
    let leases = [
        Lease::new(root.clone(), Field::Attributes, Kind::Read),
        Lease::new(root.clone(), Field::Child(label), Kind::Write),
        Lease::new(root, Field::Times, Kind::Touch),
        Lease::new(f.clone(), Field::Attributes, Kind::Write),
        Lease::new(f.clone(), Field::Parent, Kind::Write),
    ];
    let open = s.operation(&["0:0", "unlink", "f", "open"]);
    let closed = s.operation(&["0:0", "unlink", "f"]);
    let seen = Seen { tree: &s.tree, leases: &leases };
    let Verdict::Done { effects, .. } = decide(&open, &seen) else { panic!() };
    assert_eq!(effects.iter().filter(|effect| **effect == Effect::Orphan { file: f.clone() }).count(), 1);
    let others_open = Lease::new(f.clone(), Field::Handles, Kind::Read);
    assert_eq!(decide(&closed, &seen), Verdict::Unknown { wants: vec![others_open.clone()] });
    let leases = [&leases[..], std::slice::from_ref(&others_open)].concat();
    for (elsewhere, ends) in
        [(false, Effect::Death { file: f.clone() }), (true, Effect::Orphan { file: f.clone() })]
    {
        s.tree.elsewhere = if elsewhere { [(f.clone(), OpenModes::with([]))].into() } else { [].into() };
        let Verdict::Done { effects, .. } = decide(&closed, &Seen { tree: &s.tree, leases: &leases }) else {
            panic!()
        };
        assert!(effects.contains(&ends), "{effects:?}");
    }
    // No other client may dispose of an orphan that is still open elsewhere.
    s.run_text("0:0 unlink f open").unwrap();
    let dispose = Operation::Dispose(operation::Dispose { file: f.clone(), time: at(9) });
    let Verdict::Refused { error, evidence } = decide(&dispose, &s.tree) else { panic!() };
    assert_eq!(error, Error::Invalid);
    assert!(evidence.contains(&others_open));
    s.tree.elsewhere.clear();
    assert!(matches!(decide(&dispose, &s.tree), Verdict::Done { .. }));
}

/// Two links of one file stay as they are, and the rename takes no lease to write.
#[test]
fn a_rename_that_changes_nothing_only_reads() {
    let mut s = Situation::new(KINDS);
    let rename = s.operation(&["0:0", "rename", "g", "h"]);
    let root = |field| Lease::new(FileId::root(), field, Kind::Read);
    let leases = [root(Field::Attributes), root(Field::Children)];
    let verdict = decide(&rename, &Seen { tree: &s.tree, leases: &leases });
    assert!(matches!(verdict, Verdict::Done { ref effects, .. } if effects.is_empty()), "{verdict:?}");
}

/// A client knows no paths. It ships this operation, and no other rename.
#[test]
fn moving_a_directory_wants_the_path() {
    let mut s = Situation::new(KINDS);
    let everything = |tree: &crate::tree::Tree| -> Vec<Lease> {
        let fields = [
            Field::Attributes,
            Field::Disposition,
            Field::Parent,
            Field::Times,
            Field::Children,
            Field::Xattrs,
            Field::Handles,
        ];
        let files = tree.files.keys();
        files
            .flat_map(|file| fields.iter().map(|f| Lease::new(file.clone(), f.clone(), Kind::Write)))
            .collect()
    };
    let leases = everything(&s.tree);
    for (row, path) in [
        ("rename full d/full", Some("d")),
        ("exchange full d", None),
        ("exchange f full/y", Some(".")),
        ("rename full new", None),
        ("rename f d/f", None),
    ] {
        let words: Vec<&str> = ["0:0"].into_iter().chain(row.split(' ')).collect();
        let operation = s.operation(&words);
        let verdict = decide(&operation, &Seen { tree: &s.tree, leases: &leases });
        match path {
            Some(dir) => {
                let wants = vec![Lease::new(s.id(dir), Field::Path, Kind::Read)];
                assert_eq!(verdict, Verdict::Unknown { wants }, "{row}");
            }
            None => assert!(matches!(verdict, Verdict::Done { .. }), "{row}"),
        }
    }
}

/// Labels are leased by their fold and bound exactly.
#[test]
fn labels_that_differ_in_case_share_a_lease() {
    let mut s = Situation::new("readme -rw-r--r-- 1:10");
    s.run_text("0:0 create 644 0 README").unwrap();
    assert_ne!(s.id("readme"), s.id("README"));
    let lookup = s.operation(&["0:0", "lookup", "ReadMe"]);
    let Verdict::Refused { error: Error::NotFound, evidence } = decide(&lookup, &s.tree) else { panic!() };
    assert!(evidence.iter().any(|lease| lease.field == Field::Child(Label::new(b"readme").unwrap())));
}

/// Operations that a correct client never sends.
#[test]
fn nonsense() {
    let mut s = Situation::new(KINDS);
    let good = s.operation(&["0:0", "create", "644", "22", "new"]);
    assert!(matches!(decide(&good, &s.tree), Verdict::Done { .. }));
    let Operation::Create(operation::Create { dir, label, position, new, cred, time }) = good else {
        panic!()
    };
    let operation = |label: &[u8], position: u64, change: &dyn Fn(&mut namespace::NewFile), nanos: u32| {
        let (label, mut new) = (Label::attribute(label).unwrap(), new.clone());
        change(&mut new);
        let (dir, cred, time) = (dir.clone(), cred.clone(), Timestamp { nanos, ..time });
        Operation::Create(operation::Create { dir, label, position, new, cred, time })
    };
    let same: &dyn Fn(&mut namespace::NewFile) = &|_| {};
    let bad = [
        operation(b"..", position, same, 0),
        operation(b".", position, same, 0),
        operation(b"a/b", position, same, 0),
        operation(b"a", position + 1, same, 0),
        operation(b"a", 0, same, 0),
        operation(b"a", 1 << 63, &|new| new.file = FileId::for_child(&FileId::root(), 1 << 63, new.ino), 0),
        operation(b"a", position, same, 1_000_000_000),
        operation(b"a", position, &|new| new.file = FileId::root().child(77), 0),
        operation(b"a", position, &|new| new.ino = 0, 0),
        operation(b"a", position, &|new| new.ino = 1 << 63, 0),
        operation(b"a", position, &|new| new.spec.mode = 0o10000, 0),
        operation(b"a", position, &|new| new.spec.umask = 0o1000, 0),
        operation(b"a", position, &|new| new.spec.rdev = 1, 0),
        operation(b"a", position, &|new| new.spec.target = b"x".to_vec(), 0),
        operation(b"a", position, &|new| new.spec.kind = FileKind::Symlink, 0),
        operation(
            b"a",
            position,
            &|new| (new.spec.kind, new.spec.target) = (FileKind::Symlink, vec![b'x'; 4096]),
            0,
        ),
        operation(
            b"a",
            position,
            &|new| (new.spec.kind, new.spec.target) = (FileKind::Symlink, b"a\0b".to_vec()),
            0,
        ),
    ];
    let label_of_lookup = Operation::Lookup(operation::Lookup {
        dir: FileId::root(),
        label: Label::attribute(b"..").unwrap(),
        cred: cred.clone(),
    });
    for operation in bad.into_iter().chain([label_of_lookup, s.operation(&["0:0", "chmod", "10000", "f"])]) {
        let nothing = Seen { tree: &s.tree, leases: &[] };
        let refused = Verdict::Refused { error: Error::Invalid, evidence: vec![] };
        assert_eq!(decide(&operation, &nothing), refused, "{operation:?}");
    }
    let longest = operation(
        b"a",
        position,
        &|new| (new.spec.kind, new.spec.target) = (FileKind::Symlink, vec![b'x'; 4095]),
        0,
    );
    assert!(matches!(decide(&longest, &s.tree), Verdict::Done { .. }));
    assert_eq!(label.as_bytes(), b"new");
}
