//! The cluster: its machines and servers, the versions that they speak, and the authorities that
//! certify them.

pub(crate) mod certification;
pub(crate) mod enrolment;
pub(crate) mod founding;
pub(crate) mod in_use;
pub(crate) mod registry;
pub(crate) mod versions;
