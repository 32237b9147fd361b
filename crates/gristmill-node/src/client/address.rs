//! Where a node is: `grist://host:port/name`, `grists://` for TLS, or `grist+unix:///path?set=name`.

use crate::{Error, Result};
use std::net::IpAddr;
use std::path::PathBuf;
use url::Url;

/// The port of a node when none is given.
const PORT: u16 = 7_077;

/// Where a node is and which of its data sets is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Over TCP.
    Tcp {
        /// A name or a number; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether TLS is asked for.
        tls: bool,
        /// The data set; "" if the node has only one.
        name: String,
    },
    /// Over a Unix socket.
    Unix {
        /// The socket.
        path: PathBuf,
        /// The data set; "" if the node has only one.
        name: String,
    },
}

impl Address {
    /// Whether a source is a node's URL.
    pub fn is_node(source: &str) -> bool {
        ["grist://", "grists://", "grist+unix://"].iter().any(|scheme| source.starts_with(scheme))
    }

    /// Takes a URL apart.
    pub fn parse(text: &str) -> Result<Address> {
        let bad = |why: &str| {
            Error::config(format!("{text:?} is not the URL of a node: {why}"))
                .hint("write grist://host:7077/name, grists:// for TLS, or grist+unix:///path/to/socket")
        };
        let url = Url::parse(text).map_err(|e| bad(&e.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("a token does not belong into a URL; use GRISTMILL_TOKEN or a token file"));
        }
        match url.scheme() {
            scheme @ ("grist" | "grists") => {
                let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| bad("no host"))?;
                if url.query().is_some() || url.fragment().is_some() {
                    return Err(bad("it ends in ? or #"));
                }
                let name = url.path().trim_matches('/');
                if name.contains('/') {
                    return Err(bad("the name of a data set has no /"));
                }
                Ok(Address::Tcp {
                    host: host.trim_matches(['[', ']']).to_string(),
                    port: url.port().unwrap_or(PORT),
                    tls: scheme == "grists",
                    name: name.to_string(),
                })
            }
            "grist+unix" => {
                if url.host_str().is_some_and(|host| !host.is_empty()) || url.path().len() < 2 {
                    return Err(bad("the path of the socket must stand after three slashes"));
                }
                let mut name = String::new();
                for (key, value) in url.query_pairs() {
                    if key != "set" {
                        return Err(bad("only ?set=NAME may follow the path"));
                    }
                    name = value.into_owned();
                }
                // As it was typed: a URL would write a space in another way than the file system.
                let typed = text.trim_start_matches("grist+unix://").split('?').next().unwrap_or("");
                Ok(Address::Unix { path: PathBuf::from(typed), name })
            }
            scheme => Err(bad(&format!("its scheme is {scheme:?}"))),
        }
    }

    /// Whether it can only be on this machine.
    pub fn is_here(&self) -> bool {
        match self {
            Address::Unix { .. } => true,
            Address::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// The data set; "" if the node has only one.
    pub fn name(&self) -> &str {
        match self {
            Address::Tcp { name, .. } | Address::Unix { name, .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_or_refused_with_a_word() {
        let tcp = |host: &str, port, tls, name: &str| Address::Tcp {
            host: host.into(),
            port,
            tls,
            name: name.into(),
        };
        for (text, address) in [
            ("grist://host:1/train", tcp("host", 1, false, "train")),
            ("grist://10.0.0.1", tcp("10.0.0.1", PORT, false, "")),
            ("grists://[::1]:9/a/", tcp("::1", 9, true, "a")),
            ("grist+unix:///run/g.sock", Address::Unix { path: "/run/g.sock".into(), name: String::new() }),
            ("grist+unix:///a b/g", Address::Unix { path: "/a b/g".into(), name: String::new() }),
            ("grist+unix:///g?set=x", Address::Unix { path: "/g".into(), name: "x".into() }),
        ] {
            assert_eq!(Address::parse(text).unwrap(), address, "{text}");
            assert!(Address::is_node(text));
            let here = text.contains("unix") || text.contains("::1");
            assert_eq!(address.is_here(), here, "{text}");
        }
        for (text, word) in [
            ("grist://", "host"),
            ("grist://h/a/b", "no /"),
            ("grist://token@h/a", "token"),
            ("grist://h/a?x", "? or #"),
            ("grist+unix://host/path", "three slashes"),
            ("grist+unix:///p?name=x", "set=NAME"),
            ("http://h", "http"),
            ("nonsense", "relative"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
        }
        assert!(!Address::is_node("/data/train") && !Address::is_node("s3://bucket"));
    }
}
