//! The asker of a request: what the request says of it, and what /proc shows.

use namespace::{Capabilities, Cred};

use crate::proc;

/// The user and thread behind a request.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// The thread's number, as this process sees it; 0 if it does not.
    pub pid: u32,
    /// The request's number, by which the kernel interrupts it.
    pub request: u64,
    /// Set-id bits may stay. For a write, a truncation and an access list the kernel says if they
    /// may not.
    pub keeps_set_ids: bool,
}

/// The rights of an asker, as far as they can be seen.
#[derive(Clone, Debug)]
pub(crate) struct KnownAsker {
    pub(crate) cred: Cred,
    /// The kernel goes by nothing else. It is false for a thread in a pid namespace outside ours,
    /// of which nothing is seen. It is false for a thread in another user namespace, too: there the
    /// worth of its capabilities depends on each file's owner.
    pub(crate) complete: bool,
}

impl Asker {
    /// The kernel itself, or the front door on its behalf.
    pub const KERNEL: Asker = Asker { uid: 0, gid: 0, pid: 0, request: 0, keeps_set_ids: true };

    /// The rights that the request names: neither supplementary groups nor capabilities.
    pub(crate) fn cred(self) -> Cred {
        Cred { uid: self.uid, gid: self.gid, ..Cred::default() }
    }

    /// The rights with all that /proc shows. That costs a look, so it is for after a refusal, and
    /// for calls that are never refused. Nothing is kept, since a thread may change its groups. The
    /// asker waits for our answer, so its number is still its own.
    pub(crate) fn known(self) -> KnownAsker {
        let unknown = || KnownAsker { cred: self.cred(), complete: false };
        if self.pid == 0 {
            return unknown();
        }
        let Ok(status) = proc::read(&format!("{}/status", self.pid)) else { return unknown() };
        let of_ours = is_in_our_user_namespace(self.pid);
        let capabilities = if of_ours { capabilities(&status) } else { Capabilities::NONE };
        let groups = supplementary(&status).collect();
        KnownAsker { cred: Cred { groups, capabilities, ..self.cred() }, complete: of_ours }
    }
}

fn is_in_our_user_namespace(tid: u32) -> bool {
    let of = |whose: &str| proc::link(&format!("{whose}/ns/user")).ok();
    of("self").is_some_and(|ours| of(&tid.to_string()) == Some(ours))
}

fn supplementary(status: &str) -> impl Iterator<Item = u32> + '_ {
    field(status, "Groups:").split_ascii_whitespace().filter_map(|group| group.parse().ok())
}

fn capabilities(status: &str) -> Capabilities {
    let bits = u64::from_str_radix(field(status, "CapEff:").trim(), 16);
    bits.map_or(Capabilities::NONE, Capabilities::of_bits)
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::Capability;

    #[test]
    fn groups_and_capabilities_are_read_from_proc() {
        let status = "Name:\tsh\nGroups:\t4 24 1000 \nCapEff:\t0000000080000006\nNgid:\t7\n";
        assert_eq!(supplementary(status).collect::<Vec<_>>(), [4, 24, 1000]);
        let of = capabilities(status);
        assert!(of.has(Capability::DacOverride) && of.has(Capability::Setfcap) && !of.has(Capability::Chown));
        assert_eq!(supplementary("Groups:\t \n").count(), 0);
        assert_eq!(capabilities("CapEff:\tnone\n"), Capabilities::NONE);
    }

    #[test]
    fn who_is_not_seen_is_not_known() {
        let asker = Asker { uid: 65534, gid: 65534, ..Asker::KERNEL };
        assert!(!asker.known().complete && !Asker { pid: u32::MAX, ..asker }.known().complete);
        let we = Asker { pid: std::process::id(), ..asker }.known();
        assert!(we.complete && we.cred.uid == 65534);
    }
}
