//! The addresses at which a client may open more connections (MS-SMB2 §2.2.32.5).

use crate::wire::Writer;
use std::net::SocketAddr;

/// The bytes of an entry.
const ENTRY_BYTES: usize = 152;
/// RSS_CAPABLE: several connections to one address are worth their while, since the server has
/// threads for them.
const RSS_CAPABLE: u32 = 1;
/// LinkSpeed, which clients compare among interfaces of one server.
const BITS_PER_SECOND: u64 = 10_000_000_000;

/// Returns the answer to FSCTL_QUERY_NETWORK_INTERFACE_INFO: the address that the client has
/// reached. Another one might lead nowhere from where the client is.
pub(super) fn interfaces(reached: SocketAddr) -> Vec<u8> {
    const INTERNETWORK: u16 = 2;
    const INTERNETWORK_V6: u16 = 23;
    let mut out = Vec::with_capacity(ENTRY_BYTES);
    out.u32(0);
    out.u32(1);
    out.u32(RSS_CAPABLE);
    out.u32(0);
    out.u64(BITS_PER_SECOND);
    match reached {
        SocketAddr::V4(v4) => {
            out.u16(INTERNETWORK);
            out.u16(0);
            out.put(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out.u16(INTERNETWORK_V6);
            out.u16(0);
            out.u32(0);
            out.put(&v6.ip().octets());
            out.u32(v6.scope_id());
        }
    }
    out.resize(ENTRY_BYTES, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_address_that_was_reached() {
        let four = interfaces("192.0.2.7:445".parse().unwrap());
        assert_eq!((four.len(), &four[24..32]), (152, &[2, 0, 0, 0, 192, 0, 2, 7][..]));
        let six = interfaces("[2001:db8::9]:445".parse().unwrap());
        assert_eq!((six.len(), &six[24..36]), (152, &[23, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8][..]));
        assert_eq!(six[47], 9);
    }
}
