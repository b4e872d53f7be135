//! Certificates: the cluster's authority, which founds machines' identities, and a machine's own.
//!
//! A machine's certificate names its number (`machine-7.leasehold`); only a server's is also good for being called
//! (`server-AUTHORITY.leasehold`, extended key usage), so that no machine can pass for a server. Authorities follow each other: by that name a server knows which of them a
//! caller expects.

use crate::data::DataError;
use crate::small::{read_file, remove_file, replace_file};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use wire::{MachineId, Versions};

const SERVER_PREFIX: &str = "server-";
const MACHINE_SUFFIX: &str = ".leasehold";
/// Of an authority's fingerprint, so many are in a server's name.
const NAME_BYTES: usize = 16;
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
    key: Arc<KeyPair>,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) authority: CertificateDer<'static>,
    /// What this machine's program knows, or is held to: said with each greeting, as the certificate is shown.
    pub(super) knows: Versions,
}

/// An authority of the cluster. Its key is in the servers' rows and nowhere else: each of them must be able to let machines in when the others are gone. Until there are rows the founder
/// has it in `authority.key`.
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
    /// Another one.
    pub(crate) fn generate() -> Result<Authority, CertificateError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificate = authority_params()?.self_signed(&key)?.der().clone();
        Ok(Authority { key, certificate })
    }

    /// That of a row.
    pub(crate) fn of_row(row: &directory::Authority) -> Result<Authority, CertificateError> {
        let key = PrivatePkcs8KeyDer::from(row.key.clone());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?;
        Ok(Authority { key, certificate: row.certificate.clone().into() })
    }

    /// Its row.
    pub(crate) fn to_row(&self) -> directory::Authority {
        directory::Authority { certificate: self.certificate.to_vec(), key: self.key.serialize_der() }
    }

    /// It stands in the rows: the machine in `dir` needs no key of it beside.
    pub(crate) fn forget(dir: &Path) -> Result<(), DataError> {
        if dir.join("authority.key").exists() { remove_file(dir, "authority.key") } else { Ok(()) }
    }

    /// The authority in `dir`, made on the first use.
    pub(crate) fn open(dir: &Path) -> Result<Authority, CertificateError> {
        let key = key_in(dir, "authority.key")?;
        let certificate = match read_file(dir, "authority.crt")? {
            Some(certificate) => certificate.into(),
            None => {
                let certificate = authority_params()?.self_signed(&key)?.der().clone();
                replace_file(dir, "authority.crt", &certificate)?;
                certificate
            }
        };
        Ok(Authority { key, certificate })
    }

    /// A certificate for `machine`, whose public key is `key`, as a server if it `serves`; and the authority's: what a machine is given.
    pub(crate) fn certify(
        &self,
        machine: MachineId,
        key: [u8; 32],
        serves: bool,
    ) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
        Ok((self.issue(machine, &Ed25519(key), serves)?.to_vec(), self.certificate.to_vec()))
    }

    /// Their DER.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The founder's own credentials, made on the first use.
    pub(crate) fn credentials(
        &self,
        dir: &Path,
        machine: MachineId,
    ) -> Result<Credentials, CertificateError> {
        let key = key_in(dir, "machine.key")?;
        let certificate = match read_file(dir, "machine.crt")? {
            Some(certificate) => certificate.into(),
            None => {
                let certificate = self.issue(machine, &key, true)?;
                replace_file(dir, "machine.crt", &certificate)?;
                certificate
            }
        };
        let authority = self.certificate.clone();
        Ok(Credentials { key: Arc::new(key), certificate, authority, knows: Versions::KNOWN })
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
            names.push(server_name(&fingerprint(&self.certificate)));
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
        public_key(&key_in(dir, "machine.key")?)
    }

    /// The same machine's, by another authority.
    pub(super) fn certified(&self, certificate: Vec<u8>, authority: Vec<u8>) -> Credentials {
        let (key, knows) = (self.key.clone(), self.knows);
        Credentials { key, certificate: certificate.into(), authority: authority.into(), knows }
    }

    /// The public half of the machine's key.
    pub(super) fn public_key(&self) -> Result<[u8; 32], CertificateError> {
        public_key(&self.key)
    }

    /// Keeps what an authority has given the machine in `dir`.
    pub(crate) fn keep(dir: &Path, certificate: &[u8], authority: &[u8]) -> Result<(), DataError> {
        replace_file(dir, "machine.crt", certificate)?;
        replace_file(dir, "authority.crt", authority)
    }

    /// Those of a machine that has joined.
    pub(crate) fn open(dir: &Path) -> Result<Credentials, CertificateError> {
        let key = Arc::new(key_in(dir, "machine.key")?);
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
    certificate.is_ok_and(|certificate| {
        certificate.valid_dns_names().any(|name| name.starts_with(SERVER_PREFIX))
    })
}

/// The public key that a certificate is for, as all of ours are.
pub(super) fn key_of(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    // Of Ed25519 it is what comes last (RFC 8410).
    certificate.subject_public_key_info().last_chunk().copied()
}

/// The name by which a server is called that the authority with this fingerprint certifies.
pub(super) fn server_name(authority: &[u8; 32]) -> String {
    let digits: String = authority.iter().take(NAME_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{SERVER_PREFIX}{digits}{MACHINE_SUFFIX}")
}

/// Always the same, since the issuer's name is taken from it.
fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "leasehold cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

/// The key in a file that only its owner can read; made if there is none.
fn key_in(dir: &Path, name: &str) -> Result<KeyPair, CertificateError> {
    let Some(key) = read_file(dir, name)? else {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        replace_file(dir, name, &key.serialize_der())?;
        return Ok(key);
    };
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(key), &PKCS_ED25519)?)
}

fn public_key(key: &KeyPair) -> Result<[u8; 32], CertificateError> {
    key.public_key_raw()
        .try_into()
        .map_err(|_| CertificateError::Make(rcgen::Error::UnsupportedSignatureAlgorithm))
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>, DataError> {
    let missing = || DataError::Io { verb: "read", file: dir.join(name), source: ErrorKind::NotFound.into() };
    read_file(dir, name)?.ok_or_else(missing)
}
