//! A failed connection in one sentence: the cause, and the setting to change.
//!
//! It classifies errors by their types. Only an unknown one is shown in the words of its library.

use std::error::Error;
use std::io;

use http::Uri;
use kube::client::RustlsTlsError;
use tokio_rustls::rustls;
use tokio_rustls::rustls::{AlertDescription, CertificateError};

/// The keys that ring can use.
const KEYS: &str = "P-256, P-384, Ed25519 or RSA with 2048 bits or more";

/// Why no connection to this server was made. `has_authority` is whether the kubeconfig has an authority.
pub(super) fn of_connection(error: &(dyn Error + 'static), server: &Uri, has_authority: bool) -> String {
    let chain = chain(error);
    if let Some(error) = chain.iter().find_map(|error| error.downcast_ref::<rustls::Error>()) {
        return of_tls(error, server, has_authority);
    }
    let kinds = chain.iter().filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    let kinds: Vec<io::ErrorKind> = kinds.collect();
    if kinds.contains(&io::ErrorKind::ConnectionRefused) {
        "connections are refused: does it run, and at this address?".to_owned()
    } else if kinds.contains(&io::ErrorKind::TimedOut) {
        no_answer()
    } else {
        chain.last().map(ToString::to_string).unwrap_or_default()
    }
}

/// Why there is no answer in time.
pub(super) fn no_answer() -> String {
    "it does not answer: does it run, and do you need a VPN or a proxy?".to_owned()
}

fn of_tls(error: &rustls::Error, server: &Uri, has_authority: bool) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error, server, has_authority),
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: use http:// in `server`".to_owned(),
        // Servers choose among the algorithms that a client offers.
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            format!(
                "it has no algorithm in common with this program: its certificate needs a key of {KEYS}, and no P-521"
            )
        }
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate,
        ) => "it refuses the client certificate of the user: renew it, or choose another user".to_owned(),
        rustls::Error::PeerIncompatible(_)
        | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it does not speak TLS 1.2 or newer: upgrade it".to_owned()
        }
        other => format!("TLS fails: {other}"),
    }
}

fn of_certificate(error: &CertificateError, server: &Uri, has_authority: bool) -> String {
    match error {
        // An authority of the same name with another key has a bad signature, such as after a cluster was created anew.
        CertificateError::UnknownIssuer | CertificateError::BadSignature if has_authority => {
            "its certificate is not signed by the authority in the kubeconfig: put that of this server into \
             `certificate-authority-data`"
                .to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not signed by an authority that this machine trusts: put its authority into \
             `certificate-authority-data`"
                .to_owned()
        }
        CertificateError::NotValidForName => {
            "its certificate is for another name: set `tls-server-name`".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            format!(
                "its certificate is for {}, and not for {}: use such a name in `server`, or set `tls-server-name`",
                if names.is_empty() { "no name".to_owned() } else { names.join(", ") },
                server.host().unwrap_or_default(),
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: renew it, or set the clock of this machine".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: is the clock of this machine right?".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            format!(
                "its certificate is signed with a key that can't be verified: sign it with {KEYS}, and no P-521"
            )
        }
        other => format!(
            "its certificate can't be used: {other}; it needs version 3 of X.509, and a key of {KEYS}"
        ),
    }
}

/// A name of a certificate, which webpki shows as `DnsName("a")` or `IpAddress(10.0.0.1)`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// Why a client can't be created.
pub(super) fn of_client(error: &anyhow::Error) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(_))) => {
            format!("the client key of the user can't be used: it must be {KEYS}, and no P-521")
        }
        Some(kube::Error::RustlsTls(RustlsTlsError::AddRootCertificate(error))) => {
            format!("a certificate of the authority in the kubeconfig can't be used: {error}")
        }
        Some(kube::Error::RustlsTls(error)) => error.to_string(),
        Some(kube::Error::Auth(error)) => error.to_string(),
        Some(error) => error.to_string(),
        None => format!("{error:#}"),
    }
}

/// An error and its causes. The inner error of an I/O error is no source of it.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut chain = vec![error];
    while let Some(last) = chain.last().copied() {
        let inner = last.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| last.source()) {
            Some(cause) => chain.push(cause),
            None => break,
        }
    }
    chain
}
