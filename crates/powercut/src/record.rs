//! The record: all that reached the disk, in order. It has writes, flushes, and the notes of
//! watching programs.

use std::io::{self, Read, Write};

/// One thing that happened, in the order in which the disk saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// Bytes written, volatile until the next flush.
    Write {
        /// Where on the disk, in bytes.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Everything written before is durable now.
    Flush,
    /// A program appended to the file of this name beside the disk. Notes made before a cut survive
    /// it. A note promises something of the disk, and the check demands just that.
    Note {
        /// The file's name.
        file: String,
        /// The bytes appended.
        data: Vec<u8>,
    },
}

/// A record that this program did not write, or that ends in the middle.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The record could not be read.
    #[error("reading the record: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no event.
    #[error("the record is damaged: {0}")]
    Malformed(&'static str),
}

const WRITE: u8 = b'w';
const FLUSH: u8 = b'f';
const NOTE: u8 = b'n';
/// No kernel sends a larger write to a FUSE file.
const DATA_MAX: u32 = 64 << 20;
const NAME_MAX: u64 = 255;

/// Appends an event in one write, so that a killed recorder leaves whole events.
pub fn append(to: &mut impl Write, kind: &DiskEvent) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut put = |tag: u8, number: u64, parts: [&[u8]; 2]| {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        bytes.push(tag);
        bytes.extend(number.to_le_bytes());
        bytes.extend((length as u32).to_le_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
    };
    match kind {
        DiskEvent::Write { offset, data } => put(WRITE, *offset, [data, &[]]),
        DiskEvent::Flush => put(FLUSH, 0, [&[], &[]]),
        DiskEvent::Note { file, data } => put(NOTE, file.len() as u64, [file.as_bytes(), data]),
    }
    to.write_all(&bytes)
}

/// The next event; `None` at the end.
pub fn next(from: &mut impl Read) -> Result<Option<DiskEvent>, RecordError> {
    let mut tag = [0; 1];
    if from.read(&mut tag)? == 0 {
        return Ok(None);
    }
    let (mut number, mut length) = ([0; 8], [0; 4]);
    from.read_exact(&mut number)?;
    from.read_exact(&mut length)?;
    let (number, length) = (u64::from_le_bytes(number), u32::from_le_bytes(length));
    if length > DATA_MAX {
        return Err(RecordError::Malformed("an event larger than any write"));
    }
    let mut data = vec![0; length as usize];
    from.read_exact(&mut data)?;
    match tag {
        [WRITE] => Ok(Some(DiskEvent::Write { offset: number, data })),
        [FLUSH] => Ok(Some(DiskEvent::Flush)),
        [NOTE] if number <= NAME_MAX && number <= u64::from(length) => {
            let rest = data.split_off(number as usize);
            let file =
                String::from_utf8(data).map_err(|_| RecordError::Malformed("a name that is not UTF-8"))?;
            Ok(Some(DiskEvent::Note { file, data: rest }))
        }
        _ => Err(RecordError::Malformed("an unknown kind of event")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_as_they_were() {
        let events = [
            DiskEvent::Write { offset: 1 << 40, data: vec![7; 513] },
            DiskEvent::Flush,
            DiskEvent::Note { file: "facts".into(), data: b"=\n".to_vec() },
        ];
        let mut bytes = Vec::new();
        events.iter().for_each(|event| append(&mut bytes, event).unwrap());
        let mut from = &bytes[..];
        for event in events {
            assert_eq!(next(&mut from).unwrap(), Some(event));
        }
        assert_eq!(next(&mut from).unwrap(), None);
    }

    #[test]
    fn damage_is_an_error_never_a_panic() {
        let mut bytes = Vec::new();
        append(&mut bytes, &DiskEvent::Note { file: "facts".into(), data: b"x".to_vec() }).unwrap();
        for cut in 1..bytes.len() {
            assert!(next(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes[0] = b'?';
        assert!(matches!(next(&mut &bytes[..]), Err(RecordError::Malformed(_))));
        bytes[0] = NOTE;
        bytes[1] = 200;
        assert!(matches!(next(&mut &bytes[..]), Err(RecordError::Malformed(_))));
    }
}
