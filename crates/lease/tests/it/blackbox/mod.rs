//! Black-box leases: the report's tables, the definition, and all behaviours of small systems.

mod checked;
mod definition;
mod model;
mod policies;
mod properties;
mod size;
mod tables;
