//! The values that grants and reports give knowledge of.

use crate::files::Files;
use crate::grant::PAGE;
use ident::FileId;
use lease::{Field, Held, Kind, Label, SessionId};
use namespace::fold;
use wire::Values;

/// Extents that come along with content; the others are fetched when they are wanted.
const EXTENTS: usize = 64;
/// Bytes of extended attributes that may come along unasked.
const XATTR_BYTES: usize = 64 << 10;

/// Which part of a directory's entries is told.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    /// Positions above this.
    pub after: u64,
    /// At most so many.
    pub limit: usize,
    /// Whether everything before was told, now or earlier.
    pub contiguous: bool,
}

impl Files<'_> {
    /// Whether all extended attributes of `file` fit into a grant that was not asked for them.
    pub fn xattrs_fit(&self, file: &FileId) -> bool {
        self.xattrs(file).iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum::<usize>()
            <= XATTR_BYTES
    }

    /// The values of `fields` for `session`; of labels only what `held` covers.
    pub fn values(
        &self,
        file: &FileId,
        fields: &[(Field, Kind)],
        (session, held): (SessionId, &Held),
        page: Option<Page>,
        inline: &mut usize,
    ) -> Values {
        let mut values = Values::default();
        let Some(record) = self.record(file) else { return values };
        // Whom nobody is beside sees nothing of others, in all seven.
        let alone = record.holdings.is_alone(session);
        for (field, kind) in fields {
            // Who only touches does not know.
            if *kind == Kind::Touch {
                continue;
            }
            match field {
                Field::Attributes => values.attributes = Some(record.attributes),
                Field::Content => {
                    values.content = Some(record.content);
                    self.content_values(file, &mut values, inline);
                }
                Field::Times => values.times = record.is_directory().then_some(record.times),
                Field::Parent => values.links = Some(record.links.clone()),
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
            let through = if entries.len() < limit {
                u64::MAX
            } else {
                entries.last().map_or(u64::MAX, |(_, e)| e.position)
            };
            values.children_through = contiguous.then_some(through);
            let covered = |label: &Label| held.is_whole() || held.kind(&Field::Child(fold(label))).is_some();
            let known: Vec<u64> = values.children.iter().map(|(_, entry)| entry.position).collect();
            let entries = entries
                .into_iter()
                .filter(|(label, entry)| covered(label) && !known.contains(&entry.position));
            values.children.extend(entries);
        }
        values
    }

    fn content_values(&self, file: &FileId, values: &mut Values, inline: &mut usize) {
        let Some(record) = self.record(file).filter(|record| !record.is_directory()) else { return };
        if record.inline_bytes > 0 {
            if let Some(left) = inline.checked_sub(record.inline_bytes as usize) {
                *inline = left;
                values.inline = Some(self.inline(file));
            }
        } else if record.content.size > 0 {
            let extents = self.extents(file, 0, EXTENTS);
            values.extents = Some(complete_below(extents, EXTENTS));
        }
    }

    /// Answers a query for content.
    pub fn content_from(&self, session: SessionId, number: u64, file: &FileId, from: u64) -> wire::ToClient {
        let reader = self.holdings(file).covers(session, &Field::Content, Kind::Read);
        let file = file.clone();
        if !reader {
            // It lost the lease on the way, and will find out.
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
        let (extents, to) = complete_below(self.extents(&file, from, PAGE), PAGE);
        wire::ToClient::Extents { number, file, from, to, extents, inline }
    }
}

/// Extents of which `limit` were looked for, and up to where they are all.
fn complete_below(extents: Vec<namespace::Extent>, limit: usize) -> (Vec<namespace::Extent>, u64) {
    let to = if extents.len() < limit {
        None
    } else {
        extents.last().map(|last| last.offset + u64::from(last.length))
    };
    (extents, to.unwrap_or(u64::MAX))
}
