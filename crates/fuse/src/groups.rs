//! Who asks, and the groups that they have beside the primary one.

use namespace::Cred;

/// The process behind a request.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Of the thread, as this process sees it; 0 if it does not.
    pub pid: u32,
}

impl Asker {
    /// The kernel itself, or the front door on its behalf.
    pub(crate) const KERNEL: Asker = Asker { uid: 0, gid: 0, pid: 0 };

    /// What the request says; it does not name supplementary groups.
    pub(crate) fn cred(self) -> Cred {
        Cred { uid: self.uid, gid: self.gid, ..Cred::default() }
    }

    /// The same with supplementary groups, if there are any. They cost a look into /proc, so they are fetched only after a refusal. The
    /// asker waits for our answer, so its thread number still means it.
    pub(crate) fn cred_with_groups(self) -> Option<Cred> {
        if self.pid == 0 {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let cred = Cred { groups: supplementary(&status).collect(), ..self.cred() };
        (!cred.groups.is_empty()).then_some(cred)
    }
}

fn supplementary(status: &str) -> impl Iterator<Item = u32> + '_ {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("Groups:"))
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|group| group.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_proc() {
        assert_eq!(
            supplementary("Name:\tsh\nGroups:\t4 24 1000 \nNgid:\t7\n").collect::<Vec<_>>(),
            [4, 24, 1000]
        );
        assert_eq!(supplementary("Groups:\t \n").count(), 0);
        let nobody = Asker { uid: 65534, gid: 65534, pid: 0 };
        assert!(nobody.cred_with_groups().is_none());
    }
}
