//! The fields that operations need of each file, as far as that is known beforehand, and the fields
//! that effects change.

use ident::FileId;
use lease::{Field, Kind, Label, Lease};
use namespace::{Effect, FileKind, Knowledge, Known, Operation, RenameMode, fold, operation};

/// The fields that nearly every success of the operation needs of the files that it names. Asked
/// for at once they save rounds; the decision finds the others.
pub(super) fn of_named(operation: &Operation) -> Vec<Lease> {
    let dir = |dir: &FileId, label: &Label| {
        let fields = [
            (Field::Attributes, Kind::Read),
            (Field::Child(fold(label)), Kind::Write),
            (Field::Times, Kind::Touch),
        ];
        fields.map(|(field, kind)| Lease::new(dir.clone(), field, kind))
    };
    let file = |file: &FileId, field: Field| Lease::new(file.clone(), field, Kind::Write);
    match operation {
        Operation::Unlink(operation::Unlink { dir: from, label, .. }) => dir(from, label).to_vec(),
        Operation::Link(operation::Link { file: linked, dir: to, label, .. }) => {
            let linked = [Field::Attributes, Field::Parent].map(|field| file(linked, field));
            dir(to, label).into_iter().chain(linked).collect()
        }
        Operation::Rename(operation::Rename { from_dir, from, to_dir, to, .. }) => {
            dir(from_dir, from).into_iter().chain(dir(to_dir, to)).collect()
        }
        _ => operation.files().into_iter().map(|named| file(named, Field::Attributes)).collect(),
    }
}

/// The same of a file that an entry names, and the operation does not. `want` is what the decision
/// has found so far: whether a directory is empty counts only of one that goes.
pub(super) fn of_found(operation: &Operation, want: &Field) -> &'static [(Field, Kind)] {
    const GOES: [(Field, Kind); 3] =
        [(Field::Attributes, Kind::Write), (Field::Parent, Kind::Write), (Field::Handles, Kind::Read)];
    // A rename takes the pending deletion of the link along.
    const MOVES: [(Field, Kind); 3] =
        [(Field::Attributes, Kind::Write), (Field::Parent, Kind::Write), (Field::Disposition, Kind::Read)];
    match operation {
        Operation::Unlink { .. } | Operation::Rename { .. } if *want == Field::Children => &GOES,
        Operation::Rename { .. } => &MOVES,
        Operation::Unlink { .. } | Operation::Link(operation::Link { replaced: Some(_), .. }) => &GOES[..2],
        _ => &[],
    }
}

/// The directories from which the way up counts, if the operation gives a directory another parent.
pub(super) fn ways(operation: &Operation) -> Vec<&FileId> {
    match operation {
        Operation::Rename(operation::Rename { from_dir, to_dir, .. }) if from_dir != to_dir => {
            vec![to_dir, from_dir]
        }
        _ => Vec::new(),
    }
}

/// The directories that the operation gives other parents, each with the new one, as far as the
/// entries are known.
pub(super) fn moves(operation: &Operation, knowledge: &impl Knowledge) -> Vec<(FileId, FileId)> {
    let Operation::Rename(operation::Rename { from_dir, from, to_dir, to, mode, .. }) = operation else {
        return Vec::new();
    };
    if from_dir == to_dir {
        return Vec::new();
    }
    let forth = (from_dir, from, to_dir);
    let back = (*mode == RenameMode::Exchange).then_some((to_dir, to, from_dir));
    let moved =
        |(dir, label, into): (&FileId, &Label, &FileId)| match knowledge.child(dir, label, Kind::Write) {
            Known::Used(entry) if entry.kind == FileKind::Directory => Some((entry.file, into.clone())),
            _ => None,
        };
    [forth].into_iter().chain(back).filter_map(moved).collect()
}

/// The lease that an effect of a joint operation rests on. None: no joint operation has such an
/// effect.
pub(super) fn changed_by(effect: &Effect) -> Option<Lease> {
    let lease = |file: &FileId, field: Field, kind| Some(Lease::new(file.clone(), field, kind));
    match effect {
        Effect::Bind { dir, label, .. } | Effect::Unbind { dir, label } => {
            lease(dir, Field::Child(fold(label)), Kind::Write)
        }
        Effect::AddLink { file, .. } | Effect::DropLink { file, .. } => {
            lease(file, Field::Parent, Kind::Write)
        }
        Effect::Attributes { file, .. } | Effect::Orphan { file } | Effect::Death { file } => {
            lease(file, Field::Attributes, Kind::Write)
        }
        Effect::Touch { dir, .. } => lease(dir, Field::Times, Kind::Touch),
        Effect::Disposition { file, .. } => lease(file, Field::Disposition, Kind::Write),
        Effect::Birth { .. }
        | Effect::Times { .. }
        | Effect::Xattr { .. }
        | Effect::Content { .. }
        | Effect::Lock { .. } => None,
    }
}
