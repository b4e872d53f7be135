//! Measures what content costs: `cargo run --release -p content --example throughput`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures")]

use std::time::Instant;

use bytes::Bytes;
use content::{FOLD_BYTES, FileContent, Flush, LAZY_BYTES_MAX, URGENT_BYTES_MAX, UploadPlan, seal_share};
use namespace::{ContentHead, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const MIB: u64 = 1 << 20;

fn main() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (name, step) in [("4 KiB", 4096u64), ("128 KiB", 128 << 10), ("1 MiB", MIB)] {
        let mut content = FileContent::empty(ContentHead::default());
        let data = Bytes::from(vec![1; step as usize]);
        let (mut writing, mut storing) = (0.0, 0.0);
        for chunk in 0..64 {
            let start = Instant::now();
            for n in 0..8 * MIB / step {
                content.write(chunk * 8 * MIB + n * step, data.clone(), Timestamp::default());
            }
            let plans = content.flush(LAZY_BYTES_MAX, &mut rng);
            writing += start.elapsed().as_secs_f64();
            let start = Instant::now();
            store(&mut content, plans);
            storing += start.elapsed().as_secs_f64();
        }
        println!(
            "512 MiB in writes of {name}: {:.0} µs/MiB to plan, {:.0} to seal",
            writing * 1e6 / 512.0,
            storing * 1e6 / 512.0
        );
    }
    synced(&mut rng);
}

fn store(content: &mut FileContent, flush: Flush) {
    if let Flush::Upload(plans) = flush {
        plans.iter().for_each(|plan| stored(content, plan));
    }
}

fn stored(content: &mut FileContent, plan: &UploadPlan) {
    let (_, hashes) = seal_share(&plan.key, plan.pieces.iter().map(|piece| (piece.nonce, &piece.plain)));
    content.stored(plan.id, hashes);
}

/// Random writes of 4 KiB, each synced, on a file of 4 GiB, folded as they pile up.
fn synced(rng: &mut ChaCha8Rng) {
    let mut content = FileContent::empty(ContentHead::default());
    content.truncate(4 << 30, Timestamp::default());
    let data = Bytes::from(vec![2; 4096]);
    let count = 200_000;
    let start = Instant::now();
    for _ in 0..count {
        content.write(rng.next_u64() % MIB * 4096, data.clone(), Timestamp::default());
        content.flush(URGENT_BYTES_MAX, rng);
        if content.pending_inline_bytes() >= FOLD_BYTES {
            for plan in content.fold(FOLD_BYTES, rng) {
                stored(&mut content, &plan);
            }
        }
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(count);
    println!(
        "a synced write of 4 KiB on 4 GiB, with its fold: {each:.1} µs; {} bytes occupied",
        content.head().occupied
    );
}
