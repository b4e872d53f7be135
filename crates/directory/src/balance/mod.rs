//! The balance of load among servers: which files are in use, and which regions are to move for
//! that (Farsite §4, §7.2.2).
//!
//! The rule is a pure function of the files that two servers have in use
//! ([`rule::BalanceRule::chooses`]). Each replica counts these files for itself
//! ([`crate::Directory::active`]). The host compares pairs of servers, and has regions
//! [delegated](crate::Input::Delegate).

pub(crate) mod activity;
pub(crate) mod rule;
