//! One PE of a benchmark: a process that moves its part again and again, and copies as much beside
//! it.

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{CopyService, ServiceOptions, Sources, Target, Targets, Versions};
use syncline_transport::{Session, Wait, shm};

use super::model::Case;
use super::{PES, TIMEOUT};

/// Where a PE finds what it is to do.
pub(super) const ENVIRONMENT: &str = "SYNCLINE_BENCH_PE";

/// Whether this process was started as a PE.
pub(crate) fn is_pe() -> bool {
    std::env::var_os(ENVIRONMENT).is_some()
}

/// Does what the environment says, and prints what it measured.
pub(crate) fn run_pe() {
    let text = std::env::var(ENVIRONMENT).expect("asked before");
    let words: Vec<&str> = text.split(' ').collect();
    let (rank, rounds) = (words[1].parse().expect("a number"), words[2].parse().expect("a number"));
    let case = Case::parse(&words[3..]);
    measure(words[0], rank, rounds, &case);
}

fn measure(name: &str, rank: usize, rounds: usize, case: &Case) {
    let (from, to) = case.layouts();
    let held = Arena::new(&from, rank, content);
    // Every page is written: first touches during the refits would count as theirs.
    let mut received = Arena::new(&to, rank, |_, _| 1);
    let copied: Vec<&[u8]> = held.tensors().map(|(_, bytes)| bytes).collect();
    let before_kib = private_kib();
    let options = shm::Options::default();
    let endpoint = shm::join(name, rank, PES, &options, &Wait::timeout(TIMEOUT)).expect("a group");
    let versions = Versions::One;
    let options = ServiceOptions { timeout: TIMEOUT, versions, ..Default::default() };
    let mut service = CopyService::new(endpoint, options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).expect("a plan");
    let destination = service.destination(&refit).expect("memory for the destination");
    let mut sources = Sources::new(&refit);
    for (name, bytes) in held.tensors() {
        sources.bind(&refit, name, bytes).expect("a shard of the right size");
    }
    let mut targets = Targets::new(&refit);
    for (name, bytes) in received.tensors_mut() {
        targets.bind(&refit, name, bytes).expect("a shard of the right size");
    }
    let without_kib = private_kib();
    let mut scratch = vec![1; refit.bytes_local() as usize];
    let scratch_kib = private_kib().saturating_sub(without_kib);
    println!();
    // The first round touches all memory, and does not count.
    for round in 0..=rounds {
        let samples = [
            timed_ms(|| {
                let target = Target::Destination(&destination);
                service.refit(&refit, &sources, target).expect("a refit");
            }),
            timed_ms(|| {
                let target = Target::Memory(&mut targets);
                service.refit(&refit, &sources, target).expect("a refit");
            }),
            timed_ms(|| together(&mut service, || copy(&copied, &mut scratch, false))),
            timed_ms(|| together(&mut service, || copy(&copied, &mut scratch, true))),
        ];
        if round > 0 {
            println!("ROUND {}", samples.map(|ms| ms.to_string()).join(" "));
        }
    }
    // After the refits: what they keep counts too.
    let extra_kib = private_kib().saturating_sub(before_kib + scratch_kib);
    println!("EXTRA_MIB {}", extra_kib as f64 / 1024.0);
    let expected = Arena::new(&to, rank, content);
    let reading = destination.read().expect("committed");
    for ((name, expected), (_, received)) in expected.tensors().zip(received.tensors()) {
        assert!(reading.tensor(name) == Some(expected), "`{name}` placed directly on PE {rank}");
        assert!(received == expected, "`{name}` unpacked on PE {rank}");
    }
}

fn timed_ms(work: impl FnOnce()) -> f64 {
    crate::measure::timed(work).as_secs_f64() * 1e3
}

/// Runs `work` on every PE between two barriers, as a refit runs.
fn together(service: &mut CopyService, work: impl FnOnce()) {
    let wait = Wait::timeout(TIMEOUT);
    let session = Session::enter(service.transport_mut(), 0, &wait).expect("everyone comes");
    work();
    session.finish(&wait).expect("everyone ends");
}

/// Copies the tensors, again from the first after the last, until `target` is full.
fn copy(tensors: &[&[u8]], target: &mut [u8], streaming: bool) {
    let mut rest = &mut target[..];
    for tensor in tensors.iter().cycle() {
        let count = tensor.len().min(rest.len());
        let (head, tail) = rest.split_at_mut(count);
        if streaming {
            stream(&tensor[..count], head)
        } else {
            head.copy_from_slice(&tensor[..count])
        }
        rest = tail;
        if rest.is_empty() {
            return;
        }
    }
}

/// A copy that bypasses the caches, the simplest there is.
fn stream(source: &[u8], target: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        unsafe { stream_avx2(source, target) };
        return;
    }
    target.copy_from_slice(source);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn stream_avx2(source: &[u8], target: &mut [u8]) {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    let head = target.as_ptr().align_offset(32).min(target.len());
    target[..head].copy_from_slice(&source[..head]);
    let blocks = target[head..].chunks_exact_mut(32).zip(source[head..].chunks_exact(32));
    let done = head + blocks.len() * 32;
    for (target, source) in blocks {
        // SAFETY: both have 32 bytes, and the target is aligned to as many after `head`.
        unsafe {
            let block = _mm256_loadu_si256(source.as_ptr().cast());
            _mm256_stream_si256(target.as_mut_ptr().cast(), block);
        }
    }
    target[done..].copy_from_slice(&source[done..]);
    _mm_sfence();
}

/// A number for each name.
fn seed(name: &str) -> usize {
    name.bytes().fold(7, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

/// The byte at `at` of the whole tensor with this seed.
fn content(seed: usize, at: usize) -> u8 {
    (seed.wrapping_add(at).wrapping_mul(0x9e37_79b9) >> 7) as u8
}

/// This PE's shards side by side, each aligned to a cache line.
struct Arena {
    memory: Vec<u8>,
    places: Vec<(String, usize, usize)>,
}

impl Arena {
    fn new(layout: &Layout, rank: usize, content: impl Fn(usize, usize) -> u8) -> Self {
        let mut end = 0;
        let mut places = Vec::new();
        let mut shards = Vec::new();
        for tensor in layout.tensors() {
            let Some(shard) = tensor.placement().shard(rank as u32) else { continue };
            let bytes = (shard.shape.volume() * tensor.dtype().bytes()) as usize;
            places.push((tensor.name().to_owned(), end, bytes));
            shards.push((tensor, shard));
            end += bytes.next_multiple_of(64);
        }
        let mut memory = vec![0; end + 64];
        let skew = memory.as_ptr().align_offset(64);
        for ((name, start, _), (tensor, shard)) in places.iter_mut().zip(shards) {
            *start += skew;
            let seed = seed(name);
            let element = tensor.dtype().bytes() as usize;
            let bytes = |elements: u64| elements as usize * element;
            for piece in &shard.pieces {
                let (global, local) = (&piece.global, &piece.local);
                for row in 0..global.size[0] {
                    let to = bytes((local[0] + row) * shard.shape[1] + local[1]);
                    let from = (global.start[0] + row) * tensor.shape()[1] + global.start[1];
                    let place = &mut memory[*start + to..][..bytes(global.size[1])];
                    let fill =
                        |(at, byte): (usize, &mut u8)| *byte = content(seed, bytes(from) + at);
                    place.iter_mut().enumerate().for_each(fill);
                }
            }
        }
        Self { memory, places }
    }

    fn tensors(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.places
            .iter()
            .map(|(name, start, bytes)| (&name[..], &self.memory[*start..*start + bytes]))
    }

    fn tensors_mut(&mut self) -> impl Iterator<Item = (&str, &mut [u8])> {
        let mut rest = &mut self.memory[..];
        let mut at = 0;
        self.places.iter().map(move |(name, start, bytes)| {
            let (_, after) = std::mem::take(&mut rest).split_at_mut(start - at);
            let (tensor, after) = after.split_at_mut(*bytes);
            rest = after;
            at = start + bytes;
            (&name[..], tensor)
        })
    }
}

/// Private memory of this process in KiB.
fn private_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    /// Not a test of its own: what the benchmark's test starts as its PEs.
    #[test]
    fn one_pe() {
        if super::is_pe() {
            super::run_pe();
        }
    }
}
