//! Windows' handles: conflicts between opens, and the end of a file with a pending deletion
//! (BlackBox §3.3, §4.4).

use crate::situation::Situation;
use crate::tree::{Seen, at};
use ident::FileId;
use lease::{Field, Kind, Label, Lease, Mode, OpenModes};
use namespace::{Answer, Cred, Effect, Error, Link, Operation, Verdict, decide, operation};

const FILES: &str = "
    . drwxrwxrwx 0:0
    d drwxrwxrwx 1:1
    d/f -rw-rw-rw- 1:1
    e drwxrwxrwx 1:1
";

fn link(dir: &FileId, label: &str) -> Link {
    Link { dir: dir.clone(), label: Label::new(label.as_bytes()).unwrap() }
}

fn user() -> Cred {
    Cred { uid: 1, gid: 1, ..Cred::default() }
}

fn deleting() -> OpenModes {
    OpenModes::with([Mode::AccessDelete])
}

fn opening(file: &FileId, open: OpenModes, own: OpenModes) -> Operation {
    Operation::Open(operation::Open { file: file.clone(), mask: 0, open, own, cred: user() })
}

fn setting(file: &FileId, link: Option<Link>) -> Operation {
    Operation::SetDisposition(operation::SetDisposition {
        file: file.clone(),
        link,
        own: deleting(),
        cred: user(),
        time: at(9),
    })
}

#[test]
fn a_conflict_is_known_by_one_other_value() {
    let s = Situation::new(FILES);
    let f = s.id("d/f");
    let mut tree = s.tree.clone();
    tree.elsewhere.insert(f.clone(), OpenModes::with([Mode::AccessRead, Mode::ExcludeWrite]));
    let writing = opening(&f, OpenModes::with([Mode::AccessRead, Mode::AccessWrite]), OpenModes::CLOSED);
    let Verdict::Refused { error, evidence } = decide(&writing, &tree) else { panic!() };
    assert_eq!(error, Error::SharingViolation);
    let read = |field| Lease::new(f.clone(), field, Kind::Read);
    let fields = [Field::Attributes, Field::Disposition, Field::Mode(Mode::ExcludeWrite)];
    assert_eq!(evidence, fields.map(read));
    // The evidence alone says so again, without a message.
    assert!(matches!(decide(&writing, &Seen { tree: &tree, leases: &evidence }), Verdict::Refused { .. }));
}

#[test]
fn ones_own_handles_conflict_too() {
    let s = Situation::new(FILES);
    let f = s.id("d/f");
    let excluding = OpenModes::with([Mode::AccessRead, Mode::ExcludeRead]);
    let refused = decide(&opening(&f, OpenModes::posix(true, false), excluding), &s.tree);
    assert!(matches!(refused, Verdict::Refused { error: Error::SharingViolation, .. }), "{refused:?}");
    let done = decide(&opening(&f, OpenModes::posix(false, true), excluding), &s.tree);
    assert!(matches!(done, Verdict::Done { .. }), "{done:?}");
}

#[test]
fn what_one_has_open_already_needs_no_leave() {
    let s = Situation::new(FILES);
    let f = s.id("d/f");
    let open = OpenModes::posix(true, false);
    let leases = [
        Lease::new(f.clone(), Field::Attributes, Kind::Read),
        Lease::new(f.clone(), Field::Disposition, Kind::Read),
        Lease::new(f.clone(), Field::Mode(Mode::ExcludeRead), Kind::Read),
    ];
    let seen = Seen { tree: &s.tree, leases: &leases };
    assert!(matches!(decide(&opening(&f, open, open), &seen), Verdict::Done { .. }));
    let Verdict::Unknown { wants } = decide(&opening(&f, open, OpenModes::CLOSED), &seen) else { panic!() };
    let touch = |field| Lease::new(f.clone(), field, Kind::Touch);
    assert_eq!(wants, [touch(Field::Handles), touch(Field::Mode(Mode::AccessRead))]);
}

#[test]
fn a_file_about_to_be_deleted_gets_no_more_handles() {
    let mut s = Situation::new(FILES);
    let (d, f) = (s.id("d"), s.id("d/f"));
    s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
    assert_eq!(s.run(&opening(&f, OpenModes::with([]), OpenModes::CLOSED)), Err(Error::DeletePending));
    s.run(&setting(&f, None)).unwrap();
    assert_eq!(s.run(&opening(&f, OpenModes::with([]), OpenModes::CLOSED)), Ok(Answer::Nothing));
}

#[test]
fn setting_the_disposition_asks_what_unlink_asks() {
    let rows: &[(&str, &str, Result<(), Error>)] = &[
        ("d/f", "d f", Ok(())),
        ("d/f", "d g", Err(Error::NotFound)),
        ("d/f", "e f", Err(Error::NotFound)),
        ("d", ". d", Err(Error::NotEmpty)),
        ("e", ". e", Ok(())),
    ];
    for (file, name, expected) in rows {
        let mut s = Situation::new(FILES);
        let (dir, label) = name.split_once(' ').unwrap();
        let dir = if dir == "." { FileId::root() } else { s.id(dir) };
        let operation = setting(&s.id(file), Some(link(&dir, label)));
        assert_eq!(s.run(&operation).map(|_| ()), *expected, "{file} as {name}");
    }
    // The user lacks the right to change the directory, or a handle that may delete.
    let mut s = Situation::new("d drwxr-xr-x 2:2\nd/f -rw-rw-rw- 1:1");
    let (d, f) = (s.id("d"), s.id("d/f"));
    assert_eq!(s.run(&setting(&f, Some(link(&d, "f")))), Err(Error::AccessDenied));
    let (own, cred, time) = (OpenModes::posix(true, true), Cred::default(), at(9));
    let unentitled =
        Operation::SetDisposition(operation::SetDisposition { file: f, link: None, own, cred, time });
    assert_eq!(s.run(&unentitled), Err(Error::AccessDenied));
}

#[test]
fn the_last_close_deletes_what_is_to_be_deleted() {
    let mut s = Situation::new(FILES);
    let (d, f) = (s.id("d"), s.id("d/f"));
    let dispose = Operation::Dispose(operation::Dispose { file: f.clone(), time: at(10) });
    assert_eq!(s.run(&dispose), Err(Error::Invalid), "nothing is pending");
    s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
    s.tree.elsewhere.insert(f.clone(), OpenModes::with([]));
    assert_eq!(s.run(&dispose), Err(Error::Invalid), "somebody else has it open");
    s.tree.elsewhere.clear();
    s.run(&dispose).unwrap();
    assert!(!s.tree.files.contains_key(&f) && s.tree.files[&d].children.is_empty());
}

#[test]
fn the_disposition_follows_a_name_and_spares_others() {
    // After a rename the file loses the name that it has now.
    let mut s = Situation::new(FILES);
    let (d, f) = (s.id("d"), s.id("d/f"));
    s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
    s.run_text("1:1 rename d/f e/g").unwrap();
    s.run(&Operation::Dispose(operation::Dispose { file: f.clone(), time: at(10) })).unwrap();
    assert!(!s.tree.files.contains_key(&f));
    // The file has two names, and only the named one goes.
    let mut s = Situation::new(FILES);
    let (d, f) = (s.id("d"), s.id("d/f"));
    s.run_text("1:1 link d/f e/g").unwrap();
    s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
    s.run(&Operation::Dispose(operation::Dispose { file: f.clone(), time: at(10) })).unwrap();
    assert_eq!(s.tree.files[&f].links.as_slice(), [link(&s.id("e"), "g")]);
    assert_eq!(s.tree.files[&f].disposition, None);
}

#[test]
fn a_link_that_is_left_is_not_the_one_that_was_to_go() {
    let dispose = |file: &FileId| Operation::Dispose(operation::Dispose { file: file.clone(), time: at(10) });
    // The named link is gone before the last close: unlinked, or replaced by another file.
    for text in ["1:1 unlink d/f open", "1:1 rename d/g d/f open"] {
        let mut s = Situation::new(&format!("{FILES}    d/g -rw-rw-rw- 1:1"));
        let (d, f) = (s.id("d"), s.id("d/f"));
        s.run_text("1:1 link d/f e/h").unwrap();
        s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
        s.run_text(text).unwrap();
        s.run(&dispose(&f)).unwrap();
        assert_eq!(s.tree.files[&f].links.as_slice(), [link(&s.id("e"), "h")], "{text}");
        assert_eq!(s.tree.files[&f].disposition, None);
        assert_eq!(s.id("e/h"), f);
    }
    // The other link is renamed: the named one goes.
    let mut s = Situation::new(FILES);
    let (d, f) = (s.id("d"), s.id("d/f"));
    s.run_text("1:1 link d/f e/h").unwrap();
    s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
    s.run_text("1:1 rename e/h e/i").unwrap();
    s.run(&dispose(&f)).unwrap();
    assert_eq!(s.tree.files[&f].links.as_slice(), [link(&s.id("e"), "i")]);
    // Names change places: the deletion goes with the file, and with its link.
    let mut s = Situation::new(&format!("{FILES}    e/g -rw-rw-rw- 1:1"));
    let (d, f, g) = (s.id("d"), s.id("d/f"), s.id("e/g"));
    s.run(&setting(&f, Some(link(&d, "f")))).unwrap();
    s.run_text("1:1 exchange e/g d/f").unwrap();
    s.run(&dispose(&f)).unwrap();
    assert!(!s.tree.files.contains_key(&f) && s.id("d/f") == g);
}

#[test]
fn a_directory_about_to_be_deleted_gets_no_entries() {
    let mut s = Situation::new(FILES);
    let e = s.id("e");
    s.run(&setting(&e, Some(link(&FileId::root(), "e")))).unwrap();
    for row in ["1:1 create 644 0 e/x", "1:1 link d/f e/x", "1:1 rename d/f e/x"] {
        assert_eq!(s.run_text(row).map(|_| ()), Err(Error::DeletePending), "{row}");
    }
    let Verdict::Done { effects, .. } =
        decide(&Operation::Dispose(operation::Dispose { file: e.clone(), time: at(10) }), &s.tree)
    else {
        panic!()
    };
    assert!(effects.contains(&Effect::Death { file: e }));
}
