//! Listings (MS-FSA §2.1.5.6.3): pages of the client's listing, and `.` and `..` before them.

use crate::attributes::info;
use crate::cursor::Cursor;
use crate::path::{ObjectPath, name_of};
use crate::pattern::Pattern;
use crate::rights;
use crate::{ListedEntry, Listing, Open, StoreError};
use client::call;
use ident::FileId;
use namespace::{Error, Stat};

/// Entries that are asked for at once.
const PAGE: usize = 256;

/// The indexes of `.` and `..`. An entry's is its position and this.
const DOTS: u64 = 2;

impl Open {
    /// The next entries of a directory (MS-FSA §2.1.5.6.3), `.` and `..` first. Needs
    /// LIST_DIRECTORY. A caller whose buffer takes fewer resumes behind the last that it took.
    pub async fn list(&self, listing: Listing) -> Result<Vec<ListedEntry>, StoreError> {
        self.require(rights::READ_DATA)?;
        if !self.is_directory() {
            return Err(StoreError::Invalid);
        }
        let mut cursor = self.state.lock().cursor.clone();
        if cursor.pattern.is_none() || listing.restart {
            let text = listing.pattern.filter(|text| !text.is_empty());
            let before = (cursor.pattern.take(), cursor.plain.take());
            cursor = Cursor::default();
            match text {
                None if before.0.is_some() => (cursor.pattern, cursor.plain) = before,
                text => {
                    let text = text.unwrap_or_else(|| "*".to_owned());
                    let pattern = Pattern::new(&text);
                    cursor.plain = pattern.is_plain().then_some(text);
                    cursor.pattern = Some(pattern);
                }
            }
        }
        if let Some(index) = listing.resume {
            (cursor.after, cursor.is_at_end) = (index, false);
        }
        let entries = self.entries(&mut cursor, listing.limit.max(1)).await?;
        let is_first = !cursor.has_found;
        cursor.has_found |= !entries.is_empty();
        self.state.lock().cursor = cursor;
        match entries.is_empty() {
            true if is_first => Err(StoreError::NoSuchFile),
            true => Err(StoreError::NoMoreFiles),
            false => Ok(entries),
        }
    }

    async fn entries(&self, cursor: &mut Cursor, limit: usize) -> Result<Vec<ListedEntry>, StoreError> {
        let mut found = Vec::new();
        if let Some(plain) = cursor.plain.clone().filter(|name| name != "." && name != "..") {
            if !cursor.is_at_end {
                found.extend(self.entry_named(&plain).await?);
                cursor.is_at_end = true;
            }
            return Ok(found);
        }
        let matches = |name: &str| cursor.pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
        let (matches_dot, matches_dots) = (matches("."), matches(".."));
        if cursor.after < 1 {
            cursor.after = 1;
            if matches_dot {
                found.push(self.directory(".", 1, self.file()).await?);
            }
        }
        if cursor.after < DOTS && found.len() < limit {
            cursor.after = DOTS;
            if matches_dots {
                found.push(self.directory("..", DOTS, &self.above()).await?);
            }
        }
        while !cursor.is_at_end && found.len() < limit {
            let call = call::List {
                dir: self.file().clone(),
                after: cursor.after.saturating_sub(DOTS),
                upto: cursor.upto,
                limit: PAGE,
                stat: true,
            };
            let page = self.store().service.ask(&self.parts.who, call).await?;
            cursor.upto = Some(page.upto);
            let all = page.entries.len();
            for (at, listed) in page.entries.into_iter().enumerate() {
                let index = listed.entry.position.saturating_add(DOTS);
                cursor.after = index;
                let name = name_of(&listed.label, self.parts.is_posix);
                let is_wanted = |name: &String| cursor.pattern.as_ref().is_none_or(|it| it.matches(name));
                if let Some(name) = name.filter(is_wanted) {
                    found.extend(self.entry(name, index, listed.entry, listed.stat).await?);
                }
                if found.len() == limit && at + 1 < all {
                    return Ok(found);
                }
            }
            cursor.is_at_end = page.end;
        }
        Ok(found)
    }

    /// One entry. Nothing, if the file is gone meanwhile, or hidden.
    async fn entry(
        &self,
        name: String,
        index: u64,
        entry: namespace::Entry,
        stat: Option<Stat>,
    ) -> Result<Option<ListedEntry>, StoreError> {
        let store = self.store();
        let stat = match stat {
            Some(stat) => stat,
            None => match store.service.ask(&self.parts.who, call::Stat { file: entry.file.clone() }).await {
                Ok(stat) => stat.value,
                Err(Error::Stale | Error::NotFound) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        if self.parts.root.hides_unreadable {
            match store.may_read(&self.parts.who, &entry.file, &stat.attributes).await {
                Ok(true) => {}
                Ok(false) | Err(StoreError::Closed) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let dos = match store.dos(&entry).await {
            Err(StoreError::Closed) => return Ok(None),
            dos => dos?,
        };
        let ea_size = match store.ea_size(&entry.file).await {
            Err(StoreError::Closed) => return Ok(None),
            size => size?,
        };
        Ok(Some(ListedEntry { name, index, ea_size, info: info(&stat, dos) }))
    }

    /// The entry that a pattern without wildcards names.
    async fn entry_named(&self, name: &str) -> Result<Option<ListedEntry>, StoreError> {
        let is_posix = self.parts.is_posix;
        let Ok(path) = ObjectPath::parse(name, is_posix) else { return Ok(None) };
        let [label] = &path.components[..] else { return Ok(None) };
        let (label, found) =
            self.store().find(&self.empowered(), self.file(), label.clone(), is_posix).await?;
        let Some((entry, _)) = found else { return Ok(None) };
        let Some(name) = name_of(&label, is_posix) else { return Ok(None) };
        let index = entry.position.saturating_add(DOTS);
        self.entry(name, index, entry, None).await
    }

    /// `.` or `..`.
    async fn directory(&self, name: &str, index: u64, dir: &FileId) -> Result<ListedEntry, StoreError> {
        let stat = self.store().service.ask(&self.parts.who, call::Stat { file: dir.clone() }).await?.value;
        let kind = namespace::FileKind::Directory;
        let entry = namespace::Entry { file: dir.clone(), kind, ino: stat.attributes.ino, position: 0 };
        let dos = self.store().dos(&entry).await?;
        Ok(ListedEntry { name: name.to_owned(), index, ea_size: 0, info: info(&stat, dos) })
    }

    /// The directory above, within the share.
    fn above(&self) -> FileId {
        let above = self
            .store()
            .with(|table, _| table.opens.get(&self.id()).and_then(|open| open.above.last().cloned()));
        above.unwrap_or_else(|| self.file().clone())
    }
}
