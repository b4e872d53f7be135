//! File content as pure transforms: extents, dirty data, encryption, packing.
