//! Attributes, plain and extended, and free space.

use client::call;
use file_service::{FreeSpace, Observed};
use lease::Label;
use namespace::{Error, FileKind, POLICY, Stat};
use std::sync::Arc;

use super::{Front, Outcome, SetattrChange, Shown, XattrRequest, or_reply};
use crate::errno::Errno;
use crate::groups::Asker;
use crate::nodes::{PingPong, Since};
use crate::syscall;

impl Front {
    pub(crate) fn getattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let since = self.nodes.since(node);
        // Trap: the kernel drops all attributes of a directory at each change of its own in there.
        // It asks for them again on its way to the next name. Attributes of a file whose size
        // ping-pongs have a time-out of 0, and the kernel asks for them to see whether the file may
        // be opened.
        let glance = self.nodes.ping_pong(node).filter(|ping_pong| match ping_pong {
            PingPong::Times => !syscall::may_see_times(asker.pid),
            PingPong::Size(_) => syscall::opens_one_way(asker.pid),
        });
        let then = move |front: &Arc<Front>, mut told: Result<Observed<Stat>, Error>| {
            match (&mut told, glance) {
                (Ok(Observed { uncached: false, .. }), _) => front.nodes.resize(node),
                // The kernel believes any size at once, so it is given the one that it has.
                (Ok(Observed { value, .. }), Some(PingPong::Size(size))) => value.size = size,
                (Ok(Observed { value, .. }), None) => front.nodes.pass(node, value),
                (Ok(_), Some(PingPong::Times)) | (Err(_), _) => {}
            }
            match told {
                // The directory was removed by another machine. A program that has it open, or
                // works in it, goes on seeing one.
                Err(Error::Stale) => reply(front.removed_stat(node)),
                Ok(stat) if front.mapped.hides(node, &stat.value) => {
                    front.after_writing_back(node, move |front| front.stat_again(asker, node, reply));
                }
                told => reply(front.stat_of(told, (node, since), asker)),
            }
        };
        match glance {
            Some(_) => self.call(node, asker, call::Glance { file }, then),
            None => self.call(node, asker, call::Stat { file }, then),
        }
    }

    /// Answers the attributes as they are to a request that would change them. The kernel takes the
    /// answer as if the change was made. Trap: the kernel adopts attributes from a change whatever
    /// it was told since (there is no `attr_version`), and only when the asker runs again. By then
    /// they may have been invalidated, so they are given with a time-out of 0.
    pub(crate) fn unchanged(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        self.after_writing_back(node, move |front| {
            front.stat_again(asker, node, move |shown| reply(shown.map(Shown::uncached)));
        });
    }

    fn stat_again(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let since = self.nodes.since(node);
        self.call(node, asker, call::Stat { file }, move |front, told| {
            reply(front.stat_of(told, (node, since), asker));
        });
    }

    pub(crate) fn setattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        change: SetattrChange,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let since = self.nodes.since(node);
        let SetattrChange { attributes, size, through_handle } = change;
        let call = call::SetAttributes { file, change: attributes, size, through_handle };
        let set = move |front: &Arc<Front>| {
            front.ask(node, asker, call, move |front, told| {
                reply(match told {
                    Err(Error::Stale) => front.set_removed(node, &attributes),
                    told => front.stat_of(told, (node, since), asker),
                });
            });
        };
        match (size, attributes.mtime) {
            // A new owner always costs the set-id bits; `decide` clears them.
            (Some(_), _) => self.after_clearing_setid(asker, node, set),
            // Pages written back later would set another time.
            (None, Some(_)) => self.after_writing_back(node, set),
            (None, None) => set(self),
        }
    }

    pub(crate) fn access(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        mask: u8,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        self.ask(node, asker, call::Access { file, mask }, move |_, told| reply(told.map_err(Errno::from)));
    }

    pub(crate) fn getxattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        name: &[u8],
        reply: impl FnOnce(Outcome<Vec<u8>>) + Send + 'static,
    ) {
        let Some(((file, name), reply)) = or_reply(self.attribute(node, name), reply) else { return };
        self.ask(node, asker, call::GetXattr { file, name: name.clone() }, move |front, told| {
            reply(match told {
                Err(Error::Stale) => front.removed_xattr(node, &name),
                told => told.map_err(Errno::of_xattr),
            });
        });
    }

    /// Lists the names, each followed by a zero byte.
    pub(crate) fn listxattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Vec<u8>>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        self.ask(node, asker, call::ListXattrs { file }, move |front, told| {
            // A program that copies a file with all listed attributes does not mean to copy how it
            // is stored.
            let listed = |names: Vec<Label>| {
                let names = Front::shown_names(asker, &names).filter(|name| *name != POLICY);
                names.flat_map(|name| name.iter().copied().chain([0])).collect()
            };
            reply(match told {
                Err(Error::Stale) => front.removed_xattrs(node).map(listed),
                told => told.map(listed).map_err(Errno::of_xattr),
            });
        });
    }

    pub(crate) fn setxattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        XattrRequest { name, value, mode }: XattrRequest<'_>,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some(((file, name), reply)) = or_reply(self.attribute(node, name), reply) else { return };
        let value = value.to_vec();
        let call = call::SetXattr { file, name: name.clone(), value: value.clone(), mode };
        // An ACL changes the mode, and may clear set-gid.
        self.nodes.doubt(node);
        self.ask(node, asker, call, move |front, told| {
            reply(match told {
                Err(Error::Stale) => front.set_removed_xattr(node, name, &value, mode),
                told => told.map_err(Errno::of_xattr),
            });
        });
    }

    pub(crate) fn removexattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        name: &[u8],
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some(((file, name), reply)) = or_reply(self.attribute(node, name), reply) else { return };
        let call = call::RemoveXattr { file, name: name.clone() };
        self.ask(node, asker, call, move |front, told| {
            reply(match told {
                Err(Error::Stale) => front.remove_removed_xattr(node, &name),
                told => told.map_err(Errno::of_xattr),
            });
        });
    }

    pub(crate) fn space(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<FreeSpace>) + Send + 'static,
    ) {
        self.call(node, asker, call::Space, move |_, told| reply(told.map_err(Errno::from)));
    }

    fn attribute(&self, node: u64, name: &[u8]) -> Outcome<(ident::FileId, Label)> {
        // The kernel's own error for a name over XATTR_NAME_MAX.
        let name = Label::attribute(name).map_err(|_| Errno(libc::ERANGE))?;
        Ok((self.nodes.file(node)?, name))
    }

    /// Tells the kernel the attributes of a node. `since` is from before the request was made.
    fn stat_of(
        &self,
        told: Result<Observed<Stat>, Error>,
        (node, since): (u64, Since),
        asker: Asker,
    ) -> Outcome<Shown> {
        let Observed { value: stat, uncached } = told?;
        if stat.attributes.kind == FileKind::Regular && (uncached || !self.nodes.has_attributes(node)) {
            self.intake.tells(node, asker.pid);
        }
        self.nodes.tell(node, &stat);
        let may_change = self.mapped.told(node, &stat);
        let file = self.nodes.file(node)?;
        let keeps = !may_change && !uncached && self.nodes.may_keep(node, &file, since);
        let shown = self.show(node, stat);
        Ok(if keeps { shown } else { shown.uncached() })
    }
}
