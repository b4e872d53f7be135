//! Benchmarks: the mount, the floor, the disk, in one run.
