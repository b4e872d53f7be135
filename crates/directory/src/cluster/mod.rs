//! The cluster: its machines, the versions that they speak, and the authorities that certify them.

pub(crate) mod certification;
pub(crate) mod enrolment;
pub(crate) mod in_use;
pub(crate) mod versions;
