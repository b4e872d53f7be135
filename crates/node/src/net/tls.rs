//! TLS 1.3 both ways: who may call whom.

use super::authority::{CertificateError, Credentials, SERVER_NAME, fingerprint};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError as Wrong, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::io;
use std::sync::Arc;
use wire::Versions;

/// What the server expects: nobody, who may then only join; or a machine that the authority knows.
pub(super) fn server(credentials: &Credentials) -> Result<Arc<ServerConfig>, CertificateError> {
    let roots = roots(&credentials.authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
        .allow_unauthenticated()
        .build()?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        // The authority's goes along for who joins and knows no more of it than its fingerprint.
        .with_single_cert(
            vec![credentials.certificate.clone(), credentials.authority.clone()],
            credentials.private_key(),
        )?;
    Ok(Arc::new(config))
}

/// How a machine calls others.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Who it is, and whom it expects.
    pub(super) tls: Arc<ClientConfig>,
    /// What it greets with.
    pub(super) knows: Versions,
}

/// What a machine of the cluster expects: the cluster's server.
pub(crate) fn client(credentials: &Credentials) -> Result<Caller, CertificateError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(&credentials.authority)?)
        .with_client_auth_cert(vec![credentials.certificate.clone()], credentials.private_key())?;
    Ok(Caller { tls: Arc::new(config), knows: credentials.knows })
}

/// What a machine that joins expects: a server of the cluster whose authority has this fingerprint.
pub(super) fn stranger(authority: [u8; 32]) -> Result<Caller, CertificateError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { authority, provider: provider() }))
        .with_no_client_auth();
    Ok(Caller { tls: Arc::new(config), knows: Versions::KNOWN })
}

/// Whom clients call.
pub(super) fn server_name() -> ServerName<'static> {
    #[expect(clippy::expect_used, reason = "a constant that is a name")]
    ServerName::try_from(SERVER_NAME).expect("a name")
}

/// Whether that is what comes of a clock that shows a time before any certificate began.
pub(super) fn is_before_all(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref());
    matches!(why, Some(Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. })))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(roots)
}

/// Takes for the authority the certificate of that fingerprint in the chain that is shown, and then checks as anybody does.
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
