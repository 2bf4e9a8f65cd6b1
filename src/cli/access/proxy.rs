//! The proxy to an API server: that of the kubeconfig, or that of the environment by the rules of Go, which kubectl
//! follows (`golang.org/x/net/http/httpproxy`).
//!
//! It only decides. [`connection`](super::connection) speaks to the proxy.

use std::net::IpAddr;

use anyhow::{Context as _, anyhow, bail};
use http::Uri;
use http::uri::{Authority, PathAndQuery};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;

/// A proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) protocol: Protocol,
    /// Its address, with a port and without credentials.
    pub(super) uri: Uri,
    pub(super) credentials: Option<(String, String)>,
    /// The setting that names it.
    pub(super) origin: String,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Socks5,
}

impl Protocol {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 => 1080,
        }
    }
}

impl Proxy {
    /// The proxy that a setting names.
    pub(super) fn parse(text: &str, origin: &str) -> anyhow::Result<Self> {
        let wrong = || anyhow!("{origin}: `{text}` is no address of a proxy, such as http://HOST:PORT");
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let protocol = match scheme.to_ascii_lowercase().as_str() {
            "http" => Protocol::Http,
            "https" => Protocol::Https,
            "socks5" | "socks5h" => Protocol::Socks5,
            other => bail!("{origin}: a proxy speaks http, https or socks5, and not {other}"),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials), address),
            None => (None, authority),
        };
        let address: Authority = address.parse().ok().filter(|_| !address.is_empty()).with_context(wrong)?;
        let port = address.port_u16().unwrap_or(protocol.default_port());
        // hyper connects to any scheme, and needs one.
        let uri = Uri::builder()
            .scheme(if protocol == Protocol::Https { "https" } else { "http" })
            .authority(format!("{}:{port}", address.host()))
            .path_and_query(PathAndQuery::from_static("/"))
            .build()
            .ok()
            .with_context(wrong)?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let credentials = credentials.map(|text| {
            let (user, password) = text.split_once(':').unwrap_or((text, ""));
            (decoded(user), decoded(password))
        });
        Ok(Self { protocol, uri, credentials, origin: origin.to_owned() })
    }

    /// The proxy that the environment names for requests to `server`.
    pub(super) fn of_environment(
        server: &Uri,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| Some((name, variable(name).filter(|text| !text.is_empty())?)))
        };
        let named = if server.scheme_str() == Some("http") {
            first(["HTTP_PROXY", "http_proxy"])
        } else {
            first(["HTTPS_PROXY", "https_proxy"])
        };
        let Some((name, text)) = named else { return Ok(None) };
        let exceptions = first(["NO_PROXY", "no_proxy"]).map(|(_, text)| text).unwrap_or_default();
        if is_direct(server, &exceptions) {
            return Ok(None);
        }
        Self::parse(&text, name).map(Some)
    }
}

/// Whether requests to `server` use no proxy: it is this machine, or an exception names it.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    exceptions.split(',').any(|exception| names(&exception.trim().to_ascii_lowercase(), &host, address, port))
}

/// Whether an entry of `NO_PROXY` names this host: `*`, a CIDR, an address or a domain, the last two perhaps with a
/// port.
fn names(exception: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if exception == "*" {
        return true;
    }
    if let Ok(range) = exception.parse::<IpNet>() {
        return address.is_some_and(|address| range.contains(&address));
    }
    let (name, only_port) = match exception.rsplit_once(':') {
        // An IPv6 address has several colons, and brackets before a port.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        Some(_) | None => (exception, None),
    };
    let name = name.trim_matches(['[', ']']);
    if name.is_empty() || only_port.is_some_and(|only| only != port.to_string()) {
        return false;
    }
    if let Ok(named) = name.parse::<IpAddr>() {
        return address == Some(named);
    }
    // `example.org` also names `a.example.org`; `.example.org` and `*.example.org` name only the latter.
    let domain = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match domain.strip_prefix('.') {
        Some(_) => host.ends_with(domain),
        None => host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_owned())
        };
        let proxy = Proxy::of_environment(&server.parse().unwrap(), variable).unwrap();
        proxy.map(|proxy| proxy.uri.to_string())
    }

    #[test]
    fn the_environment_names_a_proxy_by_the_scheme_of_the_server() {
        let both = [("HTTPS_PROXY", "proxy:3128"), ("http_proxy", "http://plain")];
        assert_eq!(of("https://api.example:6443", &both).as_deref(), Some("http://proxy:3128/"));
        assert_eq!(of("http://api.example", &both).as_deref(), Some("http://plain:80/"));
        assert_eq!(
            of("https://api.example", &[("HTTPS_PROXY", ""), ("https_proxy", "p:1")]).as_deref(),
            Some("http://p:1/")
        );
        assert_eq!(of("https://api.example", &[("HTTP_PROXY", "p:1")]), None);
    }

    /// The examples of Go's own tests (`httpproxy/proxy_test.go`).
    #[test]
    fn exceptions_are_those_of_go() {
        let check = |exceptions: &str, server: &str, is_proxied: bool| {
            let found = of(server, &[("HTTPS_PROXY", "proxy:1"), ("NO_PROXY", exceptions)]);
            assert_eq!(found.is_some(), is_proxied, "{exceptions} {server}");
        };
        for direct in
            ["https://localhost:6443", "https://127.0.0.1:6443", "https://127.0.0.2", "https://[::1]:6443"]
        {
            check("", direct, false);
        }
        check("", "https://172.16.0.1", true);
        check("*", "https://172.16.0.1", false);
        check("foo.com, 10.0.0.0/8", "https://10.1.2.3:6443", false);
        check("10.0.0.0/8", "https://11.1.2.3", true);
        check("fd00::/8", "https://[fd00::1]:6443", false);
        check("192.168.1.1:6443", "https://192.168.1.1:6443", false);
        check("192.168.1.1:6443", "https://192.168.1.1", true);
        check("192.168.1.1", "https://192.168.1.1:6443", false);
        check("[fd00::1]:6443", "https://[fd00::1]:6443", false);
        check("fd00::1", "https://[fd00::1]:6443", false);
        for (exception, exact, below) in [
            ("foo.com", false, false),
            (".foo.com", true, false),
            ("*.foo.com", true, false),
            ("FOO.com", false, false),
        ] {
            check(exception, "https://foo.com", exact);
            check(exception, "https://a.foo.com:6443", below);
            check(exception, "https://afoo.com", true);
        }
        check("foo.com:443", "https://foo.com", false);
        check("foo.com:443", "https://foo.com:6443", true);
        check(":443, ,", "https://foo.com", true);
        // The proxy itself is not compared.
        check("proxy", "https://foo.com", true);
    }

    #[test]
    fn a_proxy_has_a_protocol_a_port_and_perhaps_credentials() {
        let check = |text: &str, protocol: Protocol, uri: &str, credentials: Option<(&str, &str)>| {
            let proxy = Proxy::parse(text, "proxy-url").unwrap();
            let found = proxy.credentials.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
            assert_eq!(
                (proxy.protocol, proxy.uri.to_string().as_str(), found),
                (protocol, uri, credentials),
                "{text}"
            );
        };
        check("proxy", Protocol::Http, "http://proxy:80/", None);
        check("https://proxy/", Protocol::Https, "https://proxy:443/", None);
        check("socks5://proxy", Protocol::Socks5, "http://proxy:1080/", None);
        check("socks5h://[::1]:9", Protocol::Socks5, "http://[::1]:9/", None);
        check("http://a:b%40c@proxy:3128", Protocol::Http, "http://proxy:3128/", Some(("a", "b@c")));
        for wrong in ["ftp://proxy", "http://", "http://a b"] {
            assert!(Proxy::parse(wrong, "proxy-url").is_err(), "{wrong}");
        }
    }
}
