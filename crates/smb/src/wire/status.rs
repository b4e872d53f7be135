//! NTSTATUS (MS-ERREF §2.3), as far as they are answered.

use super::cursor::Malformed;
use std::fmt;

/// A status.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NtStatus(pub u32);

macro_rules! statuses {
    ($($name:ident = $number:literal,)*) => {
        #[allow(missing_docs, reason = "the names are Microsoft's, without STATUS_")]
        impl NtStatus {
            $(pub const $name: NtStatus = NtStatus($number);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0,
    PENDING = 0x103,
    NOTIFY_CLEANUP = 0x10b,
    NOTIFY_ENUM_DIR = 0x10c,
    BUFFER_OVERFLOW = 0x8000_0005,
    NO_MORE_FILES = 0x8000_0006,
    STOPPED_ON_SYMLINK = 0x8000_002d,
    UNSUCCESSFUL = 0xc000_0001,
    INVALID_INFO_CLASS = 0xc000_0003,
    INFO_LENGTH_MISMATCH = 0xc000_0004,
    INVALID_HANDLE = 0xc000_0008,
    INVALID_PARAMETER = 0xc000_000d,
    NO_SUCH_FILE = 0xc000_000f,
    INVALID_DEVICE_REQUEST = 0xc000_0010,
    END_OF_FILE = 0xc000_0011,
    MORE_PROCESSING_REQUIRED = 0xc000_0016,
    INVALID_VIEW_SIZE = 0xc000_001f,
    ACCESS_DENIED = 0xc000_0022,
    BUFFER_TOO_SMALL = 0xc000_0023,
    OBJECT_NAME_INVALID = 0xc000_0033,
    OBJECT_NAME_NOT_FOUND = 0xc000_0034,
    OBJECT_NAME_COLLISION = 0xc000_0035,
    OBJECT_PATH_NOT_FOUND = 0xc000_003a,
    OBJECT_PATH_SYNTAX_BAD = 0xc000_003b,
    SHARING_VIOLATION = 0xc000_0043,
    EA_TOO_LARGE = 0xc000_0050,
    NONEXISTENT_EA_ENTRY = 0xc000_0051,
    NO_EAS_ON_FILE = 0xc000_0052,
    FILE_LOCK_CONFLICT = 0xc000_0054,
    LOCK_NOT_GRANTED = 0xc000_0055,
    DELETE_PENDING = 0xc000_0056,
    PRIVILEGE_NOT_HELD = 0xc000_0061,
    LOGON_FAILURE = 0xc000_006d,
    RANGE_NOT_LOCKED = 0xc000_007e,
    DISK_FULL = 0xc000_007f,
    INSUFFICIENT_RESOURCES = 0xc000_009a,
    MEDIA_WRITE_PROTECTED = 0xc000_00a2,
    FILE_IS_A_DIRECTORY = 0xc000_00ba,
    NOT_SUPPORTED = 0xc000_00bb,
    NETWORK_NAME_DELETED = 0xc000_00c9,
    BAD_NETWORK_NAME = 0xc000_00cc,
    REQUEST_NOT_ACCEPTED = 0xc000_00d0,
    NOT_SAME_DEVICE = 0xc000_00d4,
    INVALID_OPLOCK_PROTOCOL = 0xc000_00e3,
    INTERNAL_ERROR = 0xc000_00e5,
    DIRECTORY_NOT_EMPTY = 0xc000_0101,
    FILE_CORRUPT_ERROR = 0xc000_0102,
    NOT_A_DIRECTORY = 0xc000_0103,
    CANCELLED = 0xc000_0120,
    CANNOT_DELETE = 0xc000_0121,
    FILE_CLOSED = 0xc000_0128,
    FS_DRIVER_REQUIRED = 0xc000_019c,
    INVALID_LOCK_RANGE = 0xc000_01a1,
    USER_SESSION_DELETED = 0xc000_0203,
    CONNECTION_DISCONNECTED = 0xc000_020c,
    NOT_FOUND = 0xc000_0225,
    DUPLICATE_OBJECTID = 0xc000_022a,
    TOO_MANY_LINKS = 0xc000_0265,
    NOT_A_REPARSE_POINT = 0xc000_0275,
    IO_REPARSE_DATA_INVALID = 0xc000_0278,
    IO_REPARSE_TAG_NOT_HANDLED = 0xc000_0279,
    NETWORK_SESSION_EXPIRED = 0xc000_035c,
    REQUEST_OUT_OF_SEQUENCE = 0xc000_042a,
    FILE_NOT_AVAILABLE = 0xc000_0467,
    SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xc05d_0000,
}

impl NtStatus {
    /// Returns whether it is an error or a warning, and so has no body but the error's.
    pub fn is_error(self) -> bool {
        self.0 >> 30 >= 2
    }
}

impl fmt::Debug for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<Malformed> for NtStatus {
    fn from(_: Malformed) -> NtStatus {
        NtStatus::INVALID_PARAMETER
    }
}
