//! Tree-structured file identifiers, their order-preserving code, and prefix maps (Farsite §4.1).
