//! From paths to files (MS-FSA §2.1.5.1.1).

use crate::path::name_of;
use crate::{ObjectPath, Root, Store, StoreError};
use client::call;
use ident::FileId;
use lease::Label;
use namespace::{Attributes, Cred, Entry, Error, FileKind, Link};
use std::borrow::Cow;
use std::collections::VecDeque;

/// Symbolic links on one path, at most, as Linux has it.
const LINKS_MAX: u32 = 40;

/// The place that a path leads to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directories on the way, from the share's root: the last contains the object, unless the
    /// object is the root itself.
    pub(crate) above: Vec<FileId>,
    /// The exact labels on the way: each stands in the directory of `above` at the same place.
    pub(crate) labels: Vec<Label>,
    /// The exact names on the way, for people.
    pub(crate) path: Vec<String>,
    /// The name in the last directory; none for the root.
    pub(crate) link: Option<Link>,
    /// The object, if it exists.
    pub(crate) found: Option<(Entry, Attributes)>,
}

impl Store {
    /// Finds the directory of a share by its path from the machine's root, with `/` between
    /// components. The share may be changed and hides nothing.
    pub async fn root(&self, path: &[u8]) -> Result<Root, StoreError> {
        let mut dir = self.service.0.root();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let label = Label::new(name).map_err(|_| StoreError::InvalidName)?;
            let found = self.look_up(&Cred::default(), &dir, &label).await?.ok_or(StoreError::NotFound)?;
            if found.0.kind != FileKind::Directory {
                return Err(StoreError::NotDirectory);
            }
            dir = found.0.file;
        }
        Ok(Root { dir, read_only: false, hides_unreadable: false })
    }

    /// Finds a label exactly.
    pub(crate) async fn look_up(
        &self,
        who: &Cred,
        dir: &FileId,
        label: &Label,
    ) -> Result<Option<(Entry, Attributes)>, StoreError> {
        let call = call::Find { dir: dir.clone(), label: label.clone() };
        match self.service.ask(who, call).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a name leads to this file.
    pub(crate) async fn leads_to(&self, link: &Link, file: &FileId) -> Result<bool, StoreError> {
        let found = self.look_up(&Cred::default(), &link.dir, &link.label).await?;
        Ok(found.is_some_and(|(entry, _)| entry.file == *file))
    }

    /// Finds a label, without regard to case unless the exact one exists. Returns the exact label.
    pub(crate) async fn find(
        &self,
        who: &Cred,
        dir: &FileId,
        label: Label,
        exact: bool,
    ) -> Result<(Label, Option<(Entry, Attributes)>), StoreError> {
        let mut who = Cow::Borrowed(who);
        let node = match self.look_up(&who, dir, &label).await {
            Err(StoreError::AccessDenied) => {
                who = Cow::Owned(self.may_pass(&who, dir).await?);
                self.look_up(&who, dir, &label).await?
            }
            node => node?,
        };
        if let Some(node) = node {
            return Ok((label, Some(node)));
        }
        if exact {
            return Ok((label, None));
        }
        let call = call::Spellings { dir: dir.clone(), label: label.clone() };
        let mut spellings = self.service.ask(&who, call).await?;
        spellings.sort_unstable();
        for spelling in spellings {
            if let Some(node) = self.look_up(&who, dir, &spelling).await? {
                return Ok((spelling, Some(node)));
            }
        }
        Ok((label, None))
    }

    /// Walks a path. Symbolic links are followed within the share, and the last component's only
    /// with `follow`. A link that leads nowhere there is its client's to follow.
    pub(crate) async fn resolve(
        &self,
        who: &Cred,
        root: &Root,
        path: &ObjectPath,
        (exact, follow): (bool, bool),
    ) -> Result<Place, StoreError> {
        let mut place =
            Place { above: Vec::new(), labels: Vec::new(), path: Vec::new(), link: None, found: None };
        let mut dir = root.dir.clone();
        let mut left: VecDeque<PathStep> = path.components.iter().cloned().map(PathStep::Down).collect();
        let (mut links, mut is_target) = (0, false);
        while let Some(step) = left.pop_front() {
            let label = match step {
                PathStep::Up => {
                    dir = place.above.pop().ok_or(StoreError::StoppedOnLink)?;
                    place.labels.pop();
                    place.path.pop();
                    continue;
                }
                PathStep::Down(label) => label,
            };
            let (label, found) = match self.find(who, &dir, label, exact).await {
                // The directory is gone, or it is none.
                Err(StoreError::Closed | StoreError::NotDirectory) => return Err(StoreError::PathNotFound),
                found => found?,
            };
            let is_last = left.is_empty();
            match &found {
                Some((entry, _)) if entry.kind == FileKind::Symlink && (follow || !is_last) => {
                    links += 1;
                    is_target |= is_last;
                    if links > LINKS_MAX {
                        return Err(StoreError::StoppedOnLink);
                    }
                    let target = self.service.ask(who, call::ReadLink { file: entry.file.clone() }).await?;
                    steps(&target)?.into_iter().rev().for_each(|step| left.push_front(step));
                    continue;
                }
                Some((entry, _)) if !is_last && entry.kind == FileKind::Directory => {}
                _ if !is_last && is_target => return Err(StoreError::StoppedOnLink),
                _ if !is_last => return Err(StoreError::PathNotFound),
                _ => {}
            }
            let name = name_of(&label, exact)
                .unwrap_or_else(|| String::from_utf8_lossy(label.as_bytes()).into_owned());
            place.path.push(name);
            place.labels.push(label.clone());
            if is_last {
                if is_target && found.is_none() {
                    return Err(StoreError::StoppedOnLink);
                }
                place.above.push(dir.clone());
                place.link = Some(Link { dir, label });
                place.found = found;
                return Ok(place);
            }
            if let Some((entry, _)) = found {
                place.above.push(std::mem::replace(&mut dir, entry.file));
            }
        }
        // The path is the root's, or ended with a link's `..`.
        let attributes = self.service.ask(who, call::Glance { file: dir.clone() }).await?.value.attributes;
        let entry = Entry { file: dir, kind: attributes.kind, ino: attributes.ino, position: 0 };
        place.found = Some((entry, attributes));
        Ok(place)
    }
}

/// One step on the way.
enum PathStep {
    Up,
    Down(Label),
}

/// The steps of a symbolic link. An absolute one leads out of the share.
fn steps(target: &[u8]) -> Result<Vec<PathStep>, StoreError> {
    if target.starts_with(b"/") {
        return Err(StoreError::StoppedOnLink);
    }
    let names = target.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names
        .map(|name| match name {
            b".." => Ok(PathStep::Up),
            name => Label::new(name).map(PathStep::Down).map_err(|_| StoreError::StoppedOnLink),
        })
        .collect()
}
