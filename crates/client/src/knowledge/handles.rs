//! The handles that programs here have on a file. With them go this client's own values of the
//! file's black boxes (BlackBox §4.3, §4.4).

use lease::{Field, OpenModes};

/// The number of handles that this client has on a file: in all, and in each mode.
///
/// Other clients see only which of these are not zero, and only as part of an aggregate.
#[derive(Debug, Default)]
pub(crate) struct Handles([u32; Field::BLACK_BOXES.len()]);

impl Handles {
    /// This client's own values.
    pub fn own(&self) -> OpenModes {
        self.but(OpenModes::CLOSED)
    }

    /// Its own values if one handle with these modes were closed.
    pub fn but(&self, closed: OpenModes) -> OpenModes {
        let mut own = OpenModes::CLOSED;
        for (field, count) in Field::BLACK_BOXES.iter().zip(&self.0) {
            own.set(field, *count > u32::from(closed.has(field)));
        }
        own
    }

    /// Whether a handle with these modes may be among them.
    pub fn has(&self, open: OpenModes) -> bool {
        open.fields().all(|field| self.own().has(&field))
    }

    /// Whether a handle with these modes is the only one.
    pub fn is_only(&self, open: OpenModes) -> bool {
        Field::BLACK_BOXES.iter().zip(&self.0).all(|(field, count)| *count == u32::from(open.has(field)))
    }

    /// The number of handles.
    pub fn count(&self) -> u64 {
        let handles = Field::BLACK_BOXES.iter().zip(&self.0).find(|(field, _)| **field == Field::Handles);
        handles.map_or(0, |(_, count)| u64::from(*count))
    }

    /// Adds all of `others`.
    pub fn add_all(&mut self, others: &Handles) {
        for (count, more) in self.0.iter_mut().zip(&others.0) {
            *count += more;
        }
    }

    /// Adds one handle.
    pub fn add(&mut self, open: OpenModes) {
        for (field, count) in Field::BLACK_BOXES.iter().zip(&mut self.0) {
            *count += u32::from(open.has(field));
        }
    }

    /// Removes one handle.
    pub fn remove(&mut self, open: OpenModes) {
        for (field, count) in Field::BLACK_BOXES.iter().zip(&mut self.0) {
            *count = count.saturating_sub(u32::from(open.has(field)));
        }
    }
}

/// Handles of a file from an earlier session.
#[derive(Debug)]
pub(crate) struct Reopening {
    pub handles: Handles,
    pub state: ReopenState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReopenState {
    /// The file waits for its turn.
    Later,
    /// The request is under way.
    Asked,
    /// Other clients have the file open with conflicting modes.
    Refused,
}
