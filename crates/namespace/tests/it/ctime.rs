//! The time of the last status change moves with every change: incremental backups compare it.

use crate::tree::{Tree, at, decide_proved, root};
use ident::FileId;
use lease::Label;
use namespace::*;

/// Everything that moves the time of the last status change of a file, at `time`.
fn changes(file: &FileId, time: Timestamp) -> Vec<Operation> {
    let (dir, cred, label) =
        (FileId::root(), Cred::default(), |name: &str| Label::new(name.as_bytes()).unwrap());
    let attribute = || Label::attribute(b"user.x").unwrap();
    let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    let touch = AttributeChange { mtime: Some(SetTime::At(at(5))), ..AttributeChange::default() };
    let value = Vec::new();
    vec![
        Operation::SetAttributes(operation::SetAttributes {
            file: file.clone(),
            change,
            cred: cred.clone(),
            time,
        }),
        Operation::SetAttributes(operation::SetAttributes {
            file: file.clone(),
            change: touch,
            cred: cred.clone(),
            time,
        }),
        Operation::SetXattr(operation::SetXattr {
            file: file.clone(),
            name: attribute(),
            value,
            mode: XattrMode::Set,
            cred: cred.clone(),
            time,
        }),
        Operation::Link(operation::Link {
            file: file.clone(),
            dir: dir.clone(),
            label: label("b"),
            position: 9,
            cred: cred.clone(),
            time,
            replaced: None,
            open: false,
        }),
        Operation::Unlink(operation::Unlink {
            dir: dir.clone(),
            label: label("a"),
            directory: false,
            open: true,
            cred: cred.clone(),
            time,
            pending: None,
        }),
        Operation::Rename(operation::Rename {
            from_dir: dir.clone(),
            from: label("a"),
            to_dir: dir,
            to: label("c"),
            mode: RenameMode::Replace,
            position: 10,
            whiteout: None,
            open: false,
            cred,
            time,
            source: None,
            replaced: None,
        }),
    ]
}

/// The status change time that `stat` shows of `file`.
fn ctime(tree: &Tree, file: &FileId) -> Timestamp {
    let stat = decide(&Operation::Stat(operation::Stat { file: file.clone() }), tree);
    let Verdict::Done { answer: Answer::Stat(stat), .. } = stat else { panic!("{stat:?}") };
    stat.attributes.ctime
}

/// A tree with one file, `a`, that was made at 1000 s.
fn one_file() -> (Tree, FileId) {
    let (mut tree, dir, label) = (Tree::new(root(0o755)), FileId::root(), Label::new(b"a").unwrap());
    let file = FileId::for_child(&dir, 2, 2);
    let spec = FileSpec::new(FileKind::Regular, 0o644, 0);
    let new = NewFile { file: file.clone(), ino: 2, spec };
    let (cred, time) = (Cred::default(), at(1000));
    let create = Operation::Create(operation::Create { dir, label, position: 2, new, cred, time });
    let Verdict::Done { effects, .. } = decide(&create, &tree) else { panic!() };
    effects.iter().for_each(|effect| tree.apply(effect));
    (tree, file)
}

#[test]
fn a_clock_that_is_behind_hides_no_change() {
    let (tree, file) = one_file();
    for operation in changes(&file, at(990)) {
        let mut tree = tree.clone();
        let Verdict::Done { effects, .. } = decide_proved(&tree, &operation) else { panic!("{operation:?}") };
        effects.iter().for_each(|effect| tree.apply(effect));
        assert!(ctime(&tree, &file) > at(1000), "{operation:?}");
    }
}
