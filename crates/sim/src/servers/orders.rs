//! Orders of calls that were under way at the same time. Their programs must have seen what
//! one call after the other would have shown, in some order.

use super::files_of;
use super::running::{Running, Seen};
use crate::model::Model;
use client::{Call, Reply, call};
use ident::FileId;
use lease::Label;
use namespace::{Error, FileKind};

/// The length of a read that reaches the end of any file.
const WHOLE: u32 = 1 << 20;

/// The possible states of the files after these calls: one model for each outcome that explains all
/// answers. None: there is no such order.
pub(super) fn outcomes(model: &Model, running: &[Running]) -> Vec<Model> {
    let mut found = Vec::new();
    after(model, &running.iter().collect::<Vec<_>>(), &mut found);
    found
}

fn after(model: &Model, left: &[&Running], found: &mut Vec<Model>) {
    if left.is_empty() {
        if !found.contains(model) {
            found.push(model.clone());
        }
        return;
    }
    for (first, running) in left.iter().enumerate() {
        let others = || {
            let others = left.iter().enumerate().filter(|(other, _)| *other != first);
            others.map(|(_, running)| *running).collect::<Vec<_>>()
        };
        let Some(Ok(())) = running.seen.as_ref().map(|seen| fits(model, &running.call, seen)) else {
            continue;
        };
        match &running.seen {
            Some(Ok(seen)) if changes(&running.call) => {
                let mut next = model.clone();
                next.apply(&running.call, made(&running.call, seen));
                after(&next, &others(), found);
            }
            _ => after(model, &others(), found),
        }
    }
}

/// Whether a program sees this of a call on these files; if not, what is wrong.
pub(super) fn fits(model: &Model, call: &Call, seen: &Result<Seen, Error>) -> Result<(), String> {
    let named = files_of(call);
    let is_gone = named.iter().any(|file| !model.files.contains_key(file));
    let is_nameless = named.iter().any(|file| model.files.get(file).is_some_and(|file| file.links == 0));
    match (seen, expected(model, call)) {
        (Err(found), Err(expected)) if *found == expected => Ok(()),
        // A rename may be wrong in several ways at once.
        (Err(_), Err(_)) if matches!(call, Call::Rename { .. }) => Ok(()),
        // A machine without a handle may know a file no longer that has no name.
        (Err(Error::Stale | Error::NotFound), _) if is_gone || is_nameless => Ok(()),
        (Ok(seen), Ok(())) => shows(model, call, seen),
        (found, expected) => {
            let found = found.as_ref().map(|_| ());
            Err(format!("gave {found:?}, expected {expected:?}"))
        }
    }
}

/// Whether the call is refused, and with which error.
fn expected(model: &Model, call: &Call) -> Result<(), Error> {
    if files_of(call).iter().any(|file| !model.files.contains_key(file)) {
        return Err(Error::Stale);
    }
    match call {
        Call::Link(call::Link { file, .. }) if model.files[file].links == 0 => {
            model.refuses(call).and(Err(Error::NotFound))
        }
        _ => model.refuses(call),
    }
}

/// Whether the answer shows the files as they are before the call.
fn shows(model: &Model, call: &Call, seen: &Seen) -> Result<(), String> {
    match (call, seen) {
        (Call::Read(call::Read { file, offset, length, .. }), Seen::Content(found)) => {
            let content = &model.files[file].content;
            let from = usize::try_from(*offset).unwrap_or(usize::MAX).min(content.len());
            let to = from.saturating_add(*length as usize).min(content.len());
            match content.get(from..to) == Some(found.as_slice()) {
                true => Ok(()),
                false => Err(format!("gave {} other bytes than the {} there", found.len(), to - from)),
            }
        }
        (Call::Lookup(call::Lookup { dir, label }), Seen::Entry(found)) => {
            let expected = &model.files[dir].children[label];
            match found.file == *expected {
                true => Ok(()),
                false => Err(format!("gave {}, expected {expected}", found.file)),
            }
        }
        (_, Seen::Reply(reply)) => model.compare(call, reply, |_| Ok(Vec::new())),
        (_, other) => Err(format!("gave {other:?}")),
    }
}

/// The file that a create has made.
pub(super) fn made(call: &Call, seen: &Seen) -> Option<FileId> {
    match (call, seen) {
        (Call::Create { .. }, Seen::Reply(Reply::Node(entry, _))) => Some(entry.file.clone()),
        _ => None,
    }
}

fn changes(call: &Call) -> bool {
    let asks = matches!(
        call,
        Call::Lookup { .. } | Call::Read { .. } | Call::GetXattr { .. } | Call::Sync { .. } | Call::SyncAll
    );
    !asks
}

/// A question whose answer tells some of these models from others, on files that all of them have:
/// names first, as everything is found by them.
pub(super) fn telling(models: &[Model]) -> Option<Call> {
    let (one, others) = models.split_first()?;
    let is_everywhere = move |id: &FileId| others.iter().all(|it| it.files.contains_key(id));
    let common = move || one.files.iter().filter(move |(id, _)| is_everywhere(id));
    let differs = |id: &FileId, what: &dyn Fn(&crate::model::File) -> Option<FileId>| {
        others.iter().any(|it| what(&it.files[id]) != what(&one.files[id]))
    };
    for (dir, _) in common() {
        let labels: Vec<Label> =
            models.iter().flat_map(|it| it.files[dir].children.keys().cloned()).collect();
        let label = labels.into_iter().find(|label| differs(dir, &|it| it.children.get(label).cloned()));
        if let Some(label) = label {
            return Some(Call::Lookup(call::Lookup { dir: dir.clone(), label }));
        }
    }
    for (dir, its) in common() {
        for (label, child) in &its.children {
            let shown = |it: &Model| it.files.get(child).map(|file| (file.mode, file.links));
            let is_bound = |it: &Model| it.files[dir].children.get(label) == Some(child);
            if others.iter().all(is_bound) && others.iter().any(|it| shown(it) != shown(one)) {
                return Some(Call::Lookup(call::Lookup { dir: dir.clone(), label: label.clone() }));
            }
        }
    }
    for (file, its) in common().filter(|(_, its)| its.links > 0) {
        let name = models
            .iter()
            .flat_map(|it| it.files[file].xattrs.keys())
            .find(|name| others.iter().any(|it| it.files[file].xattrs.get(*name) != its.xattrs.get(*name)));
        if let Some(name) = name {
            return Some(Call::GetXattr(call::GetXattr { file: file.clone(), name: name.clone() }));
        }
        if its.kind == FileKind::Regular && others.iter().any(|it| it.files[file].content != its.content) {
            return Some(whole(file));
        }
    }
    None
}

/// A read of all of the file.
pub(super) fn whole(file: &FileId) -> Call {
    Call::Read(call::Read { file: file.clone(), offset: 0, length: WHOLE, kept: true, quietly: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::File;
    use bytes::Bytes;

    /// Two writes and a read of one file, of which the read has seen this.
    fn calls(file: &FileId, read: &[u8]) -> Vec<Running> {
        let write = |data: &'static [u8]| {
            let data = Bytes::from_static(data);
            Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false })
        };
        let written = || Ok(Seen::Reply(Reply::Written(2)));
        vec![
            Running::answered(0, write(b"aa"), written()),
            Running::answered(1, write(b"bb"), written()),
            Running::answered(2, whole(file), Ok(Seen::Content(read.to_vec()))),
        ]
    }

    #[test]
    fn what_no_order_explains_is_found() {
        let (file, mut model) = (FileId::root().child(7), Model::default());
        model.files.insert(file.clone(), File::new(FileKind::Regular, 0o644));
        let contents = |read: &[u8]| {
            let outcomes = outcomes(&model, &calls(&file, read));
            let mut contents: Vec<Vec<u8>> =
                outcomes.iter().map(|it| it.files[&file].content.clone()).collect();
            contents.sort();
            (contents, telling(&outcomes).is_some())
        };
        let both = || (vec![b"aa".to_vec(), b"bb".to_vec()], true);
        assert_eq!(contents(b""), both());
        assert_eq!(contents(b"aa"), both());
        assert_eq!(contents(b"ab"), (vec![], false));
        assert_eq!(contents(b"a"), (vec![], false));
    }
}
