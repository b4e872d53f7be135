//! TLS 1.3 in both directions: which machine may call which.

use crate::authority::{
    CertificateError, Credentials, SERVER_NAME, fingerprint, is_server, key_of, machine_of,
};
use crypto::provider;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError as Wrong, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::io;
use std::sync::Arc;
use wire::MachineId;

/// A server's side of TLS. It accepts callers without a certificate, which may only join, and
/// machines that one of the authorities certifies.
pub struct Reception {
    /// The configuration for accepting calls.
    pub tls: Arc<ServerConfig>,
    /// The authorities' verifiers, by number.
    authorities: Vec<(u64, Arc<dyn ClientCertVerifier>)>,
}

/// The certificate of a caller. TLS has proven that the caller has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownCertificate {
    /// The machine that the certificate names.
    pub machine: MachineId,
    /// The machine's public key.
    pub key: [u8; 32],
    /// The number of the authority that certifies the caller; `None` if this server does not know
    /// it yet.
    pub authority: Option<u64>,
    /// Whether the certificate is a server's.
    pub serves: bool,
}

impl Reception {
    /// Makes the TLS side of a server with these credentials, which knows these authorities. The
    /// server also shows `introductions` of its authority by earlier ones.
    pub fn new(
        credentials: &Credentials,
        known: &[(u64, CertificateDer<'static>)],
        introductions: &[CertificateDer<'static>],
    ) -> Result<Reception, CertificateError> {
        let mut all = roots(&credentials.authority)?;
        let mut authorities = Vec::with_capacity(known.len());
        for (number, authority) in known {
            all.add(authority.clone())?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?.into(), provider());
            authorities.push((*number, verifier.build()?));
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(all.into(), provider()).allow_unauthenticated();
        let tls = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier.build()?)
            .with_single_cert(chain(credentials, introductions), credentials.private_key())?;
        Ok(Reception { tls: Arc::new(tls), authorities })
    }

    /// Reads a certificate that TLS has accepted.
    pub fn shown(&self, certificate: &CertificateDer<'_>) -> Option<ShownCertificate> {
        let says = |(_, verifier): &&(u64, Arc<dyn ClientCertVerifier>)| {
            verifier.verify_client_cert(certificate, &[], UnixTime::now()).is_ok()
        };
        let authority = self.authorities.iter().find(says).map(|(number, _)| *number);
        let (machine, key) = (machine_of(certificate)?, key_of(certificate)?);
        Some(ShownCertificate { machine, key, authority, serves: is_server(certificate) })
    }
}

/// The chain to show: the machine's certificate, its authority's, and the introductions of that
/// authority. A joining machine needs the second, since it knows only the fingerprint. Machines
/// that know an earlier authority need the third.
fn chain(
    credentials: &Credentials,
    introductions: &[CertificateDer<'static>],
) -> Vec<CertificateDer<'static>> {
    let own = [credentials.certificate.clone(), credentials.authority.clone()];
    own.into_iter().chain(introductions.iter().cloned()).collect()
}

/// The TLS configuration by which a machine of the cluster calls a server of the cluster.
pub(crate) fn client(
    credentials: &Credentials,
    introductions: &[CertificateDer<'static>],
) -> Result<Arc<ClientConfig>, CertificateError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(&credentials.authority)?)
        .with_client_auth_cert(chain(credentials, introductions), credentials.private_key())?;
    Ok(Arc::new(config))
}

/// The TLS configuration of a joining machine. It accepts only a server of the cluster whose
/// authority has this fingerprint.
pub(crate) fn stranger(authority: [u8; 32]) -> Result<Arc<ClientConfig>, CertificateError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { authority, provider: provider() }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The name of the server that clients call.
pub(crate) fn server_name() -> ServerName<'static> {
    #[expect(clippy::expect_used, reason = "a constant that is a name")]
    ServerName::try_from(SERVER_NAME).expect("a name")
}

/// Whether the error comes of a clock that shows a time before every certificate began.
pub(crate) fn is_before_all(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref());
    matches!(why, Some(Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. })))
}

/// Whether the error comes of a certificate by an authority that is unknown here.
pub(crate) fn is_of_another_authority(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref());
    matches!(why, Some(Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature)))
}

fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(roots)
}

/// A verifier that pins the authority. It picks the certificate of that fingerprint from the shown
/// chain, and then checks as usual.
#[derive(Debug)]
struct Pinned {
    authority: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = chain.iter().find(|shown| fingerprint(shown) == self.authority);
        let authority = authority.ok_or(Error::InvalidCertificate(Wrong::UnknownIssuer))?;
        let roots = Arc::new(roots(&authority.clone().into_owned())?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone()).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(certificate, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
