//! The ways in which dirty data is published: inline, as inline extents, through shares; and the
//! failures on the way.

use crate::support::{Server, Shares, at, plans, publish, read};
use bytes::Bytes;
use content::{
    Done, FOLD_BYTES, FileContent, Flush, LAZY_BYTES_MAX, PIECE_BYTES_MAX, Publish, ReadPart,
    SHARE_BYTES_MAX, URGENT_BYTES_MAX, UploadPlan, open_whole,
};
use namespace::{ContentChange, ContentHead, Extent, Place};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

struct World {
    content: FileContent,
    server: Server,
    shares: Shares,
    rng: ChaCha8Rng,
}

impl World {
    fn new() -> World {
        let content = FileContent::empty(ContentHead::default());
        let rng = ChaCha8Rng::seed_from_u64(1);
        World { content, server: Server::default(), shares: Shares::default(), rng }
    }

    fn write(&mut self, offset: u64, length: usize, byte: u8) {
        self.content.write(offset, Bytes::from(vec![byte; length]), at(1));
    }

    fn flush(&mut self, inline_max: u64) -> Flush {
        let flush = self.content.flush(inline_max, &mut self.rng);
        if let Flush::Upload(plans) = &flush {
            plans.iter().for_each(|plan| self.shares.plan(plan));
        }
        if let Flush::Publish(publish) = &flush {
            self.applied(publish);
        }
        flush
    }

    fn applied(&mut self, publish: &Publish) {
        self.server.apply(publish);
        self.shares.published(publish, self.server.head.key);
    }

    fn stored(&mut self, plan: &UploadPlan) -> Done {
        let hashes = self.shares.store(plan);
        let done = self.content.stored(plan.id, hashes);
        done.publishes.iter().for_each(|publish| self.applied(publish));
        self.shares.drop_unused(done.unused.clone());
        done
    }

    /// Writes and publishes through shares.
    fn upload(&mut self, offset: u64, length: usize, byte: u8) {
        self.write(offset, length, byte);
        for plan in plans(self.flush(LAZY_BYTES_MAX)) {
            self.stored(&plan);
        }
        assert!(self.content.is_settled());
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.content.size() as u32;
        read(&mut self.content, &self.server, &self.shares, 0, length)
    }
}

fn put_of(publish: &Publish) -> &[Extent] {
    match &publish.change {
        ContentChange::Extents { put, .. } => put,
        other => panic!("extents, not {other:?}"),
    }
}

fn is_inline(extent: &Extent) -> bool {
    matches!(extent.piece.place, Place::Inline(_))
}

#[test]
fn small_content_is_published_whole() {
    let mut world = World::new();
    world.write(2, 3, 7);
    let published = publish(world.flush(LAZY_BYTES_MAX));
    let ContentChange::Inline { sealed, key: Some(key) } = &published.change else { panic!("{published:?}") };
    assert_eq!(open_whole(Some(key), sealed).unwrap(), [0, 0, 7, 7, 7].as_slice());
    assert!(!sealed.windows(3).any(|bytes| bytes == [7; 3]), "nobody reads it without the key");
    assert_eq!((published.version, published.size), (1, 5));
    assert_eq!(world.flush(URGENT_BYTES_MAX), Flush::Nothing);
    world.content.truncate(4096, at(2));
    let grown = publish(world.flush(LAZY_BYTES_MAX));
    assert!(matches!(&grown.change, ContentChange::Inline { key: None, .. }), "the key is told once");
    assert_eq!(grown.size, 4096);
    assert_eq!(world.content.head(), world.server.head);
    // An empty content seals nothing, and needs no key.
    let mut world = World::new();
    world.content.set_mtime(at(1), at(1));
    world.content.truncate(0, at(2));
    publish(world.flush(LAZY_BYTES_MAX));
    assert_eq!(world.server.head.key, None);
}

#[test]
fn growing_beyond_inline_carries_the_bytes_over() {
    let mut world = World::new();
    world.write(0, 4000, 1);
    world.flush(URGENT_BYTES_MAX);
    world.write(4000, 1000, 2);
    let published = publish(world.flush(URGENT_BYTES_MAX));
    assert!(matches!(&published.change, ContentChange::Extents { key: None, .. }), "the key is told once");
    assert!(put_of(&published).len() == 1 && is_inline(&put_of(&published)[0]));
    assert_eq!(world.server.bytes(&world.shares), [vec![1; 4000], vec![2; 1000]].concat());
    world.write(0, 10, 3);
    assert!(matches!(
        publish(world.flush(URGENT_BYTES_MAX)).change,
        ContentChange::Extents { key: None, .. }
    ));
    // Growth by zeros only is a reason to carry over, too.
    let mut world = World::new();
    world.write(0, 10, 1);
    world.flush(URGENT_BYTES_MAX);
    world.content.truncate(1 << 30, at(2));
    assert_eq!(put_of(&publish(world.flush(URGENT_BYTES_MAX))).len(), 1);
    assert_eq!(world.content.seek(0, true), Ok(Some(10)));
}

#[test]
fn a_large_file_that_becomes_small_is_inline_again() {
    let mut world = World::new();
    world.upload(0, 100_000, 1);
    world.content.truncate(0, at(2));
    world.write(0, 5, 2);
    let published = publish(world.flush(LAZY_BYTES_MAX));
    assert!(matches!(published.change, ContentChange::Inline { .. }));
    assert_eq!(world.server.bytes(&world.shares), [2; 5]);
    assert!(world.server.rows.is_empty());
    // Content cut down to the bytes of a share stays there, since it was not read here.
    world.upload(0, 100_000, 1);
    world.content.truncate(5, at(3));
    let published = publish(world.flush(LAZY_BYTES_MAX));
    assert!(matches!(published.change, ContentChange::Extents { truncate_to: Some(5), .. }));
    assert_eq!(world.bytes(), [1; 5]);
}

#[test]
fn sequential_writes_fill_whole_pieces_of_whole_shares_without_copies() {
    let mut world = World::new();
    for n in 0..512 {
        world.write(n * 4096, 4096, n as u8);
    }
    let large = Bytes::from(vec![9; SHARE_BYTES_MAX]);
    world.content.write(2 << 20, large.clone(), at(1));
    let plans = plans(world.flush(LAZY_BYTES_MAX));
    assert_eq!(plans.len(), 3);
    for plan in &plans {
        assert_eq!(plan.pieces.len(), 8);
        assert!(plan.pieces.iter().all(|piece| piece.plain.len() == PIECE_BYTES_MAX as usize));
    }
    assert_eq!(plans[2].pieces[0].plain.as_ptr(), large.as_ptr());
    // Uploads complete in any order, and the last one publishes.
    for n in [2, 0, 1] {
        assert_eq!(world.stored(&plans[n]).publishes.len(), usize::from(n == 1));
    }
    assert_eq!(world.server.rows.len(), 24);
    assert_eq!(world.bytes(), world.server.bytes(&world.shares));
}

#[test]
fn what_is_written_during_an_upload_stays_above_it() {
    let mut world = World::new();
    world.write(0, 100_000, 1);
    let first = plans(world.flush(LAZY_BYTES_MAX));
    world.write(50_000, 10_000, 2);
    world.content.truncate(80_000, at(2));
    let mut now = vec![1; 80_000];
    now[50_000..60_000].fill(2);
    assert_eq!(world.bytes(), now);
    // An urgent flush has its bytes ready, and waits for its turn.
    let barrier = world.content.barrier();
    assert_eq!(world.flush(URGENT_BYTES_MAX), Flush::Queued);
    assert!(!world.content.passed(barrier));
    assert_eq!((world.content.dirty_bytes(), world.content.held_bytes()), (0, 110_000));
    let done = world.stored(&first[0]);
    assert_eq!(done.publishes.len(), 2);
    assert_eq!((done.publishes[0].size, done.publishes[1].size), (100_000, 80_000));
    assert!(world.content.passed(barrier + 1) && world.content.is_settled());
    assert_eq!(world.server.bytes(&world.shares), now);
    assert_eq!(world.bytes(), now);
}

#[test]
fn a_failed_upload_makes_its_data_dirty_again() {
    let mut world = World::new();
    world.write(0, 100_000, 1);
    let first = plans(world.flush(LAZY_BYTES_MAX));
    world.write(0, 70_000, 2);
    let second = plans(world.flush(LAZY_BYTES_MAX));
    world.write(0, 10, 3);
    let barrier = world.content.barrier();
    // The second share is stored, but its data is to be flushed again along with the first share's.
    assert_eq!(world.stored(&second[0]), Done::default());
    let unused = world.content.upload_failed(first[0].id);
    assert_eq!(unused, vec![second[0].share]);
    world.shares.drop_unused(unused);
    assert!(world.content.is_dirty() && !world.content.passed(barrier) && !world.content.passed(1));
    assert_eq!(world.content.dirty_bytes(), 100_000);
    let now = [vec![3; 10], vec![2; 69_990], vec![1; 30_000]].concat();
    assert_eq!(world.bytes(), now);
    for plan in plans(world.flush(URGENT_BYTES_MAX)) {
        world.stored(&plan);
    }
    assert!(world.content.passed(barrier + 1));
    assert_eq!(world.server.bytes(&world.shares), now);
}

#[test]
fn an_upload_that_comes_back_after_another_failed_is_unused() {
    let mut world = World::new();
    world.write(0, 2 << 20, 1);
    let plans = plans(world.flush(LAZY_BYTES_MAX));
    world.content.upload_failed(plans[1].id);
    assert_eq!(world.stored(&plans[0]).unused, vec![plans[0].share]);
    assert_eq!(world.content.stored(plans[0].id, Vec::new()), Done::default(), "once");
}

impl World {
    /// A file of shares, with `count` synced writes of 4 KiB in it, every `stride` bytes.
    fn with_pending(count: u64, stride: u64) -> World {
        let mut world = World::new();
        world.upload(0, 8 << 20, 1);
        for n in 0..count {
            world.write(n * stride, 4096, 2);
            let published = publish(world.flush(URGENT_BYTES_MAX));
            assert!(put_of(&published).iter().all(is_inline));
        }
        assert_eq!(world.content.pending_inline_bytes(), count * 4096);
        world
    }

    fn fold(&mut self) -> Vec<UploadPlan> {
        let plans = self.content.fold(FOLD_BYTES, &mut self.rng);
        plans.iter().for_each(|plan| self.shares.plan(plan));
        plans
    }
}

#[test]
fn folding_packs_neighbours_into_one_piece() {
    let mut world = World::with_pending(64, 4096);
    let before = world.bytes();
    let plans = world.fold();
    assert_eq!((plans.len(), plans[0].pieces.len()), (1, 2));
    assert!(world.content.is_folding() && world.fold().is_empty());
    assert_eq!(world.stored(&plans[0]).publishes.len(), 1);
    assert_eq!(world.content.pending_inline_bytes(), 0);
    assert!(!world.server.rows.values().any(is_inline));
    assert_eq!(world.server.bytes(&world.shares), before);
    assert_eq!(world.bytes(), before);
    assert!(world.fold().is_empty() && !world.content.is_folding());
}

#[test]
fn a_fold_leaves_out_what_was_overwritten_meanwhile() {
    let mut world = World::with_pending(600, 8192);
    let plans = world.fold();
    assert_eq!(plans.len(), 3);
    // The whole of the last share's pieces, half of a piece, and the part that is cut off.
    world.write(4_100_000, 1 << 20, 3);
    for plan in self::plans(world.flush(LAZY_BYTES_MAX)) {
        world.stored(&plan);
    }
    world.write(2048, 4096, 4);
    publish(world.flush(URGENT_BYTES_MAX));
    let before = world.bytes();
    let unused: Vec<_> = plans.iter().flat_map(|plan| world.stored(plan).unused).collect();
    assert_eq!(unused, vec![plans[2].share]);
    assert_eq!(world.server.bytes(&world.shares), before);
    assert_eq!(world.content.pending_inline_bytes(), 4096);
    assert_eq!(world.server.rows.values().filter(|row| is_inline(row)).count(), 1);
}

#[test]
fn a_failed_fold_changes_nothing() {
    let mut world = World::with_pending(600, 8192);
    let before = world.bytes();
    let plans = world.fold();
    world.stored(&plans[0]);
    assert_eq!(world.content.upload_failed(plans[1].id), vec![plans[0].share]);
    assert_eq!(world.stored(&plans[2]).unused, vec![plans[2].share]);
    assert_eq!(world.content.pending_inline_bytes(), 600 * 4096);
    assert_eq!(world.bytes(), before);
    assert_eq!(world.fold().len(), 3);
}

#[test]
fn a_fold_that_is_given_up_publishes_nothing() {
    let mut world = World::with_pending(600, 8192);
    let plans = world.fold();
    assert!(world.stored(&plans[0]).publishes.is_empty());
    assert_eq!(world.content.stop_folding(), vec![plans[0].share]);
    for plan in &plans[1..] {
        let done = world.stored(plan);
        assert_eq!((done.publishes, done.unused), (vec![], vec![plan.share]));
    }
    assert_eq!((world.content.is_folding(), world.content.pending_inline_bytes()), (false, 600 * 4096));
    assert_eq!(world.fold().len(), 3);
}

#[test]
fn too_much_pending_makes_synced_writes_go_to_shares() {
    let mut world = World::with_pending(0, 0);
    for n in 0..2 * FOLD_BYTES / 65_536 {
        world.write(n * 65_536, 65_536, 3);
        publish(world.flush(URGENT_BYTES_MAX));
    }
    assert_eq!(world.content.pending_inline_bytes(), 2 * FOLD_BYTES);
    world.write(0, 100, 4);
    assert_eq!(plans(world.flush(URGENT_BYTES_MAX)).len(), 1);
}

#[test]
fn explicit_times_win_over_flights_that_they_overtake() {
    let mut world = World::new();
    world.write(0, 100_000, 1);
    let plans = plans(world.flush(LAZY_BYTES_MAX));
    let head = ContentHead { mtime: at(-5), ctime: at(9), ..world.content.head() };
    world.content.adopt(&head);
    let done = world.stored(&plans[0]);
    assert_eq!((done.publishes[0].mtime, done.publishes[0].ctime), (at(-5), at(9)));
    assert_eq!((world.content.head().mtime, world.content.is_dirty()), (at(-5), false));
}

#[test]
fn times_and_growth_alone_publish_no_content() {
    let mut world = World::new();
    world.content.truncate(1 << 40, at(3));
    assert_eq!(publish(world.flush(URGENT_BYTES_MAX)).change, ContentChange::None);
    world.content.set_mtime(at(4), at(5));
    let published = publish(world.flush(URGENT_BYTES_MAX));
    assert_eq!((published.change, published.mtime, published.ctime), (ContentChange::None, at(4), at(5)));
    assert_eq!((world.content.head().occupied, world.content.seek(0, false)), (0, Ok(None)));
}

#[test]
fn holes_are_found_and_punched() {
    let mut world = World::new();
    world.upload(0, 300_000, 1);
    world.content.punch(100_000, 50_000, at(2));
    assert_eq!(world.content.head().occupied, 250_000);
    assert_eq!(world.content.seek(0, true), Ok(Some(100_000)));
    assert_eq!(world.content.seek(100_000, false), Ok(Some(150_000)));
    assert_eq!(world.content.seek(150_000, true), Ok(Some(300_000)));
    assert_eq!(world.content.seek(300_000, true), Ok(None));
    let published = publish(world.flush(LAZY_BYTES_MAX));
    assert!(
        matches!(&published.change, ContentChange::Extents { punch, .. } if *punch == [(100_000, 50_000)])
    );
    assert_eq!(world.server.head, world.content.head());
    let mut parts = Vec::new();
    world.content.read(99_990, 50_020, &mut parts).unwrap();
    let lengths: Vec<usize> = parts.iter().map(ReadPart::length).collect();
    assert_eq!(lengths, vec![10, 50_000, 10]);
    assert_eq!(parts[1], ReadPart::Zeros(50_000));
}

#[test]
fn damaged_inline_pieces_are_told() {
    let mut world = World::with_pending(1, 4096);
    let mut server = world.server.clone();
    if let Some(Place::Inline(bytes)) = server.rows.get_mut(&0).map(|row| &mut row.piece.place) {
        let mut damaged = bytes.to_vec();
        damaged[17] ^= 1;
        *bytes = damaged.into();
    }
    let mut content = server.open(100);
    let read = content.read(0, 10, &mut Vec::new());
    assert_eq!(read, Err(content::Unreadable::Damaged(content::Damaged::Hash)));
    assert!(content.fold(FOLD_BYTES, &mut world.rng).is_empty());
    assert!(content.read(4096, 10, &mut Vec::new()).is_ok());
}

#[test]
fn damaged_inline_content_is_told_until_it_is_written_anew() {
    let mut world = World::new();
    world.write(0, 100, 3);
    publish(world.flush(LAZY_BYTES_MAX));
    let damaged = content::Unreadable::Damaged(content::Damaged::Seal);
    let sealed = world.server.inline.clone().unwrap();
    for byte in 0..sealed.len() {
        let mut server = world.server.clone();
        server.inline.as_mut().unwrap()[byte] ^= 1;
        let mut content = server.open(100);
        assert_eq!(content.read(0, 10, &mut Vec::new()), Err(damaged), "byte {byte}");
        content.truncate(0, at(3));
        content.write(0, vec![4; 7].into(), at(3));
        server.apply(&publish(content.flush(LAZY_BYTES_MAX, &mut world.rng)));
        assert_eq!(server.bytes(&world.shares), [4; 7]);
    }
    // Without its key, the content of a file cannot be read, either.
    let head = ContentHead { key: None, ..world.server.head };
    let keyless = FileContent::new(head, Some(sealed), None);
    let extent = content::Unreadable::Damaged(content::Damaged::Extent);
    assert_eq!(keyless.read(0, 10, &mut Vec::new()), Err(extent));
}

#[test]
fn writes_at_the_end_of_the_world_are_cut_off() {
    let mut world = World::new();
    world.write(content::SIZE_MAX - 2, 10, 1);
    assert_eq!(world.content.size(), content::SIZE_MAX);
    world.write(u64::MAX - 1, 10, 1);
    world.content.truncate(u64::MAX, at(1));
    world.content.zero(u64::MAX - 5, 10, true, at(1));
    world.content.punch(5, u64::MAX, at(1));
    assert_eq!((world.content.size(), world.content.dirty_bytes()), (content::SIZE_MAX, 0));
}

#[test]
fn beyond_the_size_nothing_is_unknown() {
    let head = ContentHead { size: 5000, version: 3, ..ContentHead::default() };
    let mut content = FileContent::new(head, None, None);
    let need = Err(content::Unreadable::NeedExtents { from: 10 });
    assert_eq!(content.read(10, 1, &mut Vec::new()), need);
    content.truncate(9000, at(1));
    let mut parts = Vec::new();
    content.read(5000, 4000, &mut parts).unwrap();
    assert_eq!(parts, vec![ReadPart::Zeros(4000)]);
}
