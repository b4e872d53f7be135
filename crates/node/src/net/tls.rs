//! TLS 1.3 both ways: who may call whom.

use super::authority::{CertificateError, Credentials, fingerprint, is_server, key_of, machine_of, server_name};
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ResolvesServerCertUsingSni, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError as Wrong, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::fmt;
use std::sync::Arc;
use wire::{MachineId, Versions};

/// How a server takes calls: from nobody, who may then only join, or from a machine that one of the authorities certifies. It shows a certificate of the authority that the caller expects.
pub(super) struct Reception {
    pub(super) tls: Arc<ServerConfig>,
    authorities: Vec<(u64, Arc<dyn ClientCertVerifier>)>,
}

/// What a caller's certificate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) machine: MachineId,
    /// Its public key, which it has the other half of.
    pub(super) key: [u8; 32],
    /// The number of the authority that says so.
    pub(super) authority: u64,
    /// It is a server's.
    pub(super) serves: bool,
}

impl Reception {
    /// Of a server with these credentials, one for each authority, by their numbers.
    pub(super) fn new(certified: &[(u64, Credentials)]) -> Result<Reception, CertificateError> {
        let mut all = RootCertStore::empty();
        let mut names = ResolvesServerCertUsingSni::new();
        let mut authorities = Vec::with_capacity(certified.len());
        for (number, credentials) in certified {
            let authority = &credentials.authority;
            all.add(authority.clone())?;
            // The authority's goes along for who joins and knows no more of it than its fingerprint.
            let chain = vec![credentials.certificate.clone(), authority.clone()];
            let shown = CertifiedKey::from_der(chain, credentials.private_key(), &provider())?;
            names.add(&server_name(&fingerprint(authority)), shown)?;
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(authority)?.into(), provider());
            authorities.push((*number, verifier.build()?));
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(all.into(), provider()).allow_unauthenticated();
        let tls = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier.build()?)
            .with_cert_resolver(Arc::new(names));
        Ok(Reception { tls: Arc::new(tls), authorities })
    }

    /// What a certificate says that was shown by who has its key.
    pub(super) fn shown(&self, certificate: &CertificateDer<'_>) -> Option<Shown> {
        let says = |(_, verifier): &&(u64, Arc<dyn ClientCertVerifier>)| {
            verifier.verify_client_cert(certificate, &[], UnixTime::now()).is_ok()
        };
        let (authority, _) = self.authorities.iter().find(says)?;
        let (machine, key) = (machine_of(certificate)?, key_of(certificate)?);
        Some(Shown { machine, key, authority: *authority, serves: is_server(certificate) })
    }
}

/// How a machine calls others; one for all that it calls with, since its certificate changes.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The latest first. Only servers have others.
    expects: Arc<Mutex<Vec<Expected>>>,
    /// What it greets with.
    pub(super) knows: Versions,
}

/// Who a machine says that it is, and whom it expects.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Caller {
    fn of(expected: Expected, knows: Versions) -> Caller {
        Caller { expects: Arc::new(Mutex::new(vec![expected])), knows }
    }

    /// From now on it has these, the latest first.
    pub(super) fn renew<'a>(
        &self,
        credentials: impl Iterator<Item = &'a Credentials>,
    ) -> Result<(), CertificateError> {
        let expected = credentials.map(expected).collect::<Result<Vec<_>, _>>()?;
        *self.expects.lock() = expected;
        Ok(())
    }

    /// All servers that it may expect, those that the latest authority certifies first.
    pub(super) fn expects(&self) -> Vec<Expected> {
        self.expects.lock().clone()
    }
}

/// What a machine of the cluster expects: a server of it.
pub(crate) fn client(credentials: &Credentials) -> Result<Caller, CertificateError> {
    Ok(Caller::of(expected(credentials)?, credentials.knows))
}

fn expected(credentials: &Credentials) -> Result<Expected, CertificateError> {
    let tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(&credentials.authority)?)
        .with_client_auth_cert(vec![credentials.certificate.clone()], credentials.private_key())?;
    Ok(Expected { tls: Arc::new(tls), name: name_of(&fingerprint(&credentials.authority)) })
}

/// What a machine that joins expects: a server of the cluster whose authority has this fingerprint.
pub(super) fn stranger(authority: [u8; 32]) -> Result<Caller, CertificateError> {
    let tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { authority, provider: provider() }))
        .with_no_client_auth();
    Ok(Caller::of(Expected { tls: Arc::new(tls), name: name_of(&authority) }, Versions::KNOWN))
}

/// Whom clients call.
fn name_of(authority: &[u8; 32]) -> ServerName<'static> {
    #[expect(clippy::expect_used, reason = "letters, digits, a hyphen and a dot")]
    ServerName::try_from(server_name(authority)).expect("a name")
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expected({:?})", self.name)
    }
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
