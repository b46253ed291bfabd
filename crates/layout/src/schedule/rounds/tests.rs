use std::collections::HashSet;

use syncline_testing::for_seeds;

use super::*;

fn batch(src: u32, dst: u32, bytes: u64) -> BatchSize {
    BatchSize { src, dst, number: 0, bytes }
}

/// Colours, and checks that no PE does two things of a kind in a round and that rounds meet the
/// bound.
fn checked(world: u32, sizes: &[BatchSize]) -> Colouring {
    let colouring = colour(world, sizes);
    let (mut sends, mut receives) = (HashSet::new(), HashSet::new());
    for (size, &round) in sizes.iter().zip(&colouring.round_of) {
        assert!(round < colouring.rounds);
        assert!(sends.insert((size.src, round)), "rank {} sends twice in {round}", size.src);
        assert!(receives.insert((size.dst, round)), "rank {} receives twice in {round}", size.dst);
    }
    let degree = |end: fn(&BatchSize) -> u32| {
        (0..world).map(|rank| sizes.iter().filter(|size| end(size) == rank).count()).max()
    };
    let bound = degree(|size| size.src).max(degree(|size| size.dst)).unwrap_or(0);
    assert_eq!((colouring.rounds as usize, colouring.degree_max as usize), (bound, bound));
    colouring
}

#[test]
fn ring_hub_and_all_to_all_meet_the_bound() {
    let ring: Vec<_> = (0..7).map(|rank| batch(rank, (rank + 1) % 7, 10)).collect();
    assert_eq!(checked(7, &ring).rounds, 1);
    let scatter: Vec<_> = (1..9).map(|rank| batch(0, rank, 10)).collect();
    assert_eq!(checked(9, &scatter).rounds, 8);
    let gather: Vec<_> = (1..9).map(|rank| batch(rank, 0, 10)).collect();
    assert_eq!(checked(9, &gather).rounds, 8);
    let pairs = (0..13).flat_map(|src| (0..13).map(move |dst| (src, dst)));
    let all: Vec<_> =
        pairs.filter(|(src, dst)| src != dst).map(|(src, dst)| batch(src, dst, 10)).collect();
    assert_eq!(checked(13, &all).rounds, 12);
    assert_eq!(checked(0, &[]).rounds, 0);
}

#[test]
fn random_multigraphs_meet_the_bound() {
    for_seeds("random_multigraphs_meet_the_bound", 300, |rng| {
        let world = rng.range(1..12) as u32;
        let sizes: Vec<_> = (0..rng.below(120))
            .map(|_| {
                let (src, dst) = (rng.below(world as usize), rng.below(world as usize));
                batch(src as u32, dst as u32, rng.range(1..100))
            })
            .collect();
        checked(world, &sizes);
    });
}

#[test]
fn like_sizes_share_rounds() {
    // Every PE sends one large and one small batch: two rounds, one of each kind.
    let sizes: Vec<_> = (0..8)
        .flat_map(|rank| [batch(rank, (rank + 1) % 8, 1), batch(rank, (rank + 3) % 8, 100)])
        .collect();
    let colouring = checked(8, &sizes);
    for round in 0..2 {
        let in_round = sizes.iter().zip(&colouring.round_of).filter(|(_, at)| **at == round);
        let bytes: HashSet<u64> = in_round.map(|(size, _)| size.bytes).collect();
        assert_eq!(bytes.len(), 1, "round {round} mixes {bytes:?}");
    }
}
