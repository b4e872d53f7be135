//! Parsers of sizes, spans and addresses, as people type them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Parses hours, which may have a fraction.
pub fn hours(text: &str) -> Result<f64, String> {
    let hours = text.parse().map_err(|_| "a number of hours, such as 24 or 1.5".to_owned())?;
    if (0.001..=100_000.0).contains(&hours) { Ok(hours) } else { Err("from 0.001 to 100000".to_owned()) }
}

/// Parses days, which may have a fraction, into seconds.
pub fn days(text: &str) -> Result<u64, String> {
    let days: f64 = text.parse().map_err(|_| "a number of days, such as 30 or 0.5".to_owned())?;
    if (0.0..=100_000.0).contains(&days) {
        Ok((days * 86_400.0) as u64)
    } else {
        Err("from 0 to 100000".to_owned())
    }
}

/// Parses bytes, as a number alone or with a unit: 100000, 64k, 1.5G, 2TiB. Units are powers of
/// 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "a number of bytes, such as 100000, 64K, 1.5G or 2T".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let power = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let factor = 1_u64 << (10 * power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| "more than there can be".to_owned());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err("more than there can be".to_owned()) }
}

/// Parses the number of a user.
pub fn user(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a user's number, such as 65534 (id -u NAME prints it)".to_owned())
}

/// Parses the host and port of a machine.
pub fn host_and_port(text: &str) -> Result<String, String> {
    let is_it = |(host, port): (&str, &str)| {
        let host = host.strip_prefix('[').map_or(host, |host| host.strip_suffix(']').unwrap_or(""));
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let bare_v6 = text.parse::<Ipv6Addr>().is_ok();
    if !bare_v6 && text.rsplit_once(':').is_some_and(is_it) {
        Ok(text.to_owned())
    } else {
        Err("a host and a port, such as server:4470 or [fd00::1]:4470".to_owned())
    }
}

/// Parses an address of this machine to listen at. A port alone means all addresses.
pub fn listen_at(text: &str) -> Result<SocketAddr, String> {
    address_or_port(text, Ipv6Addr::UNSPECIFIED.into())
}

/// Parses the same, but a port alone means the loopback address.
pub fn metrics_at(text: &str) -> Result<SocketAddr, String> {
    address_or_port(text, Ipv4Addr::LOCALHOST.into())
}

fn address_or_port(text: &str, alone: IpAddr) -> Result<SocketAddr, String> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok((alone, port).into());
    }
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.ok_or_else(|| {
        "an address of this machine and a port, such as 192.168.1.5:4470 or [::]:4470, or a port".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        let read = ["0", "100000", "64k", "64KiB", "1.5G", "2 TB", "17179869184G", "1e3", "G", "-1", ""];
        let want = [Some(0), Some(100_000), Some(65_536), Some(65_536), Some(3 << 29), Some(2 << 40)];
        let want = want.into_iter().chain([None; 5]).collect::<Vec<_>>();
        assert_eq!(read.map(|text| bytes(text).ok()).to_vec(), want);
        assert_eq!(bytes("16777215P").ok(), None);
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let right = ["server:4470", "127.0.0.1:1", "[::1]:4470"];
        let wrong =
            ["server", "127.0.0.1", ":4470", "server:", "server:0", "server:65536", "::1", "fd00::1", "[]:1"];
        assert!(right.iter().all(|text| host_and_port(text).is_ok()));
        assert!(wrong.iter().all(|text| host_and_port(text).is_err()));
        let everywhere = "[::]:4470".parse().ok();
        for text in ["4470", ":4470", "[::]:4470"] {
            assert_eq!(listen_at(text).ok(), everywhere, "{text}");
        }
        assert!(listen_at("localhost:4480").is_ok_and(|address| address.ip().is_loopback()));
        let local = "127.0.0.1:9470".parse().ok();
        for text in ["9470", ":9470", "127.0.0.1:9470"] {
            assert_eq!(metrics_at(text).ok(), local, "{text}");
        }
        assert_eq!(metrics_at("0.0.0.0:1").ok(), "0.0.0.0:1".parse().ok());
        assert!(listen_at("nowhere").is_err() && listen_at("65536").is_err());
    }
}
