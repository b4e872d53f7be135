//! Backups, and what is restored of them.

use super::{Words, seconds};
use backup::{
    BackupProgress, BackupReport, ExtractReport, FilePart, LostFile, RestoreProgress, RestoreReport,
    SkippedParts, UncopiedShare,
};
use figures::size;
use std::fmt;

impl fmt::Display for Words<'_, BackupReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackupReport { name, files, row_bytes, shares, bytes, new_shares, new_bytes, ms, .. } = self.0;
        let BackupReport { removed, removed_shares, faults, .. } = self.0;
        faults.iter().try_for_each(|UncopiedShare { why, .. }| writeln!(f, "{why}"))?;
        write!(
            f,
            "{name}: {files} files, {} of metadata, {shares} shares with {}, of which {new_shares} with {} are new; {:.1} s",
            size(*row_bytes),
            size(*bytes),
            size(*new_bytes),
            seconds(*ms)
        )?;
        if *removed > 0 {
            write!(f, "; {removed} older ones removed, and {removed_shares} shares")?;
        }
        if !faults.is_empty() {
            write!(f, "; INCOMPLETE: {} shares could not be had", faults.len())?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Words<'_, RestoreReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RestoreReport { name, rows, shares, bytes, lost } = self.0;
        lost.iter().try_for_each(|share| writeln!(f, "share {share} is missing or damaged"))?;
        writeln!(f, "restored {name}: {rows} rows, {shares} shares with {}", size(*bytes))
    }
}

impl fmt::Display for Words<'_, ExtractReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExtractReport { name, file, to, files, bytes, lost, skipped } = self.0;
        lost.iter().try_for_each(|LostFile { path, why }| writeln!(f, "left out: {path}: {why}"))?;
        skipped.iter().try_for_each(|parts| write!(f, "{}", Words(parts)))?;
        write!(f, "restored {file} of {name} to {to}: {files} files with {}", size(*bytes))?;
        if !lost.is_empty() {
            write!(f, "; INCOMPLETE: {} files left out", lost.len())?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Words<'_, SkippedParts> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SkippedParts { path, others, part, why } = self.0;
        write!(f, "not restored: {path}")?;
        if *others > 0 {
            write!(f, " and {others} others")?;
        }
        let of_file = match part {
            FilePart::Owner => "the owner and the group cannot be set",
            FilePart::Mode => "the mode cannot be set",
            FilePart::Xattr { attribute } => {
                return writeln!(f, ": the attribute {attribute} cannot be set here: {why}");
            }
            FilePart::Times => "the times cannot be set",
            FilePart::NamedPipe => "a named pipe cannot be made",
            FilePart::Socket => "a socket cannot be made",
            FilePart::CharacterDevice => "a character device cannot be made",
            FilePart::BlockDevice => "a block device cannot be made",
        };
        writeln!(f, ": {of_file} here: {why}")
    }
}

impl fmt::Display for Words<'_, BackupProgress> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BackupProgress::NotFlushed => {
                f.write_str("what this machine has changed within the last seconds may not be in the backup")
            }
            BackupProgress::Copied { rows, shares, new_shares, new_bytes } => write!(
                f,
                "{rows} rows, {shares} shares, of which {new_shares} are new ({})",
                size(*new_bytes)
            ),
            BackupProgress::Again => f.write_str("content was deleted on other servers meanwhile; once more"),
            BackupProgress::Pruning => f.write_str("removing what is not kept any more"),
        }
    }
}

impl fmt::Display for Words<'_, RestoreProgress> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RestoreProgress::Restored { rows, shares, bytes } => {
                write!(f, "{rows} rows, {shares} shares ({})", size(*bytes))
            }
            RestoreProgress::Finishing => f.write_str("writing the rest"),
            RestoreProgress::RowsRead { rows } => write!(f, "{rows} rows of metadata"),
            RestoreProgress::Extracted { files, bytes } => write!(f, "{files} files ({})", size(*bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_progress_is_told_in_words() {
        let (rows, shares, new_shares, new_bytes, bytes) = (9, 3, 1, 2048, 2048);
        let backups = [
            (
                BackupProgress::NotFlushed,
                "what this machine has changed within the last seconds may not be in the backup",
            ),
            (
                BackupProgress::Copied { rows, shares, new_shares, new_bytes },
                "9 rows, 3 shares, of which 1 are new (2.0 KiB)",
            ),
            (BackupProgress::Again, "content was deleted on other servers meanwhile; once more"),
            (BackupProgress::Pruning, "removing what is not kept any more"),
        ];
        for (progress, words) in backups {
            assert_eq!(Words(&progress).to_string(), words);
        }
        let restores = [
            (RestoreProgress::Restored { rows, shares, bytes }, "9 rows, 3 shares (2.0 KiB)"),
            (RestoreProgress::Finishing, "writing the rest"),
            (RestoreProgress::RowsRead { rows: 9 }, "9 rows of metadata"),
            (RestoreProgress::Extracted { files: 3, bytes }, "3 files (2.0 KiB)"),
        ];
        for (progress, words) in restores {
            assert_eq!(Words(&progress).to_string(), words);
        }
    }
}
