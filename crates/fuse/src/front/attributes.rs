//! Attributes, plain and extended, and free space.

use client::{Call, Reply};
use file_service::Response;
use lease::Label;
use namespace::{AttributeChange, Error, POLICY, XattrMode};
use std::sync::Arc;

use super::{Front, Outcome, Shown, done, unexpected};
use crate::errno::Errno;
use crate::groups::Asker;
use crate::nodes::Passing;
use crate::syscall;

/// The changes that `setattr` asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) attributes: AttributeChange,
    pub(crate) size: Option<u64>,
    /// The request came by an open handle (ftruncate).
    pub(crate) through_handle: bool,
}

/// The values that `statfs` shows, in bytes and files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) files: u64,
}

impl Front {
    pub(crate) fn getattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        match self.nodes.file(node) {
            Ok(file) => {
                // Trap: the kernel drops all attributes of a directory at each change of its own in
                // there. It asks for them again on its way to the next name. Attributes of a file
                // whose size ping-pongs have a time-out of 0, and the kernel asks for them to see
                // whether the file may be opened.
                let glance = self.nodes.passing(node).filter(|passing| match passing {
                    Passing::Times => !syscall::may_see_times(asker.pid),
                    Passing::Size(_) => syscall::opens_one_way(asker.pid),
                });
                let call = if glance.is_some() { Call::Glance { file } } else { Call::Stat { file } };
                self.call(node, asker, call, move |front, mut told| {
                    match (&mut told, glance) {
                        // The kernel believes any size at once, so it is given the one that it has.
                        (Ok(Response::Uncached(Reply::Stat(stat))), Some(Passing::Size(size))) => {
                            stat.size = size
                        }
                        (Ok(Response::Uncached(Reply::Stat(stat))), None) => front.nodes.pass(node, stat),
                        (Ok(Response::Reply(_)), _) => front.nodes.resize(node),
                        _ => {}
                    }
                    match told {
                        // The directory was removed by another machine. A program that has it open,
                        // or works in it, goes on seeing one.
                        Err(Error::Stale) => reply(front.removed_stat(node)),
                        Ok(Response::Reply(Reply::Stat(stat)) | Response::Uncached(Reply::Stat(stat)))
                            if front.mapped.hides(node, &stat) =>
                        {
                            front.after_writing_back(node, move |front| front.stat_again(asker, node, reply));
                        }
                        told => reply(front.stat_of(told, node)),
                    }
                });
            }
            Err(errno) => reply(Err(errno)),
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
            front.stat_again(asker, node, move |shown| reply(shown.map(Shown::passing)));
        });
    }

    fn stat_again(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        match self.nodes.file(node) {
            Ok(file) => self.call(node, asker, Call::Stat { file }, move |front, told| {
                reply(front.stat_of(told, node));
            }),
            Err(errno) => reply(Err(errno)),
        }
    }

    pub(crate) fn setattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        change: Change,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let file = match self.nodes.file(node) {
            Ok(file) => file,
            Err(errno) => return reply(Err(errno)),
        };
        let Change { attributes, size, through_handle } = change;
        let call = Call::SetAttributes { file, change: attributes, size, through_handle };
        let set = move |front: &Arc<Front>| {
            front.ask(node, asker, call, move |front, told| {
                reply(match told {
                    Err(Error::Stale) => front.set_removed(node, &attributes),
                    told => front.stat_of(told, node),
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
        match self.nodes.file(node) {
            Ok(file) => self.ask(node, asker, Call::Access { file, mask }, move |_, told| reply(done(told))),
            Err(errno) => reply(Err(errno)),
        }
    }

    pub(crate) fn getxattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        name: &[u8],
        reply: impl FnOnce(Outcome<Vec<u8>>) + Send + 'static,
    ) {
        let (file, name) = match self.attribute(node, name) {
            Ok(attribute) => attribute,
            Err(errno) => return reply(Err(errno)),
        };
        self.ask(node, asker, Call::GetXattr { file, name: name.clone() }, move |front, told| {
            reply(match told {
                Err(Error::Stale) => front.removed_xattr(node, &name),
                Ok(Response::Reply(Reply::Bytes(value))) => Ok(value),
                Ok(other) => Err(unexpected(&other)),
                Err(error) => Err(Errno::of_xattr(error)),
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
        let file = match self.nodes.file(node) {
            Ok(file) => file,
            Err(errno) => return reply(Err(errno)),
        };
        self.ask(node, asker, Call::ListXattrs { file }, move |front, told| {
            // A program that copies a file with all listed attributes does not mean to copy how it
            // is stored.
            let listed = |names: Vec<Label>| {
                let names = Front::shown_names(asker, &names).filter(|name| *name != POLICY);
                names.flat_map(|name| name.iter().copied().chain([0])).collect()
            };
            reply(match told {
                Ok(Response::Reply(Reply::Names(names))) => Ok(listed(names)),
                Err(Error::Stale) => front.removed_xattrs(node).map(listed),
                Ok(other) => Err(unexpected(&other)),
                Err(error) => Err(Errno::of_xattr(error)),
            });
        });
    }

    pub(crate) fn setxattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        match self.attribute(node, name) {
            Ok((file, name)) => {
                let value = value.to_vec();
                let call = Call::SetXattr { file, name: name.clone(), value: value.clone(), mode };
                // An ACL changes the mode, and may clear set-gid.
                self.nodes.doubt(node);
                self.ask(node, asker, call, move |front, told| {
                    reply(match told {
                        Err(Error::Stale) => front.set_removed_xattr(node, name, &value, mode),
                        told => xattr_done(told),
                    });
                });
            }
            Err(errno) => reply(Err(errno)),
        }
    }

    pub(crate) fn removexattr(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        name: &[u8],
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        match self.attribute(node, name) {
            Ok((file, name)) => {
                let call = Call::RemoveXattr { file, name: name.clone() };
                self.ask(node, asker, call, move |front, told| {
                    reply(match told {
                        Err(Error::Stale) => front.remove_removed_xattr(node, &name),
                        told => xattr_done(told),
                    });
                });
            }
            Err(errno) => reply(Err(errno)),
        }
    }

    pub(crate) fn space(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Space>) + Send + 'static,
    ) {
        self.call(node, asker, Call::Space, move |_, told| {
            reply(match told {
                Ok(Response::Reply(Reply::Space { total, free, files })) => Ok(Space { total, free, files }),
                Ok(other) => Err(unexpected(&other)),
                Err(error) => Err(error.into()),
            });
        });
    }

    fn attribute(&self, node: u64, name: &[u8]) -> Outcome<(ident::FileId, Label)> {
        // The kernel's own error for a name over XATTR_NAME_MAX.
        let name = Label::attribute(name).map_err(|_| Errno(libc::ERANGE))?;
        Ok((self.nodes.file(node)?, name))
    }

    fn stat_of(&self, told: Result<Response, Error>, node: u64) -> Outcome<Shown> {
        match told? {
            Response::Reply(Reply::Stat(stat)) => {
                self.nodes.tell(node, &stat);
                let shown = self.show(node, stat);
                Ok(if self.mapped.told(node, &stat) { shown.passing() } else { shown })
            }
            Response::Uncached(Reply::Stat(stat)) => {
                self.nodes.tell(node, &stat);
                self.mapped.told(node, &stat);
                Ok(self.show(node, stat).passing())
            }
            other => Err(unexpected(&other)),
        }
    }
}

fn xattr_done(told: Result<Response, Error>) -> Outcome<()> {
    match told {
        Err(error) => Err(Errno::of_xattr(error)),
        told => done(told),
    }
}
