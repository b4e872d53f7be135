//! Shares in fragments: systematic Reed–Solomon codes.
//!
//! A share is cut into units, which are dealt to the data fragments in turn. So the offset of a
//! piece says which fragments hold the piece, and a reader reads no more of them than the piece.
//! Parity is computed over the bytes at the same place in each data fragment. A fragment begins
//! with the length of the whole share. With that length, any `data` fragments determine all the
//! others exactly.

use bytes::Bytes;
use namespace::{ShareId, Spread};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Bytes dealt at a time. A share too short to give each fragment one unit is kept in copies.
const UNIT: usize = 16 << 10;
/// The header of a fragment: the length of the share, little-endian.
const HEADER_BYTES: usize = 4;
/// The block size of the code. The last block is padded with zeros.
const BLOCK_BYTES: usize = 64;

/// Returns how a share of `length` bytes is spread under the policy `wanted`. Either way as many
/// machines may be lost.
pub fn spread_of(wanted: Spread, length: usize) -> Spread {
    match wanted {
        Spread::Code { data, parity } if length < usize::from(data) * UNIT => Spread::Copies(parity + 1),
        other => other,
    }
}

/// The place of some bytes of a share in one of its data fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the fragment.
    pub fragment: u8,
    /// Offset in the fragment.
    pub at: u32,
    /// Length in bytes.
    pub length: u32,
}

/// Returns the places of bytes `at..at + length` of a share of `data` data fragments, in order.
pub fn segments(data: u8, at: u32, length: u32) -> Vec<Segment> {
    let (unit, row) = (UNIT as u64, u64::from(data.max(1)) * UNIT as u64);
    let (mut from, to) = (u64::from(at), u64::from(at) + u64::from(length));
    let mut segments = Vec::new();
    while from < to {
        let within = from % unit;
        let take = (unit - within).min(to - from);
        let place = HEADER_BYTES as u64 + from / row * unit + within;
        segments.push(Segment {
            fragment: (from % row / unit) as u8,
            // No share is nearly so long.
            at: u32::try_from(place).unwrap_or(u32::MAX),
            length: take as u32,
        });
        from += take;
    }
    segments
}

/// Returns what hosts keep of a share, each part under its name: the share itself, or its
/// fragments. None for counts that the code does not support.
pub fn stored_parts(share: ShareId, whole: Bytes) -> Option<Vec<(ShareId, Bytes)>> {
    let kept = match share.spread() {
        Spread::Code { data, parity } => fragments(&whole, data, parity)?,
        Spread::Usual | Spread::Copies(_) => vec![whole],
    };
    Some(share.kept_as().zip(kept).collect())
}

/// Returns all fragments of a share, data first. None for counts that the code does not support.
fn fragments(whole: &[u8], data: u8, parity: u8) -> Option<Vec<Bytes>> {
    let length = u32::try_from(whole.len()).ok()?;
    let cut = cut(whole, data)?;
    let padded: Vec<Vec<u8>> =
        cut.iter().map(|fragment| padded(fragment, block_bytes(whole.len(), data))).collect();
    let parity = encoded(&padded, parity)?;
    let with_length = |fragment: Vec<u8>| Bytes::from([&length.to_le_bytes(), fragment.as_slice()].concat());
    Some(cut.into_iter().chain(parity).map(with_length).collect())
}

/// Rebuilds the share from any `data` of its fragments. None if there are too few, if they are of
/// several shares, or if a length does not fit the share.
pub fn whole(data: u8, parity: u8, fragments: &[(u8, Bytes)]) -> Option<Vec<u8>> {
    let length = *fragments.first()?.1.first_chunk::<HEADER_BYTES>()?;
    let total = usize::try_from(u32::from_le_bytes(length)).ok()?;
    let block_bytes = block_bytes(total, data);
    let mut originals: Vec<Option<Vec<u8>>> = vec![None; data.into()];
    let mut parities = Vec::new();
    for (number, bytes) in fragments {
        let body = bytes.strip_prefix(&length)?;
        match originals.get_mut(usize::from(*number)) {
            Some(original) if body.len() == data_bytes(total, data, *number) => {
                *original = Some(body.to_vec())
            }
            None if body.len() == block_bytes => parities.push((number - data, body)),
            _ => return None,
        }
    }
    if originals.iter().any(Option::is_none) && total > 0 {
        restore(&mut originals, &parities, parity, block_bytes)?;
    }
    let mut whole = Vec::with_capacity(total);
    let originals: Vec<Vec<u8>> = originals.into_iter().map(Option::unwrap_or_default).collect();
    'dealt: for row in 0.. {
        for original in &originals {
            let unit = original.get(row * UNIT..).unwrap_or_default();
            whole.extend_from_slice(unit.get(..UNIT).unwrap_or(unit));
            if unit.len() < UNIT {
                break 'dealt;
            }
        }
    }
    whole.truncate(total);
    (whole.len() == total).then_some(whole)
}

/// Rebuilds the missing data fragments.
fn restore(
    originals: &mut [Option<Vec<u8>>],
    parities: &[(u8, &[u8])],
    parity: u8,
    block_bytes: usize,
) -> Option<()> {
    let mut decoder = ReedSolomonDecoder::new(originals.len(), parity.into(), block_bytes).ok()?;
    for (number, original) in originals.iter().enumerate() {
        if let Some(original) = original {
            decoder.add_original_shard(number, padded(original, block_bytes)).ok()?;
        }
    }
    for (number, body) in parities {
        decoder.add_recovery_shard(usize::from(*number), body).ok()?;
    }
    let decoded = decoder.decode().ok()?;
    for (number, original) in originals.iter_mut().enumerate() {
        if original.is_none() {
            *original = Some(decoded.restored_original(number)?.to_vec());
        }
    }
    Some(())
}

fn encoded(originals: &[Vec<u8>], parity: u8) -> Option<Vec<Vec<u8>>> {
    let bytes = originals.first()?.len();
    if parity == 0 || bytes == 0 {
        return Some(vec![Vec::new(); parity.into()]);
    }
    let mut encoder = ReedSolomonEncoder::new(originals.len(), parity.into(), bytes).ok()?;
    originals.iter().try_for_each(|original| encoder.add_original_shard(original)).ok()?;
    Some(encoder.encode().ok()?.recovery_iter().map(<[u8]>::to_vec).collect())
}

/// Returns the data fragments without padding.
fn cut(whole: &[u8], data: u8) -> Option<Vec<Vec<u8>>> {
    let bytes = |number| Vec::with_capacity(HEADER_BYTES + data_bytes(whole.len(), data, number));
    let mut cut: Vec<Vec<u8>> = (0..data).map(bytes).collect();
    for (index, unit) in whole.chunks(UNIT).enumerate() {
        cut.get_mut(index.checked_rem(data.into())?)?.extend_from_slice(unit);
    }
    (data > 0).then_some(cut)
}

/// Returns the bytes of data fragment `number` of a share of `total` bytes.
fn data_bytes(total: usize, data: u8, number: u8) -> usize {
    let row = usize::from(data.max(1)) * UNIT;
    total / row * UNIT + (total % row).saturating_sub(usize::from(number) * UNIT).min(UNIT)
}

/// Returns the bytes of each fragment that the code takes and makes: the longest data fragment,
/// padded with zeros.
fn block_bytes(total: usize, data: u8) -> usize {
    data_bytes(total, data, 0).next_multiple_of(BLOCK_BYTES)
}

fn padded(fragment: &[u8], length: usize) -> Vec<u8> {
    let mut padded = fragment.to_vec();
    padded.resize(length, 0);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    /// Returns bytes that differ wherever two places could be confused.
    fn share(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
    }

    fn length() -> impl Strategy<Value = usize> {
        let near = |unit: usize| (0usize..40).prop_map(move |rows| rows * unit);
        prop_oneof![
            0usize..200_000,
            near(UNIT),
            near(UNIT).prop_map(|at| at + 1),
            near(UNIT).prop_map(|at| at.saturating_sub(1))
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_so_many_fragments_give_the_whole(
            length in length(),
            (data, parity, left) in (1u8..=8, 1u8..=4).prop_flat_map(|(data, parity)| {
                let all: Vec<u8> = (0..data + parity).collect();
                (Just(data), Just(parity), subsequence(all, data as usize).prop_shuffle())
            }),
        ) {
            let whole_share = share(length);
            let all = fragments(&whole_share, data, parity).unwrap();
            prop_assert_eq!(all.len(), usize::from(data + parity));
            let kept: usize = all[..data as usize].iter().map(Bytes::len).sum();
            prop_assert_eq!(kept, length + HEADER_BYTES * usize::from(data));
            let left: Vec<(u8, Bytes)> = left.iter().map(|number| (*number, all[*number as usize].clone())).collect();
            let told = whole(data, parity, &left);
            prop_assert_eq!(told.as_deref(), Some(whole_share.as_slice()));
            // Fewer are not enough, unless the missing fragments hold nothing of the share.
            let short = whole(data, parity, &left[1..]);
            prop_assert!(short.is_none() || short.as_deref() == Some(whole_share.as_slice()));
        }

        #[test]
        fn a_part_is_where_its_segments_say(length in 1usize..200_000, data in 1u8..=8, from in any::<prop::sample::Index>(), some in any::<prop::sample::Index>()) {
            let whole_share = share(length);
            let all = fragments(&whole_share, data, 1).unwrap();
            let from = from.index(length);
            let some = some.index(length - from + 1);
            let read: Vec<u8> = segments(data, from as u32, some as u32)
                .iter()
                .flat_map(|segment| all[segment.fragment as usize][segment.at as usize..][..segment.length as usize].to_vec())
                .collect();
            prop_assert_eq!(read, &whole_share[from..from + some]);
        }

        #[test]
        fn whatever_hosts_send_is_no_more_than_refused(
            data in any::<u8>(),
            parity in any::<u8>(),
            sent in vec((any::<u8>(), vec(any::<u8>(), 0..300)), 0..6),
        ) {
            let sent: Vec<(u8, Bytes)> = sent.into_iter().map(|(number, bytes)| (number, bytes.into())).collect();
            let told = whole(data, parity, &sent);
            prop_assert!(told.is_none_or(|whole| whole.len() <= sent.iter().map(|(_, bytes)| bytes.len()).sum()));
        }
    }

    #[test]
    fn fragments_of_several_shares_or_cut_short_are_no_share() {
        let all = fragments(&share(100_000), 2, 1).unwrap();
        let other = fragments(&share(100_001), 2, 1).unwrap();
        assert_eq!(whole(2, 1, &[(0, all[0].clone()), (2, other[2].clone())]), None);
        assert_eq!(whole(2, 1, &[(0, all[0].clone()), (2, all[2].slice(1..))]), None);
        assert_eq!(whole(2, 1, &[(0, all[0].clone()), (2, all[2].slice(..40_000))]), None);
        assert_eq!(whole(2, 1, &[(0, all[0].clone()), (3, all[2].clone())]), None);
        assert_eq!(whole(2, 1, &[]), None);
    }

    #[test]
    fn what_is_too_short_for_fragments_is_kept_in_copies() {
        let code = Spread::Code { data: 4, parity: 2 };
        assert_eq!(spread_of(code, 4 * UNIT - 1), Spread::Copies(3));
        assert_eq!(spread_of(code, 4 * UNIT), code);
        assert_eq!(spread_of(Spread::Usual, 1), Spread::Usual);
    }

    /// Later programs read what this program stores.
    #[test]
    fn the_code_never_changes() {
        let all = fragments(&share(150_000), 4, 2).unwrap();
        let digests: Vec<String> =
            all.iter().map(|fragment| crypto::hash(fragment).to_hex()[..8].to_owned()).collect();
        assert_eq!(digests, DIGESTS);
    }

    const DIGESTS: [&str; 6] = ["a34c7adf", "15cb76f2", "df330767", "fb8e4963", "e2bbceca", "67bbd7c8"];
}
