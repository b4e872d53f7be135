//! Creates that a client sends again over another channel (MS-SMB2 §3.3.5.9, §3.3.5.9.10).

use crate::handle::Handle;
use crate::wire::NtStatus;
use objects::ClientGuid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// A create, as its client names it: CreateGuid.
pub(crate) type CreateId = (ClientGuid, [u8; 16]);

/// The creates that are under way, and those whose opens there are.
#[derive(Default)]
pub(crate) struct Creates(Mutex<KnownCreates>);

#[derive(Default)]
struct KnownCreates {
    creates: BTreeMap<CreateId, (u64, CreateState)>,
    next: u64,
}

enum CreateState {
    Underway,
    Done(Weak<Handle>),
}

/// The place of a create among those that are known, until this is dropped.
pub(crate) struct KnownCreate {
    creates: Arc<Creates>,
    id: CreateId,
    /// Tells it from a later one of the same name.
    number: u64,
}

/// The outcome of a create's beginning.
pub(crate) enum Begun {
    /// It is new.
    New(KnownCreate),
    /// It was answered before, with this open.
    Replayed(Arc<Handle>),
}

impl Begun {
    /// Returns the place of a new create.
    pub(crate) fn into_new(self) -> Option<KnownCreate> {
        match self {
            Begun::New(create) => Some(create),
            Begun::Replayed(_) => None,
        }
    }
}

impl Creates {
    /// Begins a create, or finds the one that it repeats.
    pub(crate) fn begin(self: &Arc<Self>, id: CreateId, is_replay: bool) -> Result<Begun, NtStatus> {
        // It may be the last reference: then its create takes the lock as it goes.
        let found;
        let mut known = self.0.lock();
        match known.creates.get(&id) {
            Some((_, CreateState::Underway)) if is_replay => return Err(NtStatus::FILE_NOT_AVAILABLE),
            Some((_, CreateState::Underway)) => return Err(NtStatus::DUPLICATE_OBJECTID),
            Some((_, CreateState::Done(handle))) => {
                found = handle.upgrade();
                match &found {
                    Some(_) if !is_replay => return Err(NtStatus::DUPLICATE_OBJECTID),
                    Some(handle) if !handle.is_used.load(Relaxed) => {
                        return Ok(Begun::Replayed(handle.clone()));
                    }
                    // It stands for a new one then.
                    Some(_) | None => {}
                }
            }
            None => {}
        }
        known.next += 1;
        let number = known.next;
        known.creates.insert(id, (number, CreateState::Underway));
        Ok(Begun::New(KnownCreate { creates: self.clone(), id, number }))
    }
}

impl KnownCreate {
    /// Notes the open that a create is answered with: of this create, which the open has.
    pub(crate) fn note(handle: &Arc<Handle>) {
        if let Some(create) = &*handle.create.lock() {
            let state = CreateState::Done(Arc::downgrade(handle));
            create.creates.0.lock().creates.insert(create.id, (create.number, state));
        }
    }
}

impl Drop for KnownCreate {
    fn drop(&mut self) {
        let creates = &mut self.creates.0.lock().creates;
        if creates.get(&self.id).is_some_and(|(number, _)| *number == self.number) {
            creates.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::HandleKind;
    use crate::rpc::Pipe;
    use crate::tree::{Tree, TreeKind};
    use crate::wire::bodies::FileId;

    fn handle(create: KnownCreate) -> Arc<Handle> {
        let tree = Tree { id: 1, name: "IPC$".into(), kind: TreeKind::Pipes };
        let pipe = Mutex::new(Pipe::open("srvsvc", "box").unwrap());
        let handle = Handle::new(FileId::default(), Arc::new(tree), HandleKind::Pipe(pipe));
        *handle.create.lock() = Some(create);
        let handle = Arc::new(handle);
        KnownCreate::note(&handle);
        handle
    }

    fn begin(creates: &Arc<Creates>, client: u8, is_replay: bool) -> Result<Begun, NtStatus> {
        creates.begin((ClientGuid([client; 16]), [7; 16]), is_replay)
    }

    #[test]
    fn a_create_is_done_once() {
        let creates = Arc::new(Creates::default());
        let Ok(Begun::New(first)) = begin(&creates, 1, false) else { panic!("not new") };
        assert_eq!(begin(&creates, 1, true).err(), Some(NtStatus::FILE_NOT_AVAILABLE));
        assert_eq!(begin(&creates, 1, false).err(), Some(NtStatus::DUPLICATE_OBJECTID));
        // Another client's identifiers are its own.
        assert!(matches!(begin(&creates, 2, false), Ok(Begun::New(_))));
        let open = handle(first);
        let Ok(Begun::Replayed(found)) = begin(&creates, 1, true) else { panic!("not found") };
        assert!(Arc::ptr_eq(&found, &open));
        assert_eq!(begin(&creates, 1, false).err(), Some(NtStatus::DUPLICATE_OBJECTID));
    }

    #[test]
    fn an_open_that_is_used_is_not_found_again() {
        let creates = Arc::new(Creates::default());
        let Ok(Begun::New(first)) = begin(&creates, 1, false) else { panic!("not new") };
        let first = handle(first);
        first.is_used.store(true, Relaxed);
        assert_eq!(begin(&creates, 1, false).err(), Some(NtStatus::DUPLICATE_OBJECTID));
        let Ok(Begun::New(second)) = begin(&creates, 1, true) else { panic!("not new") };
        let second = handle(second);
        // The end of the first leaves the second alone.
        drop(first);
        let Ok(Begun::Replayed(found)) = begin(&creates, 1, true) else { panic!("not found") };
        assert!(Arc::ptr_eq(&found, &second));
    }

    #[test]
    fn a_create_that_failed_or_whose_open_is_closed_is_forgotten() {
        let creates = Arc::new(Creates::default());
        drop(begin(&creates, 1, false));
        let Ok(Begun::New(again)) = begin(&creates, 1, true) else { panic!("not new") };
        drop(handle(again));
        assert!(matches!(begin(&creates, 1, false), Ok(Begun::New(_))));
        assert!(creates.0.lock().creates.is_empty());
    }
}
