//! The certificate of the metrics port: of two files that are read again when they change, or self-signed.
//!
//! Keeps two invariants: files that can't be used, such as a pair that is half replaced, leave the last certificate
//! in use; and a self-signed certificate is replaced before it expires.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use tokio::time::Instant;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tracing::{info, warn};

/// The shortest time between two reads of the files. A scraper connects less often.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// How long a self-signed certificate is valid, as one of a public authority is at most.
const VALID_FOR: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The age at which a self-signed certificate is replaced: a month before it expires. So a connection that stays open
/// for long, or a clock that differs, meets a valid one.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(60 * 24);

/// How long before its creation a self-signed certificate is valid, for scrapers whose clocks are behind. Its
/// validity starts at the start of that day.
const EARLIER: SignedDuration = SignedDuration::from_hours(24);

/// The files of a certificate, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and then those of its issuers.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file can't be read.
    #[error("can't read {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// A file is not PEM.
    #[error("{}: {error}", file.display())]
    NoPem {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: pem::Error,
    },
    /// Certificate and key do not fit, or are of an unknown kind.
    #[error("the certificate or its key can't be used: {0}")]
    Refused(#[from] rustls::Error),
    /// No key can be made.
    #[error("can't make a certificate: {0}")]
    NotMade(#[from] rcgen::Error),
}

/// The content of both files.
type Content = [Vec<u8>; 2];

/// The certificate of the metrics port.
#[derive(Debug)]
pub struct Certificate {
    config: Arc<ServerConfig>,
    /// `None` once that of the files is in use.
    own: Option<SelfSigned>,
    files: Option<Watched>,
}

/// A certificate that this process has signed.
#[derive(Debug)]
struct SelfSigned {
    names: Vec<String>,
    signed: Timestamp,
}

/// Files, as they were read last.
#[derive(Debug)]
struct Watched {
    files: CertificateFiles,
    content: Content,
    read_at: Instant,
    /// The last error, which is logged once.
    error: Option<String>,
}

impl Certificate {
    /// A self-signed one for these names and addresses.
    pub fn self_signed(names: Vec<String>) -> Result<Self, CertificateError> {
        Self::self_signed_at(names, Timestamp::now())
    }

    fn self_signed_at(names: Vec<String>, now: Timestamp) -> Result<Self, CertificateError> {
        let config = sign(&names, now)?;
        Ok(Self { config, own: Some(SelfSigned { names, signed: now }), files: None })
    }

    /// That of two files. Until they can be used, it is self-signed for these names and addresses.
    pub fn of_files(files: CertificateFiles, names: Vec<String>) -> Result<Self, CertificateError> {
        let found = read(&files).and_then(|content| Ok((config_of(&files, &content)?, content)));
        let watched = |content, error| Some(Watched { files, content, read_at: Instant::now(), error });
        match found {
            Ok((config, content)) => Ok(Self { config, own: None, files: watched(content, None) }),
            Err(error) => {
                let error = error.to_string();
                warn!(error, "the metrics port has a self-signed certificate until the files can be used");
                Ok(Self { files: watched(Content::default(), Some(error)), ..Self::self_signed(names)? })
            }
        }
    }

    /// The settings for the next connection.
    pub(super) fn current(&mut self) -> Arc<ServerConfig> {
        self.current_at(Timestamp::now())
    }

    fn current_at(&mut self, now: Timestamp) -> Arc<ServerConfig> {
        if let Some(watched) = &mut self.files
            && watched.read_at.elapsed() >= READ_INTERVAL
            && let Some(config) = watched.look()
        {
            (self.config, self.own) = (config, None);
        }
        if let Some(own) = &mut self.own
            && !own.is_fresh(now)
        {
            match sign(&own.names, now) {
                Ok(config) => {
                    info!("the self-signed certificate of the metrics port was replaced");
                    (self.config, own.signed) = (config, now);
                }
                Err(error) => warn!(%error, "the last certificate of the metrics port stays in use"),
            }
        }
        self.config.clone()
    }
}

impl SelfSigned {
    /// Whether it stays in use. A clock that was wrong when it was signed makes it invalid too.
    fn is_fresh(&self, now: Timestamp) -> bool {
        let age = now.duration_since(self.signed);
        (-EARLIER..RENEWED_AFTER).contains(&age)
    }
}

/// The settings with a new certificate for these names and addresses.
fn sign(names: &[String], now: Timestamp) -> Result<Arc<ServerConfig>, CertificateError> {
    let key = KeyPair::generate()?;
    let certificate = params(names, now)?.self_signed(&key)?;
    config(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
}

fn params(names: &[String], now: Timestamp) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(names)?;
    if let Some(name) = names.first() {
        params.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    let day = |time: Result<Timestamp, jiff::Error>| {
        // If the time is beyond the years that a timestamp can hold, the validity stops now.
        let day: Date = time.unwrap_or(now).to_zoned(TimeZone::UTC).date();
        let part = |part: i8| u8::try_from(part).unwrap_or(1);
        date_time_ymd(day.year().into(), part(day.month()), part(day.day()))
    };
    params.not_before = day(now.checked_sub(EARLIER));
    params.not_after = day(now.checked_add(VALID_FOR));
    Ok(params)
}

impl Watched {
    /// The settings of files that have changed and can be used.
    fn look(&mut self) -> Option<Arc<ServerConfig>> {
        self.read_at = Instant::now();
        let changed = read(&self.files).and_then(|content| {
            if content == self.content {
                return Ok(None);
            }
            Ok(Some((config_of(&self.files, &content)?, content)))
        });
        match changed {
            Ok(None) => None,
            Ok(Some((config, content))) => {
                info!(file = %self.files.certificate.display(), "the certificate of the metrics port has changed");
                (self.content, self.error) = (content, None);
                Some(config)
            }
            Err(error) => {
                let error = error.to_string();
                if self.error.as_ref() != Some(&error) {
                    warn!(error, "the last certificate of the metrics port stays in use");
                    self.error = Some(error);
                }
                None
            }
        }
    }
}

fn read(files: &CertificateFiles) -> Result<Content, CertificateError> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|error| CertificateError::Unreadable { file: file.clone(), error })
    };
    Ok([read(&files.certificate)?, read(&files.key)?])
}

fn config_of(
    files: &CertificateFiles,
    [certificate, key]: &Content,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let no_pem = |file: &PathBuf| {
        let file = file.clone();
        move |error| CertificateError::NoPem { file, error }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(no_pem(&files.certificate))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(no_pem(&files.key))?;
    config(chain, key)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    // The same provider as that of the Kubernetes client: with two in one program rustls chooses none.
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pair_that_fits_is_used_and_one_that_does_not_leaves_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        let make = || generate_simple_self_signed(vec!["metrics.example.com".to_owned()]).unwrap();
        let (first, second) = (make(), make());
        let mut certificate = Certificate::of_files(files.clone(), vec!["ipam-1".to_owned()]).unwrap();
        let self_signed = certificate.current();
        std::fs::write(&files.certificate, first.cert.pem()).unwrap();
        tokio::time::advance(READ_INTERVAL).await;
        assert!(Arc::ptr_eq(&self_signed, &certificate.current()), "there is no key");
        std::fs::write(&files.key, first.signing_key.serialize_pem()).unwrap();
        tokio::time::advance(READ_INTERVAL).await;
        assert!(!Arc::ptr_eq(&self_signed, &certificate.current()), "the files can be used");
        let before = certificate.current();
        let mut is_new = || !Arc::ptr_eq(&before, &certificate.current());
        tokio::time::advance(READ_INTERVAL).await;
        assert!(!is_new(), "the same files");
        std::fs::write(&files.certificate, second.cert.pem()).unwrap();
        tokio::time::advance(READ_INTERVAL).await;
        assert!(!is_new(), "a pair that is half replaced");
        std::fs::write(&files.key, second.signing_key.serialize_pem()).unwrap();
        assert!(!is_new(), "the files were read a moment ago");
        tokio::time::advance(READ_INTERVAL).await;
        assert!(is_new());
        std::fs::remove_file(&files.key).unwrap();
        tokio::time::advance(READ_INTERVAL).await;
        assert!(is_new(), "a file that is gone");
    }

    #[test]
    fn a_self_signed_certificate_is_replaced_before_it_ends() {
        let now: Timestamp = "2026-11-26T05:30:00Z".parse().unwrap();
        let mut certificate = Certificate::self_signed_at(vec!["ipam-1".to_owned()], now).unwrap();
        let first = certificate.current_at(now);
        assert_eq!(first.alpn_protocols, [b"http/1.1".to_vec()]);
        let mut is_new = |before: &Arc<ServerConfig>, days: i64| {
            !Arc::ptr_eq(before, &certificate.current_at(now + SignedDuration::from_hours(24 * days)))
        };
        assert!(!is_new(&first, 59));
        assert!(is_new(&first, 60), "30 days are left");
        let second = certificate.current_at(now + SignedDuration::from_hours(24 * 60));
        assert!(Arc::ptr_eq(&second, &certificate.current_at(now + SignedDuration::from_hours(24 * 61))));
        assert!(!Arc::ptr_eq(&second, &certificate.current_at(now)), "the clock was wrong");
    }

    #[test]
    fn a_self_signed_certificate_is_valid_from_yesterday_for_90_days() {
        let params = params(&["ipam-1".to_owned()], "2026-11-26T05:30:00Z".parse().unwrap()).unwrap();
        assert_eq!(params.not_before, date_time_ymd(2026, 11, 25));
        assert_eq!(params.not_after, date_time_ymd(2027, 2, 24));
    }
}
