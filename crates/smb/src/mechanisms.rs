//! The mechanisms by which users may log on at a machine.

use crate::auth::Mechanism;
use crate::auth::kerberos::{Keytab, KeytabError};
use std::path::PathBuf;

/// NTLM, Kerberos, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    /// NTLM may be used.
    pub ntlm: bool,
    /// The file with the keys of the machine's service, if Kerberos may be used. The file is read
    /// at each logon, so a new key counts at once.
    pub keytab: Option<PathBuf>,
}

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms { ntlm: true, keytab: None }
    }
}

impl Mechanisms {
    /// Checks that the keytab can be used.
    pub fn check(&self) -> Result<(), KeytabError> {
        self.keytab.as_deref().map_or(Ok(()), |file| Keytab::read(file).map(drop))
    }

    /// Reads the keytab. None if there is none now; then the log says why.
    pub(crate) fn keytab(&self) -> Option<Keytab> {
        let read = Keytab::read(self.keytab.as_deref()?);
        read.inspect_err(|error| tracing::error!(%error, "nobody can log on with Kerberos")).ok()
    }

    /// Returns whether a mechanism may be used.
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::Kerberos | Mechanism::KerberosOfWindows => self.keytab.is_some(),
            Mechanism::Ntlm => self.ntlm,
        }
    }
}
