//! The directory server's state machine.
