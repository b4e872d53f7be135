//! The rows: their keys and values, those that one turn reads and changes, and the invariants that
//! hold among them.

pub(crate) mod check;
pub(crate) mod decoded;
pub(crate) mod effects;
pub(crate) mod extents;
pub(crate) mod files;
pub(crate) mod found;
pub(crate) mod keys;
pub(crate) mod machines;
pub(crate) mod placement;
pub(crate) mod record;
pub(crate) mod servers;
pub(crate) mod share_index;
