//! Whole clusters in one thread, from one seed: network, disks, crashes, oracle.
