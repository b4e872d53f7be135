//! The share server: stored pieces of content and the database of who wants them kept.
