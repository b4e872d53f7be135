//! The rows of the servers that were founded beside the root server.

use crate::Corrupt;
use crate::rows::files::Files;
use crate::rows::keys::Table;
use crate::rows::record::exact;
use ident::ServerId;

impl Files<'_> {
    /// The founded servers, by number, each with its founder.
    pub fn servers(&self) -> Vec<(ServerId, u64)> {
        let rows = self.table(Table::Founded, None, usize::MAX);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            Some((self.parse_key(number_in(&key))?, self.parse(&key, &row)?))
        };
        rows.into_iter().filter_map(parse).collect()
    }

    /// Records a server and its founder.
    pub fn set_server(&mut self, server: ServerId, founder: u64) {
        let key = u64::from(server.0).to_be_bytes();
        self.set_row(Table::Founded, &key, Some(wire::encode(&founder)));
    }
}

fn number_in(key: &[u8]) -> Result<ServerId, Corrupt> {
    let number = u16::try_from(Table::Founded.number(key)?);
    number.map(ServerId).map_err(|_| Corrupt::at(key, "server"))
}

/// Reads a row of [`Table::Founded`]. Returns the server's number.
pub(crate) fn check_server(key: &[u8], row: &[u8]) -> Result<ServerId, Corrupt> {
    let server = number_in(key)?;
    exact::<u64>(row).map(|_| server).ok_or_else(|| Corrupt::at(key, "founder"))
}
