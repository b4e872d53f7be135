//! What goes wrong, and at which step: every step of what is below the share server (files,
//! objects, commits) is counted, and one is chosen.

use std::io;

use parking_lot::Mutex;

use crate::{DiskError, database::Commits};

/// What happens at the chosen step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power goes before the step, which does not happen, nor does anything after it.
    Cut,
    /// The power goes when the step has happened, before anybody hears of it.
    CutAfter,
    /// The step fails, once.
    Fail(io::ErrorKind),
    /// The step happens, and is told to have failed, once.
    Lost,
}

/// Counts steps.
#[derive(Debug, Default)]
pub struct Trouble {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    steps: Vec<&'static str>,
    fault: Option<(When, Fault)>,
    dead: bool,
}

#[derive(Clone, Copy, Debug)]
enum When {
    /// The step of this number.
    At(usize),
    /// After so many more of these.
    Among(&'static [&'static str], usize),
}

/// Share files get their places.
pub const PLACE: &[&str] = &["rename", "put"];
/// Share files are written.
pub const WRITE: &[&str] = &["write", "put"];
/// Share files are deleted.
pub const DELETE: &[&str] = &["unlink", "delete"];

/// How a step that was done is told to have gone.
#[must_use]
pub struct Told(Option<io::ErrorKind>);

impl Told {
    pub fn told(self) -> io::Result<()> {
        self.0.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Trouble {
    /// From now on, `fault` happens `after` so many more steps.
    pub fn set_fault(&self, after: usize, fault: Fault) {
        let mut state = self.state.lock();
        state.fault = Some((When::At(state.steps.len() + after), fault));
    }

    /// As [`Self::set_fault`], where only steps of these names count.
    pub fn set_fault_among(&self, names: &'static [&'static str], after: usize, fault: Fault) {
        self.state.lock().fault = Some((When::Among(names, after), fault));
    }

    pub fn clear_fault(&self) {
        self.state.lock().fault = None;
    }

    pub fn steps(&self) -> Vec<&'static str> {
        self.state.lock().steps.clone()
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// The error: it is not to be done.
    pub fn step(&self, what: &'static str) -> io::Result<Told> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let number = state.steps.len();
        state.steps.push(what);
        let fault = match &mut state.fault {
            Some((When::At(at), fault)) if *at == number => Some(*fault),
            Some((When::Among(names, 0), fault)) if names.contains(&what) => Some(*fault),
            Some((When::Among(names, left), _)) if names.contains(&what) => {
                *left -= 1;
                None
            }
            _ => None,
        };
        if fault.is_some() {
            state.fault = None;
        }
        state.dead = matches!(fault, Some(Fault::Cut | Fault::CutAfter));
        match fault {
            None => Ok(Told(None)),
            Some(Fault::Cut) => Err(io::ErrorKind::BrokenPipe.into()),
            Some(Fault::CutAfter) => Ok(Told(Some(io::ErrorKind::BrokenPipe))),
            Some(Fault::Fail(kind)) => Err(kind.into()),
            Some(Fault::Lost) => Ok(Told(Some(io::ErrorKind::TimedOut))),
        }
    }

    fn commit(&self, what: &'static str) -> Result<(), DiskError> {
        match self.step(what).and_then(Told::told) {
            // SQLite takes a failed commit back: there is no failure after one.
            Err(error) if what == "commit" || error.kind() == io::ErrorKind::BrokenPipe => {
                Err(DiskError::new(what, "the disk of the tests", error))
            }
            _ => Ok(()),
        }
    }
}

impl Commits for Trouble {
    fn begin(&self) -> Result<(), DiskError> {
        self.commit("commit")
    }

    fn done(&self) -> Result<(), DiskError> {
        self.commit("committed")
    }
}
