//! The values that grants and reports give knowledge of.

use crate::requests::grant::PAGE;
use crate::rows::files::Files;
use ident::FileId;
use lease::{Field, Held, Kind, Label, SessionId};
use namespace::{Extent, Place, fold};
use wire::Values;

/// Extents that come along with content; the client fetches the others when it wants them.
const EXTENTS: usize = 64;
/// Bytes of one file's extended attributes and links that may come along unasked.
const UNASKED_BYTES: usize = 64 << 10;
/// Bytes that a lock takes in a message at most.
const LOCK_BYTES: usize = 48;
/// Links in a message at most: for a file with more the server itself decides the operations that
/// rest on them.
const LINKS: usize = 1000;

/// The room left in a message for values that may be very large. The number of fields and [`PAGE`]
/// bound the rest of a message. So no message is longer than a frame may be, whatever files there
/// are.
pub(crate) struct Room {
    /// Bytes of inline content.
    pub inline: usize,
    /// Bytes of pieces that are in the metadata.
    pub pieces: usize,
    /// Bytes of attributes and links that were not asked for.
    pub unasked: usize,
}

impl Room {
    /// The room in an empty message.
    pub fn whole() -> Room {
        Room { inline: 1 << 20, pieces: 4 << 20, unasked: 2 << 20 }
    }

    /// The `extents` that still fit, and the offset up to which they are complete, if `limit` were
    /// looked for; `None` if there is no room for any.
    fn of_extents(&mut self, mut extents: Vec<Extent>, limit: usize) -> Option<(Vec<Extent>, u64)> {
        let found = extents.len();
        let mut fits = |extent: &Extent| {
            let left = self.pieces.checked_sub(bytes_of(extent));
            left.inspect(|left| self.pieces = *left).is_some()
        };
        let taken = extents.iter().map_while(|extent| fits(extent).then_some(())).count();
        extents.truncate(taken);
        if taken == found && found < limit {
            return Some((extents, u64::MAX));
        }
        let to = extents.last().map(|last| last.offset + u64::from(last.length))?;
        Some((extents, to))
    }
}

fn bytes_of(extent: &Extent) -> usize {
    match &extent.piece.place {
        Place::Inline(ciphertext) => ciphertext.len(),
        Place::Share { .. } => 0,
    }
}

/// The part of a directory's entries to report.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    /// The position after which the page begins.
    pub after: u64,
    /// Entries at most.
    pub limit: usize,
    /// Whether all earlier entries were reported, now or before.
    pub contiguous: bool,
}

impl Files<'_> {
    /// Bytes of the large values that come along with all of `file`; `None` if that is too much for
    /// a session that did not ask for them.
    pub fn unasked_bytes(&self, file: &FileId) -> Option<usize> {
        let record = self.record(file)?;
        let xattrs = self.xattrs(file);
        let xattrs = xattrs.iter().map(|(name, value)| name.as_bytes().len() + value.len());
        let links = record.links.iter().map(|link| link.label.as_bytes().len() + size_of::<FileId>());
        let bytes = xattrs.chain(links).sum::<usize>() + record.locks.len() * LOCK_BYTES;
        (bytes <= UNASKED_BYTES).then_some(bytes)
    }

    /// The values of `fields` for `session`; of labels only those that `held` covers.
    pub fn values(
        &self,
        file: &FileId,
        fields: &[(Field, Kind)],
        (session, held): (SessionId, &Held),
        page: Option<Page>,
        room: &mut Room,
    ) -> Values {
        let mut values = Values::default();
        let Some(record) = self.record(file) else { return values };
        // A session that is alone on the file sees nothing of others, in all seven fields.
        let alone = record.holdings.is_alone(session);
        for (field, kind) in fields {
            // A lease to touch gives no knowledge.
            if *kind == Kind::Touch {
                continue;
            }
            match field {
                Field::Attributes => values.attributes = Some(record.attributes),
                Field::Content => {
                    values.content = Some(record.content);
                    self.content_values(file, &mut values, room);
                }
                Field::Times => values.times = record.is_directory().then_some(record.times),
                Field::Parent => {
                    values.links = (record.links.len() <= LINKS).then(|| record.links.clone());
                }
                Field::Child(folded) => {
                    values.children.extend(self.children_folding_to(file, folded));
                    values.told.push(folded.clone());
                }
                Field::Xattr(name) => {
                    values.xattrs.extend(self.xattr(file, name).map(|value| (name.clone(), value)))
                }
                Field::Xattrs => values.xattrs = self.xattrs(file),
                Field::Disposition => values.disposition = Some(record.disposition.as_deref().cloned()),
                Field::Locks => values.locks = Some(record.locks.seen_by(&session)),
                Field::Handles | Field::Mode(_) => {
                    let others = match alone {
                        true => Some(false),
                        false => record.holdings.black_box(field).other_value(session),
                    };
                    values.others.set(field, others);
                }
                Field::Children | Field::Path => {}
            }
        }
        if let Some(Page { after, limit, contiguous }) = page {
            let entries = self.page(file, after, limit);
            let up_to = if entries.len() < limit {
                u64::MAX
            } else {
                entries.last().map_or(u64::MAX, |(_, e)| e.position)
            };
            values.children_up_to = contiguous.then_some(up_to);
            values.children_last = record.unused_from.saturating_sub(1);
            let covered = |label: &Label| held.is_whole() || held.kind(&Field::Child(fold(label))).is_some();
            let known: Vec<u64> = values.children.iter().map(|(_, entry)| entry.position).collect();
            let entries = entries
                .into_iter()
                .filter(|(label, entry)| covered(label) && !known.contains(&entry.position));
            values.children.extend(entries);
        }
        values
    }

    fn content_values(&self, file: &FileId, values: &mut Values, room: &mut Room) {
        let Some(record) = self.record(file).filter(|record| !record.is_directory()) else { return };
        if record.inline_bytes > 0 {
            if let Some(left) = room.inline.checked_sub(record.inline_bytes as usize) {
                room.inline = left;
                values.inline = Some(self.inline(file));
            }
        } else if record.content.size > 0 {
            values.extents = room.of_extents(self.extents(file, 0, EXTENTS), EXTENTS);
        }
    }

    /// Answers a query for content.
    pub fn content_from(&self, session: SessionId, number: u64, file: &FileId, from: u64) -> wire::ToClient {
        let reader = self.holdings(file).covers(session, &Field::Content, Kind::Read);
        let file = file.clone();
        if !reader {
            // The session lost the lease on the way, and will find out.
            return wire::ToClient::Extents {
                number,
                file,
                from,
                to: from,
                extents: Vec::new(),
                inline: None,
            };
        }
        let inline = Some(self.inline(&file)).filter(|inline| !inline.is_empty());
        let told = Room::whole().of_extents(self.extents(&file, from, PAGE), PAGE);
        // One piece fits into an empty message.
        let (extents, to) = told.unwrap_or((Vec::new(), from));
        wire::ToClient::Extents { number, file, from, to, extents, inline }
    }
}
