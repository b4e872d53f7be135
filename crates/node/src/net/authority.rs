//! Certificates: the cluster's authority, which founds machines' identities, and a machine's own.
//!
//! A machine's certificate names its number (`machine-7.leasehold`); only the server's is also good for being called
//! (`server.leasehold`, extended key usage), so that no machine can pass for the server.

use crate::data::{DataError, missing};
use crate::small::{read_file, replace_file};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use wire::{MachineId, Versions};

/// The name that clients call.
pub(super) const SERVER_NAME: &str = "server.leasehold";
const MACHINE_SUFFIX: &str = ".leasehold";
const MACHINE_PREFIX: &str = "machine-";

/// Something about keys or certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file of the data directory.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It cannot be made or used.
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
    /// TLS refuses it.
    #[error("TLS cannot be set up with this machine's certificate")]
    Tls(#[from] rustls::Error),
    /// What the authority's certificate is to be checked with.
    #[error("the authority's certificate cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

/// A machine's key, its certificate and the authority's. In the data directory: `machine.key`, `machine.crt`, `authority.crt` (DER).
#[derive(Debug)]
pub struct Credentials {
    key: KeyPair,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) authority: CertificateDer<'static>,
    /// What this machine's program knows, or is held to: said with each greeting, as the certificate is shown.
    pub(super) knows: Versions,
}

/// The cluster's authority. Its key is in the data directories of servers (`authority.key`) and nowhere else: each of them must be able to let machines in when the others are gone.
pub(crate) struct Authority {
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

/// A public key that somebody sent.
struct Ed25519([u8; 32]);

impl PublicKeyData for Ed25519 {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl Authority {
    /// The authority in `dir`, a server's.
    pub(crate) fn open(dir: &Path) -> Result<Authority, CertificateError> {
        let key = key_in(dir, "authority.key")?;
        Ok(Authority { key, certificate: read(dir, "authority.crt")?.into() })
    }

    /// The authority in `dir`, of which is made what there is not yet: for who founds a cluster.
    pub(crate) fn found(dir: &Path) -> Result<Authority, CertificateError> {
        let key = key_or_new(dir, "authority.key")?;
        if read_file(dir, "authority.crt")?.is_none() {
            replace_file(dir, "authority.crt", authority_params()?.self_signed(&key)?.der())?;
        }
        Authority::open(dir)
    }

    /// A certificate for `machine`, whose public key is `key`.
    pub(crate) fn sign(
        &self,
        machine: MachineId,
        key: [u8; 32],
    ) -> Result<CertificateDer<'static>, CertificateError> {
        self.issue(machine, &Ed25519(key), false)
    }

    /// A certificate for `machine`, whose public key is `key`, as a server; and the authority's own key (PKCS #8), which a server needs.
    pub(crate) fn make_server(
        &self,
        machine: MachineId,
        key: [u8; 32],
    ) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
        Ok((self.issue(machine, &Ed25519(key), true)?.to_vec(), self.key.serialize_der()))
    }

    /// What only servers know.
    pub(crate) fn secret(&self) -> Vec<u8> {
        self.key.serialize_der()
    }

    /// Their DER.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Credentials in `dir` of `machine`, of which is made what there is not yet: for who founds a cluster.
    pub(crate) fn credentials(
        &self,
        dir: &Path,
        machine: MachineId,
    ) -> Result<Credentials, CertificateError> {
        let key = key_or_new(dir, "machine.key")?;
        let certificate = match read_file(dir, "machine.crt")? {
            Some(certificate) => certificate.into(),
            None => {
                let certificate = self.issue(machine, &key, true)?;
                replace_file(dir, "machine.crt", &certificate)?;
                certificate
            }
        };
        let authority = self.certificate.clone();
        Ok(Credentials { key, certificate, authority, knows: Versions::KNOWN })
    }

    fn issue(
        &self,
        machine: MachineId,
        key: &impl PublicKeyData,
        server: bool,
    ) -> Result<CertificateDer<'static>, CertificateError> {
        let mut names = vec![format!("{MACHINE_PREFIX}{}{MACHINE_SUFFIX}", machine.0)];
        let mut usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if server {
            names.push(SERVER_NAME.to_owned());
            usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, format!("leasehold machine {}", machine.0));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        let authority = authority_params()?;
        let issuer = Issuer::from_params(&authority, &self.key);
        Ok(params.signed_by(key, &issuer)?.der().clone())
    }
}

impl Credentials {
    /// The same of a machine whose program knows these versions.
    pub(crate) fn of_who_knows(self, knows: Versions) -> Credentials {
        Credentials { knows, ..self }
    }

    /// The key in `dir` of a machine that is about to join; its public half. An earlier attempt to join has made it: by that key it is known again.
    pub(crate) fn key_to_join(dir: &Path) -> Result<[u8; 32], CertificateError> {
        public_key(&key_or_new(dir, "machine.key")?)
    }

    /// The public half of the machine's key.
    pub(super) fn public_key(&self) -> Result<[u8; 32], CertificateError> {
        public_key(&self.key)
    }

    /// Keeps what makes the machine in `dir` a server.
    pub(crate) fn keep_server(dir: &Path, certificate: &[u8], authority_key: &[u8]) -> Result<(), DataError> {
        replace_file(dir, "authority.key", authority_key)?;
        replace_file(dir, "machine.crt", certificate)
    }

    /// Keeps what the authority has given a machine that joins.
    pub(crate) fn keep(dir: &Path, certificate: &[u8], authority: &[u8]) -> Result<(), DataError> {
        replace_file(dir, "machine.crt", certificate)?;
        replace_file(dir, "authority.crt", authority)
    }

    /// Those of a machine that has joined.
    pub(crate) fn open(dir: &Path) -> Result<Credentials, CertificateError> {
        let key = key_in(dir, "machine.key")?;
        let certificate = read(dir, "machine.crt")?.into();
        let authority = read(dir, "authority.crt")?.into();
        Ok(Credentials { key, certificate, authority, knows: Versions::KNOWN })
    }

    pub(super) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// By what a token knows the authority.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    *blake3::hash(certificate).as_bytes()
}

/// Which machine a certificate that was checked against the authority is of.
pub(super) fn machine_of(certificate: &CertificateDer<'_>) -> Option<MachineId> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut numbers = certificate.valid_dns_names().filter_map(|name| {
        name.strip_prefix(MACHINE_PREFIX)?.strip_suffix(MACHINE_SUFFIX)?.parse().ok().map(MachineId)
    });
    numbers.next()
}

/// Whether a certificate that was checked against the authority is a server's.
pub(super) fn is_server(certificate: &CertificateDer<'_>) -> bool {
    let certificate = webpki::EndEntityCert::try_from(certificate);
    certificate.is_ok_and(|certificate| certificate.valid_dns_names().any(|name| name == SERVER_NAME))
}

/// Always the same, since the issuer's name is taken from it.
fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "leasehold cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

/// The key in a file that only its owner can read.
fn key_in(dir: &Path, name: &str) -> Result<KeyPair, CertificateError> {
    let key = PrivatePkcs8KeyDer::from(read(dir, name)?);
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?)
}

/// The same; made if there is none, which is for machines that never were started.
fn key_or_new(dir: &Path, name: &str) -> Result<KeyPair, CertificateError> {
    if read_file(dir, name)?.is_none() {
        replace_file(dir, name, &KeyPair::generate_for(&PKCS_ED25519)?.serialize_der())?;
    }
    key_in(dir, name)
}

fn public_key(key: &KeyPair) -> Result<[u8; 32], CertificateError> {
    key.public_key_raw()
        .try_into()
        .map_err(|_| CertificateError::Make(rcgen::Error::UnsupportedSignatureAlgorithm))
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>, DataError> {
    read_file(dir, name)?.ok_or_else(|| missing(dir, name))
}
