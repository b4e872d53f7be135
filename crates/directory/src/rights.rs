//! What machines may do is enforced here, when the server grants and when it replays, and never believed from the client (issue 4, "Joining").
