//! The alarm of a member that cannot go on, because it has lost state or has failed. It has lost
//! state if the disk returns other bytes for a row or a log entry, if the others know of promises
//! that it does not, or if its state differs from that of the others.
//!
//! Such a member must stop at once, since no one knows which of its promises it has forgotten. A
//! call that raises the alarm does not return.
//!
//! A machine's groups share a disk. If one of them finds that the disk has lost something, that
//! concerns all: pages and segments hold what several groups wrote, and a disk that is older is
//! older for each of them. If a group finds that its own state is wrong, that concerns the group.

use crate::life::Life;
use crate::stop::stop;
use parking_lot::Mutex;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::Notify;

tokio::task_local! {
    static ALARM: Alarm;
}

/// The reason why a member cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEnd {
    /// The disk has lost what was written, or is older than what was promised. So all groups of
    /// the machine have lost state.
    Disk(String),
    /// The state of this group is not that of the others, or cannot be read.
    State(String),
    /// This group's member has failed, and has lost nothing.
    Failed(String),
}

impl MemberEnd {
    /// Returns whether state is lost.
    pub fn is_damage(&self) -> bool {
        !matches!(self, MemberEnd::Failed(_))
    }
}

impl fmt::Display for MemberEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (MemberEnd::Disk(why) | MemberEnd::State(why) | MemberEnd::Failed(why)) = self;
        f.write_str(why)
    }
}

impl Error for MemberEnd {}

/// The alarm of one member, shared by its threads.
#[derive(Clone)]
pub(crate) struct Alarm(Arc<Inner>);

struct Inner {
    why: OnceLock<MemberEnd>,
    raised: Notify,
    tell: Box<dyn Fn(MemberEnd) + Send + Sync>,
    disk: DiskAlarm,
}

/// The alarms of the members on one disk.
#[derive(Clone, Default)]
pub(crate) struct DiskAlarm(Arc<Mutex<DiskAlarmState>>);

#[derive(Default)]
struct DiskAlarmState {
    why: Option<String>,
    members: Vec<Weak<Inner>>,
}

/// The payload with which a thread unwinds after it raised the alarm, or met it raised.
pub(crate) struct Raised;

impl DiskAlarm {
    /// Makes the alarm of a member on this disk. When it is raised, `tell` gets the reason, on any
    /// thread and with any lock held. It is raised at once if the disk's is.
    pub(crate) fn member(&self, tell: impl Fn(MemberEnd) + Send + Sync + 'static) -> Alarm {
        let (why, raised) = (OnceLock::new(), Notify::new());
        let inner = Arc::new(Inner { why, raised, tell: Box::new(tell), disk: self.clone() });
        let mut state = self.0.lock();
        state.members.retain(|member| member.strong_count() > 0);
        state.members.push(Arc::downgrade(&inner));
        let why = state.why.clone();
        drop(state);
        why.into_iter().for_each(|why| inner.ends(MemberEnd::Disk(why)));
        Alarm(inner)
    }

    /// Ends all members on this disk.
    fn raise(&self, why: String) {
        let members = {
            let mut state = self.0.lock();
            state.why.get_or_insert_with(|| why.clone());
            state.members.clone()
        };
        for member in members.iter().filter_map(Weak::upgrade) {
            member.ends(MemberEnd::Disk(why.clone()));
        }
    }
}

impl Inner {
    fn ends(&self, why: MemberEnd) {
        if self.why.set(why.clone()).is_ok() {
            match why.is_damage() {
                true => tracing::error!(%why, "this server has lost what it had"),
                false => tracing::error!(%why, "this server has failed"),
            }
            self.raised.notify_one();
            (self.tell)(why);
        }
    }
}

impl Alarm {
    /// Raises the alarm of this member for the damage of its state that `error` describes.
    pub(crate) fn raise(&self, error: &dyn Error) -> ! {
        self.0.ends(MemberEnd::State(error.to_string()));
        unwind()
    }

    /// Raises the alarms of all members on the disk for its damage, which `error` describes.
    pub(crate) fn raise_disk(&self, error: &dyn Error) -> ! {
        self.0.disk.raise(error.to_string());
        unwind()
    }

    /// Handles an error of the disk. Damage ends all members on it, any other error stops the
    /// process.
    pub(crate) fn disk_failed(&self, error: &dyn Error, is_damage: bool) -> ! {
        if is_damage { self.raise_disk(error) } else { self.stop(error) }
    }

    /// Ends this member, which cannot go on and has lost nothing. A simulated process, which has
    /// one member, ends as a whole.
    pub(crate) fn fail(&self, error: &dyn Error) -> ! {
        self.failed(error);
        unwind()
    }

    /// Ends this member without unwinding.
    pub(crate) fn failed(&self, error: &dyn Error) {
        match Life::current() {
            Some(life) if self.why().is_none() => life.fails(error),
            _ => self.0.ends(MemberEnd::Failed(error.to_string())),
        }
    }

    /// Handles an error of the disk that is no damage. The process stops with all its members,
    /// unless the error comes from a raised alarm.
    pub(crate) fn stop(&self, error: &dyn Error) -> ! {
        self.meet();
        stop(error)
    }

    /// Unwinds if it was raised.
    pub(crate) fn meet(&self) {
        if self.why().is_some() {
            unwind()
        }
    }

    /// Returns why it was raised, if it was.
    pub(crate) fn why(&self) -> Option<&MemberEnd> {
        self.0.why.get()
    }

    /// Returns once it is raised. Only the first waiter is woken.
    pub(crate) async fn raised(&self) {
        self.0.raised.notified().await;
    }

    /// Runs `work` for this member. Tasks that it spawns are this member's, too.
    pub(crate) async fn over<T>(self, work: impl Future<Output = T>) -> T {
        ALARM.scope(self, work).await
    }

    /// Returns the alarm of the member that this task works for.
    pub(crate) fn current() -> Option<Alarm> {
        ALARM.try_with(Alarm::clone).ok()
    }
}

/// Unwinds without a message: the reason is already reported.
fn unwind() -> ! {
    resume_unwind(Box::new(Raised))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    type Told = Arc<Mutex<Vec<(u64, MemberEnd)>>>;

    fn members(disk: &DiskAlarm, told: &Told, count: u64) -> Vec<Alarm> {
        let member = |number| {
            let told = told.clone();
            disk.member(move |why| told.lock().push((number, why)))
        };
        (0..count).map(member).collect()
    }

    fn unwinds(what: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(what)).is_err_and(|with| with.is::<Raised>())
    }

    #[test]
    fn what_is_about_the_disk_concerns_all_and_the_rest_one_group() {
        let (disk, told) = (DiskAlarm::default(), Told::default());
        let alarms = members(&disk, &told, 4);
        let error = |what: &str| io::Error::other(what.to_owned());
        assert!(unwinds(|| alarms[1].raise(&error("diverged"))));
        assert!(unwinds(|| alarms[2].fail(&error("panicked"))));
        let (state, failed) =
            (MemberEnd::State("diverged".to_owned()), MemberEnd::Failed("panicked".to_owned()));
        assert_eq!(*told.lock(), [(1, state.clone()), (2, failed.clone())]);
        assert!(alarms[0].why().is_none() && alarms[3].why().is_none());
        assert!(state.is_damage() && !failed.is_damage());
        assert!(unwinds(|| alarms[3].raise_disk(&error("rotten"))));
        let rotten = MemberEnd::Disk("rotten".to_owned());
        assert_eq!(told.lock()[2..], [(0, rotten.clone()), (3, rotten.clone())], "each is told once");
        // A member that is opened later is on the same disk.
        let later = members(&disk, &told, 1);
        assert_eq!(later[0].why(), Some(&rotten));
        assert_eq!(alarms[1].why(), Some(&state));
    }
}
