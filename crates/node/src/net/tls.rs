//! TLS 1.3 both ways: who may call whom.

use super::authority::{
    CertificateError, Credentials, SERVER_NAME, fingerprint, is_server, key_of, machine_of,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
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

/// How a server takes calls: from nobody, who may then only join, or from a machine that one of the
/// authorities certifies.
pub(super) struct Reception {
    pub(super) tls: Arc<ServerConfig>,
    /// By number.
    authorities: Vec<(u64, Arc<dyn ClientCertVerifier>)>,
}

/// What the certificate of a caller says, which has the key that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownCertificate {
    pub(crate) machine: MachineId,
    pub(crate) key: [u8; 32],
    /// The number of the authority that says so; of one that this server has not heard of yet,
    /// none.
    pub(crate) authority: Option<u64>,
    /// It is a server's.
    pub(super) serves: bool,
}

impl Reception {
    /// Of a server with these credentials, which knows these authorities. It shows `introductions`
    /// of its authority by earlier ones along.
    pub(super) fn new(
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

    /// What a certificate says that TLS has let pass.
    pub(super) fn shown(&self, certificate: &CertificateDer<'_>) -> Option<ShownCertificate> {
        let says = |(_, verifier): &&(u64, Arc<dyn ClientCertVerifier>)| {
            verifier.verify_client_cert(certificate, &[], UnixTime::now()).is_ok()
        };
        let authority = self.authorities.iter().find(says).map(|(number, _)| *number);
        let (machine, key) = (machine_of(certificate)?, key_of(certificate)?);
        Some(ShownCertificate { machine, key, authority, serves: is_server(certificate) })
    }
}

/// The machine's certificate; its authority's, for who joins and knows no more of it than its
/// fingerprint; and by what others know that one.
fn chain(
    credentials: &Credentials,
    introductions: &[CertificateDer<'static>],
) -> Vec<CertificateDer<'static>> {
    let own = [credentials.certificate.clone(), credentials.authority.clone()];
    own.into_iter().chain(introductions.iter().cloned()).collect()
}

/// As what a machine of the cluster calls, and whom it expects: a server of the cluster.
pub(super) fn client(
    credentials: &Credentials,
    introductions: &[CertificateDer<'static>],
) -> Result<Arc<ClientConfig>, CertificateError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(&credentials.authority)?)
        .with_client_auth_cert(chain(credentials, introductions), credentials.private_key())?;
    Ok(Arc::new(config))
}

/// What a machine that joins expects: a server of the cluster whose authority has this fingerprint.
pub(super) fn stranger(authority: [u8; 32]) -> Result<Arc<ClientConfig>, CertificateError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { authority, provider: provider() }))
        .with_no_client_auth();
    Ok(Arc::new(config))
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

/// Whether that is what comes of a certificate that another authority has made than is known here.
pub(super) fn is_of_another_authority(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref());
    matches!(why, Some(Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(roots)
}

/// Takes for the authority the certificate of that fingerprint in the chain that is shown, and then
/// checks as anybody does.
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
