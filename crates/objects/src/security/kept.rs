//! A descriptor as it is kept beside a file's mode.

use super::SecurityDescriptor;
use namespace::Attributes;

/// The first bytes of a kept descriptor.
const MAGIC: [u8; 4] = *b"LHd1";

/// The value to keep: the descriptor, with the mode and the owners that go with it.
pub(crate) fn to_bytes(descriptor: &SecurityDescriptor, file: &Attributes) -> Vec<u8> {
    [&MAGIC[..], &binding(file), &descriptor.to_bytes(15)].concat()
}

/// The descriptor in a value. A change of mode or owner by POSIX has ended it.
pub(crate) fn parse(bytes: &[u8], file: &Attributes) -> Option<SecurityDescriptor> {
    let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(&binding(file)[..])?;
    SecurityDescriptor::parse(rest).ok()
}

fn binding(file: &Attributes) -> [u8; 12] {
    let mut out = [0; 12];
    out[..4].copy_from_slice(&u32::from(file.mode & 0o777).to_le_bytes());
    out[4..8].copy_from_slice(&file.uid.to_le_bytes());
    out[8..].copy_from_slice(&file.gid.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::super::owned as attributes;
    use super::*;

    #[test]
    fn a_descriptor_counts_until_the_mode_or_an_owner_changes() {
        let descriptor = SecurityDescriptor::of_mode(&attributes(0o600, 1, 1));
        let kept = to_bytes(&descriptor, &attributes(0o644, 1, 1));
        assert_eq!(parse(&kept, &attributes(0o644, 1, 1)), Some(descriptor));
        for other in [attributes(0o640, 1, 1), attributes(0o644, 2, 1), attributes(0o644, 1, 2)] {
            assert_eq!(parse(&kept, &other), None);
        }
        assert_eq!(parse(b"", &attributes(0, 0, 0)), None);
    }
}
