//! Certificates: those of the authorities, which certify machines one after the other, and a
//! machine's own.
//!
//! A machine's certificate names its number (`machine-7.leasehold`). Only a server's certificate is
//! also good for being called (`server.leasehold`, extended key usage). So no machine can pass for
//! a server. Each authority before the latest has certified the latest one, too. By that
//! certificate a machine that knows only an earlier authority recognizes the servers.

use crypto::{NoKey, PublicKey, SecretKey};
use data_dir::{DataError, missing};
use data_dir::{read_file, remove_file, replace_file};
use os::fill_random;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyUsagePurpose, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;
use wire::{Certificates, MachineId, Versions};

/// The server name that clients call.
pub(crate) const SERVER_NAME: &str = "server.leasehold";
const MACHINE_SUFFIX: &str = ".leasehold";
const MACHINE_PREFIX: &str = "machine-";
/// Bytes of a serial number or of a key's identifier. Both are the beginning of the key's hash.
/// With a sign a serial number has 20 bytes at most (RFC 5280, section 4.1.2.2).
const IDENTIFIER_BYTES: usize = 16;

/// An error with keys or certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file of the data directory failed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The certificate cannot be made.
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
    /// An authority's row holds no usable key.
    #[error("the authority's key cannot be used: {0}")]
    Key(#[from] NoKey),
    /// The system gives no random numbers for a key.
    #[error("the system gives no random numbers")]
    Random(#[source] std::io::Error),
    /// TLS refuses the certificate or key.
    #[error("TLS cannot be set up with this machine's certificate")]
    Tls(#[from] rustls::Error),
    /// The verifier for the authority's certificate cannot be built.
    #[error("the authority's certificate cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

/// A machine's key, its certificate and the authority's. In the data directory they are
/// `machine.key`, `machine.crt` and `authority.crt` (DER).
#[derive(Clone, Debug)]
pub struct Credentials {
    key: Arc<SecretKey>,
    /// Its certificate.
    pub certificate: CertificateDer<'static>,
    /// The certificate of the authority that has certified it.
    pub authority: CertificateDer<'static>,
    /// The versions that this machine's program knows, or is limited to. Each greeting states them,
    /// next to the certificate.
    pub knows: Versions,
}

/// An authority of the cluster. Its key is in the servers' rows and nowhere else: each server must
/// be able to let machines in when the others are gone. Until there are rows, the founder has the
/// key in `authority.key`.
pub struct Authority {
    key: SecretKey,
    certificate: CertificateDer<'static>,
}

/// An authority in bytes, as the servers keep it.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorityKeys {
    /// Its certificate in DER.
    pub certificate: Vec<u8>,
    /// Its secret key in PKCS #8.
    pub key: Vec<u8>,
}

impl Authority {
    /// Opens a server's authority in `dir`.
    pub fn open(dir: &Path) -> Result<Authority, CertificateError> {
        let key = key_in(dir, "authority.key")?;
        Ok(Authority { key, certificate: read(dir, "authority.crt")?.into() })
    }

    /// Opens the authority in `dir` for the founder of a cluster, and makes the files that are
    /// missing.
    pub fn found(dir: &Path) -> Result<Authority, CertificateError> {
        let key = key_or_new(dir, "authority.key")?;
        if read_file(dir, "authority.crt")?.is_none() {
            replace_file(dir, "authority.crt", &self_signed(&key)?)?;
        }
        Authority::open(dir)
    }

    /// Generates a new authority.
    pub fn generate() -> Result<Authority, CertificateError> {
        let key = new_key()?;
        let certificate = self_signed(&key)?;
        Ok(Authority { key, certificate })
    }

    /// The authority with these keys.
    pub fn read(keys: &AuthorityKeys) -> Result<Authority, NoKey> {
        Ok(Authority { key: SecretKey::read(&keys.key)?, certificate: keys.certificate.clone().into() })
    }

    /// The authority's keys, for the servers to keep.
    pub fn keys(&self) -> AuthorityKeys {
        AuthorityKeys { certificate: self.certificate.to_vec(), key: self.key.pkcs8().to_vec() }
    }

    /// Removes the key file in `dir`: the rows hold the authority now.
    pub fn forget(dir: &Path) -> Result<(), DataError> {
        if dir.join("authority.key").exists() { remove_file(dir, "authority.key") } else { Ok(()) }
    }

    /// Certifies `machine`, whose public key is `key`, as a server if it `serves`. Returns its
    /// certificate and the authority's.
    pub fn certify(
        &self,
        machine: MachineId,
        key: [u8; 32],
        serves: bool,
    ) -> Result<Certificates, CertificateError> {
        Ok((self.issue(machine, PublicKey(key), serves)?.to_vec(), self.certificate.to_vec()))
    }

    /// A certificate for the authority `next` by this one. By it a machine that knows only this
    /// authority recognizes servers that `next` certifies.
    pub(crate) fn introduce(&self, next: &Authority) -> Result<CertificateDer<'static>, CertificateError> {
        let (own, next) = (self.key.public(), next.key.public());
        let issuer = authority_params(own, 1)?;
        let certificate =
            authority_params(next, 0)?.signed_by(&next, &Issuer::from_params(&issuer, &self.key))?;
        Ok(certificate.der().clone())
    }

    /// The authority's secret, which only servers know.
    pub fn secret(&self) -> &[u8] {
        self.key.pkcs8()
    }

    /// The authority's certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The credentials of `machine` in `dir` for the founder of a cluster; missing files are made.
    pub fn credentials(&self, dir: &Path, machine: MachineId) -> Result<Credentials, CertificateError> {
        let key = key_or_new(dir, "machine.key")?;
        let certificate = match read_file(dir, "machine.crt")? {
            Some(certificate) => certificate.into(),
            None => {
                let certificate = self.issue(machine, key.public(), true)?;
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
        key: PublicKey,
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
        params.serial_number = Some(SerialNumber::from(identifier(key)));
        params.use_authority_key_identifier_extension = true;
        let authority = authority_params(self.key.public(), 1)?;
        let issuer = Issuer::from_params(&authority, &self.key);
        Ok(params.signed_by(&key, &issuer)?.der().clone())
    }
}

impl Credentials {
    /// The same credentials for a program that knows these versions.
    pub(crate) fn of_who_knows(self, knows: Versions) -> Credentials {
        Credentials { knows, ..self }
    }

    /// The public half of the key in `dir` of a machine that is about to join. An earlier attempt
    /// may have made the key already; the server recognizes the machine by it.
    pub fn key_to_join(dir: &Path) -> Result<[u8; 32], CertificateError> {
        Ok(key_or_new(dir, "machine.key")?.public().0)
    }

    /// The public half of the machine's key.
    pub(crate) fn public_key(&self) -> [u8; 32] {
        self.key.public().0
    }

    /// Stores in `dir` the certificates that an authority has given the machine. The machine's own
    /// comes last: while the earlier one is there, the machine is given another.
    pub fn keep(dir: &Path, certificate: &[u8], authority: &[u8]) -> Result<(), DataError> {
        replace_file(dir, "authority.crt", authority)?;
        replace_file(dir, "machine.crt", certificate)
    }

    /// The same machine's credentials, certified by another authority.
    pub(crate) fn certified(&self, certificate: Vec<u8>, authority: Vec<u8>) -> Credentials {
        let (key, knows) = (self.key.clone(), self.knows);
        Credentials { key, certificate: certificate.into(), authority: authority.into(), knows }
    }

    /// Opens the credentials of a machine that has joined.
    pub fn open(dir: &Path) -> Result<Credentials, CertificateError> {
        let key = Arc::new(key_in(dir, "machine.key")?);
        let certificate = read(dir, "machine.crt")?.into();
        let authority = read(dir, "authority.crt")?.into();
        Ok(Credentials { key, certificate, authority, knows: Versions::KNOWN })
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.pkcs8().to_vec()).into()
    }
}

/// The fingerprint by which a token names the authority.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    *crypto::hash(certificate).as_bytes()
}

/// The machine of a certificate that was checked against the authority.
pub fn machine_of(certificate: &CertificateDer<'_>) -> Option<MachineId> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut numbers = certificate.valid_dns_names().filter_map(|name| {
        name.strip_prefix(MACHINE_PREFIX)?.strip_suffix(MACHINE_SUFFIX)?.parse().ok().map(MachineId)
    });
    numbers.next()
}

/// Whether a certificate is a server's; it was checked against the authority.
pub(crate) fn is_server(certificate: &CertificateDer<'_>) -> bool {
    let certificate = webpki::EndEntityCert::try_from(certificate);
    certificate.is_ok_and(|certificate| certificate.valid_dns_names().any(|name| name == SERVER_NAME))
}

/// The public key of a certificate, in the form that all of ours have.
pub(crate) fn key_of(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    Some(PublicKey::of_subject(&certificate.subject_public_key_info())?.0)
}

/// The certificate of an authority by itself.
fn self_signed(key: &SecretKey) -> Result<CertificateDer<'static>, rcgen::Error> {
    Ok(authority_params(key.public(), 1)?.self_signed(key)?.der().clone())
}

/// The certificate parameters of the authority with this key. All authorities have one name, since
/// the issuer's name is taken from it. `below` counts the authorities that it may have introduced
/// between itself and a machine.
fn authority_params(key: PublicKey, below: u8) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "leasehold cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.serial_number = Some(SerialNumber::from(identifier(key)));
    params.key_identifier_method = KeyIdMethod::PreSpecified(identifier(key));
    Ok(params)
}

fn identifier(key: PublicKey) -> Vec<u8> {
    crypto::hash(&key.0).as_bytes()[..IDENTIFIER_BYTES].to_vec()
}

/// Reads the key in a file that only its owner can read.
fn key_in(dir: &Path, name: &str) -> Result<SecretKey, DataError> {
    let damaged = |why: NoKey| DataError::Damaged { file: dir.join(name), why: why.to_string() };
    SecretKey::read(&read(dir, name)?).map_err(damaged)
}

/// Reads the key, or makes it if the machine was never started.
fn key_or_new(dir: &Path, name: &str) -> Result<SecretKey, CertificateError> {
    if read_file(dir, name)?.is_none() {
        replace_file(dir, name, new_key()?.pkcs8())?;
    }
    Ok(key_in(dir, name)?)
}

fn new_key() -> Result<SecretKey, CertificateError> {
    let mut seed = [0; 32];
    fill_random(&mut seed).map_err(CertificateError::Random)?;
    Ok(SecretKey::of_seed(&seed))
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>, DataError> {
    read_file(dir, name)?.ok_or_else(|| missing(dir, name))
}
