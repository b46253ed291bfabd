//! Addresses of groups, as users write them.

use std::fmt;
use std::str::FromStr;

/// Where a group meets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupAddress {
    /// Processes of one host, by a name: `shm:NAME`.
    Shm {
        /// The name.
        name: String,
    },
    /// Processes of any hosts, which meet at one address: `tcp://HOST:PORT/NAME`.
    Tcp {
        /// A host name, an IPv4 address, or an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
        /// The group: several may meet at one address.
        name: String,
    },
    /// The ranks that `mpirun` has started: `mpi:`.
    Mpi,
}

/// A text that is no address of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no address of a group ({problem}): write shm:NAME, tcp://HOST:PORT/NAME or mpi:"
)]
pub struct AddressError {
    text: String,
    problem: &'static str,
}

impl FromStr for GroupAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parsed = match text.split_once(':') {
            Some(("shm", name)) => parse_name(name).map(|name| Self::Shm { name }),
            Some(("mpi", "")) => Ok(Self::Mpi),
            Some(("tcp", rest)) => parse_tcp(rest),
            _ => Err("it starts with no known transport"),
        };
        parsed.map_err(|problem| AddressError { text: text.to_owned(), problem })
    }
}

/// Parses `//HOST:PORT/NAME`.
fn parse_tcp(rest: &str) -> Result<GroupAddress, &'static str> {
    let rest = rest.strip_prefix("//").ok_or("`//` is missing after `tcp:`")?;
    let (place, name) = rest.split_once('/').ok_or("the name after the port is missing")?;
    let (host, port) = place.rsplit_once(':').ok_or("the port is missing")?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').ok_or("`]` is missing after the IPv6 address")?,
        None if host.contains(':') => return Err("an IPv6 address needs `[` and `]`"),
        None => host,
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let port = port.parse().ok().filter(|port| *port > 0).ok_or("the port is no port")?;
    Ok(GroupAddress::Tcp { host: host.to_owned(), port, name: parse_name(name)? })
}

/// The names that every transport takes.
fn parse_name(name: &str) -> Result<String, &'static str> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match (1..=200).contains(&name.len()) && name.bytes().all(is_sound) {
        true => Ok(name.to_owned()),
        false => Err("a name has 1 to 200 letters, digits, `.`, `_` and `-`"),
    }
}

impl fmt::Display for GroupAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm { name } => write!(f, "shm:{name}"),
            Self::Tcp { host, port, name } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}/{name}")
            }
            Self::Tcp { host, port, name } => write!(f, "tcp://{host}:{port}/{name}"),
            Self::Mpi => f.write_str("mpi:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_text() {
        for text in ["shm:a.b-c_7", "tcp://host0:7000/policy", "tcp://[::1]:1/p", "mpi:"] {
            assert_eq!(text.parse::<GroupAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, says) in [
            ("", "no known transport"),
            ("shm", "no known transport"),
            ("shm:", "1 to 200"),
            ("shm:a/b", "1 to 200"),
            ("mpi:x", "no known transport"),
            ("tcp:host:1/n", "`//` is missing"),
            ("tcp://host:1", "the name"),
            ("tcp://host/n", "the port is missing"),
            ("tcp://:1/n", "the host"),
            ("tcp://host:0/n", "no port"),
            ("tcp://host:65536/n", "no port"),
            ("tcp://::1:80/n", "needs `[`"),
            ("tcp://[::1:80/n", "`]` is missing"),
            ("tcp://host:1/", "1 to 200"),
        ] {
            let error = text.parse::<GroupAddress>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
