//! The differences between the versions of the rules.

use crate::tree::{Tree, at, decide_proved_by, root};
use ident::FileId;
use lease::Label;
use namespace::*;

/// All operations that move the time of a file's last status change, at `time`.
fn changes(file: &FileId, time: Timestamp) -> Vec<Operation> {
    let (dir, cred, label) =
        (FileId::root(), Cred::default(), |name: &str| Label::new(name.as_bytes()).unwrap());
    let attribute = || Label::attribute(b"user.x").unwrap();
    let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    let touch = AttributeChange { mtime: Some(SetTime::At(at(5))), ..AttributeChange::default() };
    let value = Vec::new();
    vec![
        Operation::SetAttributes { file: file.clone(), change, cred: cred.clone(), time },
        Operation::SetAttributes { file: file.clone(), change: touch, cred: cred.clone(), time },
        Operation::SetXattr {
            file: file.clone(),
            name: attribute(),
            value,
            mode: XattrMode::Set,
            cred: cred.clone(),
            time,
        },
        Operation::Link {
            file: file.clone(),
            dir: dir.clone(),
            label: label("b"),
            position: 9,
            cred: cred.clone(),
            time,
        },
        Operation::Unlink {
            dir: dir.clone(),
            label: label("a"),
            directory: false,
            open: true,
            cred: cred.clone(),
            time,
        },
        Operation::Rename {
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
        },
    ]
}

/// The status change time that `stat` shows of `file`.
fn ctime(tree: &Tree, file: &FileId) -> Timestamp {
    let stat = decide(Rules::NEWEST, &Operation::Stat { file: file.clone() }, tree);
    let Verdict::Done { answer: Answer::Stat(stat), .. } = stat else { panic!("{stat:?}") };
    stat.attributes.ctime
}

/// A tree with one file, `a`, that was made at 1000 s.
fn one_file() -> (Tree, FileId) {
    let (mut tree, dir, label) = (Tree::new(root(0o755)), FileId::root(), Label::new(b"a").unwrap());
    let file = FileId::for_child(&dir, 2, 2);
    let (kind, target) = (FileKind::Regular, Vec::new());
    let new = NewFile { file: file.clone(), ino: 2, kind, mode: 0o644, umask: 0, rdev: 0, target };
    let (cred, time) = (Cred::default(), at(1000));
    let create = Operation::Create { dir, label, position: 2, new, cred, time };
    let Verdict::Done { effects, .. } = decide(Rules::NEWEST, &create, &tree) else { panic!() };
    effects.iter().for_each(|effect| tree.apply(effect));
    (tree, file)
}

#[test]
fn by_the_third_rules_a_clock_that_is_behind_hides_no_change() {
    let (tree, file) = one_file();
    for operation in changes(&file, at(990)) {
        for (rules, moves) in [(Rules::Two, false), (Rules::Three, true)] {
            let mut tree = tree.clone();
            let Verdict::Done { effects, .. } = decide_proved_by(rules, &tree, &operation) else {
                panic!("{operation:?}")
            };
            effects.iter().for_each(|effect| tree.apply(effect));
            assert_eq!(ctime(&tree, &file) > at(1000), moves, "{rules:?} {operation:?}");
        }
    }
}

/// With a clock that is not behind, both versions give the same result, as for most updates.
#[test]
fn by_a_clock_that_is_ahead_all_rules_say_the_same() {
    let (tree, file) = one_file();
    for operation in changes(&file, at(1010)) {
        let verdicts = Rules::ALL.map(|rules| decide_proved_by(rules, &tree, &operation));
        assert_eq!(verdicts[0], verdicts[1], "{operation:?}");
    }
}

#[test]
fn rules_are_known_by_their_numbers() {
    assert_eq!(Rules::ALL.map(|rules| Rules::numbered(rules.number())), Rules::ALL.map(Some));
    assert_eq!((Rules::numbered(1), Rules::numbered(4)), (None, None));
}
