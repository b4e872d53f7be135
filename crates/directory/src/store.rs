//! The store that the host gives the server.

/// The ordered rows that hold the server's state. The host makes them durable together with the
/// index of the last applied Raft log entry. Nothing here fails: a store that can no longer read or
/// write stops the server (a wrong server is worse than a stopped one).
pub trait Store {
    /// The value at `key`.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Sets `key`.
    fn put(&mut self, key: &[u8], value: Vec<u8>);
    /// Removes `key`, if it is there.
    fn delete(&mut self, key: &[u8]);
    /// Shows `visit` the rows with `start <= key < end` in order, until `visit` returns false.
    /// `visit` must not ask the store meanwhile.
    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool);

    /// The first `limit` rows with `start <= key < end`, in order.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        if limit > 0 {
            self.walk(start, end, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                rows.len() < limit
            });
        }
        rows
    }
}

/// A store that is only read.
pub(crate) struct Unchanged<'a>(pub &'a dyn Store);

impl Store for Unchanged<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key)
    }

    fn put(&mut self, _: &[u8], _: Vec<u8>) {}

    fn delete(&mut self, _: &[u8]) {}

    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.0.walk(start, end, visit);
    }
}
