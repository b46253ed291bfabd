//! Bytes that change between sender and receiver: one error on every PE, which names the tensor.
//!
//! PE 0 sends three tensors to PE 1 in one message; PE 2 has nothing to do, and hears of it all the
//! same. A byte of the second tensor is changed after its checksum was computed and before its
//! receiver verifies it: in the slot, or where PE 0 has placed it in the memory of PE 1. Between
//! processes, another process changes it, in the shared memory itself.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use syncline_layout::{Dims, Layout, NdBox, Piece, PlanOptions, Shard};
use syncline_reshard::{
    CopyService, DestinationError, ServiceError, ServiceOptions, Target, Targets, Versions,
};
use syncline_tensor::Dtype;
use syncline_transport::{ControlPlane, Transport, Wait, Window, local, shm};

use crate::devices::{bind_on, second_cpu};
use crate::groups::{Meddle, Meddled, PATIENCE, agreed, on_endpoints};
use crate::models::{bind, shards};
use crate::processes::{LIMIT, Pe, Scenario, is_whole, run_all, scenarios, stamped};

/// Elements of each tensor.
const ELEMENTS: u64 = 64;

const CORRUPT: &str = "tensor `b`: segment 1 of round 0 from PE 0 to PE 1 is corrupt: checksum ";

/// Three tensors, all on PE `rank`.
fn on_one(rank: u32, dtype: Dtype) -> Layout {
    let mut builder = Layout::builder();
    for name in ["a", "b", "c"] {
        let shape = Dims::from_slice(&[4, ELEMENTS / 4]).unwrap();
        let local = Dims::from_slice(&[0, 0]).unwrap();
        let pieces = vec![Piece { global: NdBox::whole(shape), local }];
        let shard = Shard { rank, shape, pieces };
        builder.tensor(name, dtype, &shape, vec![shard]).unwrap();
    }
    builder.finish()
}

/// Where a byte is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    /// In the slot, in the segment of `b`.
    Slot,
    /// In the slot, in the checksum of `b`.
    Sum,
    /// In the destination of PE 1, in `b`.
    Window,
}

/// The byte to change, of a message from PE 0 to PE 1.
fn victim(endpoint: &dyn Transport, message: &mut [u8], place: Where, wire_bytes: u64) -> *mut u8 {
    match place {
        Where::Slot => &mut message[(ELEMENTS * wire_bytes) as usize + 5],
        // Of three checksums one is in the header.
        Where::Sum => &mut message[message.len() - 8],
        Where::Window => {
            let (id, [_, base]) = endpoint.ticket(1).window.expect("PE 1 can be written directly");
            let window: Window = endpoint.peer_window(1, id).unwrap().unwrap();
            // The directory of a destination says where each tensor starts; `b` is the second.
            // SAFETY: within the window, which its owner wrote before it announced it.
            unsafe {
                let start = window.start().add(16).cast::<u64>().read();
                window.start().add(base as usize + start as usize + 7)
            }
        }
    }
}

/// How a refit goes.
#[derive(Clone, Copy, Debug)]
struct Way {
    place: Where,
    lanes: bool,
    versions: Versions,
    /// Element types of source and destination.
    dtypes: (Dtype, Dtype),
}

/// Two refits, of which a byte is changed in the second; the error that every PE returns.
fn refit_twice(way: Way, on_device: bool) -> String {
    let (source, target) = way.dtypes;
    let (from, to) = (on_one(0, source), on_one(1, target));
    let group = local::Options { depth: 2, slot_bytes: 4096 };
    let device = second_cpu();
    agreed(on_endpoints(local::group(3, &group).unwrap(), |endpoint| {
        let (rank, sent) = (endpoint.rank(), AtomicU32::new(0));
        let wire_bytes = source.bytes().min(target.bytes());
        let meddle: Meddle = Box::new(move |endpoint, _, message, _| {
            if sent.fetch_add(1, Ordering::Relaxed) == 1 {
                // SAFETY: a byte that nobody else touches until the message is sent.
                unsafe { *victim(endpoint, message, way.place, wire_bytes) ^= 0x10 };
            }
        });
        let options = ServiceOptions {
            timeout: PATIENCE,
            checksums: true,
            versions: way.versions,
            separate_lanes: Some(way.lanes),
        };
        let mut service = CopyService::new(Meddled::in_place(endpoint, meddle), options);
        let plan = PlanOptions::default().convert(source, target);
        let refit = service.prepare(&from, &to, &plan)?;
        let mine = shards(&from, rank);
        if way.place != Where::Window && !on_device {
            return refit_memory_twice(&mut service, &refit, &mine);
        }
        let destination = match on_device {
            true => service.destination_on(&refit, &device)?,
            false => service.destination(&refit)?,
        };
        let sources = if on_device { bind_on(&device, &refit, &mine) } else { bind(&refit, &mine) };
        service.refit(&refit, &sources, Target::Destination(&destination))?;
        let result = service.refit(&refit, &sources, Target::Destination(&destination));
        match (way.versions, destination.read()) {
            (Versions::One, Err(DestinationError::Torn { version: 1 })) => {}
            (Versions::Two, Ok(reading)) => assert_eq!(reading.version(), 1),
            (_, other) => panic!("{other:?}"),
        }
        result
    }))
}

fn refit_memory_twice(
    service: &mut CopyService,
    refit: &syncline_reshard::Refit,
    mine: &[(String, Vec<u8>)],
) -> Result<syncline_reshard::Moved, ServiceError> {
    let mut memory: Vec<(String, Vec<u8>)> =
        refit.targets().iter().map(|(name, bytes)| (name.to_owned(), vec![0; bytes])).collect();
    let mut targets = Targets::new(refit);
    for (name, bytes) in &mut memory {
        targets.bind(refit, name, bytes).unwrap();
    }
    service.refit(refit, &bind(refit, mine), Target::Memory(&mut targets))?;
    service.refit(refit, &bind(refit, mine), Target::Memory(&mut targets))
}

#[test]
fn a_changed_byte_is_named_by_its_tensor_on_every_pe() {
    let dtypes = [(Dtype::F32, Dtype::F32), (Dtype::F32, Dtype::BF16), (Dtype::BF16, Dtype::F32)];
    for place in [Where::Slot, Where::Sum, Where::Window] {
        for (lanes, versions) in [(false, Versions::One), (true, Versions::Two)] {
            for dtypes in dtypes {
                let way = Way { place, lanes, versions, dtypes };
                let error = refit_twice(way, false);
                assert!(error.starts_with(CORRUPT), "{way:?}: {error}");
            }
        }
    }
}

#[test]
fn what_goes_to_memory_of_a_device_is_verified_on_its_way() {
    for versions in [Versions::One, Versions::Two] {
        for dtypes in [(Dtype::F32, Dtype::F32), (Dtype::F32, Dtype::F8E4M3)] {
            let way = Way { place: Where::Slot, lanes: true, versions, dtypes };
            let error = refit_twice(way, true);
            assert!(error.starts_with(CORRUPT), "{way:?}: {error}");
        }
    }
}

#[test]
fn what_is_placed_directly_is_placed_directly_also_with_checksums() {
    let (from, to) = (on_one(0, Dtype::F32), on_one(1, Dtype::F32));
    let group = local::Options { depth: 2, slot_bytes: 4096 };
    let moved = on_endpoints(local::group(2, &group).unwrap(), |endpoint| {
        let options = ServiceOptions { timeout: PATIENCE, checksums: true, ..Default::default() };
        let mut service = CopyService::new(endpoint, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
        let mine = shards(&from, service.rank());
        let destination = service.destination(&refit).unwrap();
        service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap()
    });
    let bytes = 3 * ELEMENTS * 4;
    assert_eq!((moved[0].placed_bytes, moved[0].sent_bytes, moved[0].messages), (bytes, 0, 1));
    assert_eq!((moved[1].received_bytes, moved[1].messages), (0, 1));
}

#[test]
fn a_changed_byte_of_a_request_is_named_by_its_id() {
    let group = local::Options { depth: 2, slot_bytes: 4096 };
    // The first message announces; requests 4, 5 and 6 are in the second, each at a line of its
    // own, with two checksums behind them.
    for (at, id) in [(0, 4), (64 + 5, 5), (128 + 39, 6), (usize::MAX, 6)] {
        let error = agreed(on_endpoints(local::group(2, &group).unwrap(), |endpoint| {
            let (rank, sent) = (endpoint.rank(), AtomicU32::new(0));
            let meddle: Meddle = Box::new(move |_, _, message, _| {
                if rank == 0 && sent.fetch_add(1, Ordering::Relaxed) == 1 {
                    message[at.min(message.len() - 1)] ^= 1;
                }
            });
            let options =
                ServiceOptions { timeout: PATIENCE, checksums: true, ..Default::default() };
            let mut targets = vec![vec![0u8; 40]; 3];
            let mut service = CopyService::new(Meddled::in_place(endpoint, meddle), options);
            let mut requests = service.requests();
            for (id, target) in (4..).zip(&mut targets) {
                match rank {
                    0 => requests.submit_send(1, Some(id), &[7; 40]).unwrap(),
                    _ => requests.submit_recv(0, Some(id), target).unwrap(),
                }
            }
            requests.run()
        }));
        let expected = format!("tensor `request {id} from PE 0 to PE 1`: segment ");
        assert!(error.starts_with(&expected) && error.contains("is corrupt"), "{error}");
    }
}

/// Has another process change the byte at `address`, which is in memory that this process shares.
fn flip_by_another_process(address: *mut u8, scenario: &Scenario) {
    let address = address as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let (offset, inode) = maps
        .lines()
        .find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (first, last) = words[0].split_once('-').unwrap();
            let hex = |text| usize::from_str_radix(text, 16).unwrap();
            let range = hex(first)..hex(last);
            let offset = hex(words[2]) + address.wrapping_sub(range.start);
            range.contains(&address).then(|| (offset, words[4].parse::<u64>().unwrap()))
        })
        .expect("the address is mapped");
    // The group's file has no name any more, but this process has it open.
    let is_file =
        |path: &std::path::PathBuf| std::fs::metadata(path).is_ok_and(|file| file.ino() == inode);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let file =
        std::fs::File::open(open.into_iter().find(is_file).expect("the file is open")).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let what = "flip-a-byte".to_owned();
    let flip = Scenario { name: path, rank: offset, what, ..scenario.clone() };
    assert_eq!(Pe::start(&flip).result(LIMIT), "flipped");
}

/// What that other process does.
pub fn flip_a_byte(scenario: &Scenario) -> String {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&scenario.name).unwrap();
    let (mut byte, offset) = ([0], scenario.rank as u64);
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
    "flipped".to_owned()
}

/// One PE of a group in which the third refit is corrupted.
pub fn refit_corrupted(scenario: &Scenario) -> String {
    let wait = Wait::timeout(scenario.timeout);
    let Scenario { name, rank, size, what, .. } = scenario.clone();
    let options = shm::Options { depth: 2, slot_bytes: 4096, ..Default::default() };
    let endpoint = shm::join(&name, rank, size, &options, &wait).unwrap();
    let (from, to) = (on_one(0, Dtype::F32), on_one(1, Dtype::F32));
    let (sent, told, is_slot) = (AtomicU32::new(0), scenario.clone(), what.contains("slot"));
    let meddle: Meddle = Box::new(move |endpoint, _, message, _| {
        if rank == 0 && sent.fetch_add(1, Ordering::Relaxed) == 2 {
            let place = if is_slot { Where::Slot } else { Where::Window };
            flip_by_another_process(victim(endpoint, message, place, 4), &told);
        }
    });
    let options = ServiceOptions {
        timeout: scenario.timeout,
        checksums: true,
        versions: Versions::Two,
        separate_lanes: Some(what.contains("lanes")),
    };
    let mut service = CopyService::new(Meddled::in_place(endpoint, meddle), options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let (mine, expected) = (shards(&from, rank), shards(&to, rank));
    let destination = service.destination(&refit).unwrap();
    let mut memory: Vec<Vec<u8>> = expected.iter().map(|(_, bytes)| vec![0; bytes.len()]).collect();
    for version in 1.. {
        let mine = stamped(&mine, version);
        let started = Instant::now();
        let refitted = if is_slot {
            let mut targets = Targets::new(&refit);
            for ((name, _), bytes) in expected.iter().zip(&mut memory) {
                targets.bind(&refit, name, bytes).unwrap();
            }
            service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets))
        } else {
            service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
        };
        let Err(error) = refitted else { continue };
        assert!(started.elapsed() < scenario.timeout);
        assert!(is_whole(&destination, &expected), "what is committed is whole");
        return format!("after {}: {error}", version - 1);
    }
    unreachable!("the third refit is corrupted")
}

#[test]
fn a_byte_that_another_process_changes_in_shared_memory_is_noticed_by_all() {
    for what in ["corrupt-slot", "corrupt-slot-lanes", "corrupt-window", "corrupt-window-lanes"] {
        let results = run_all(&scenarios(3, what, LIMIT));
        let expected = format!("after 2: {CORRUPT}");
        assert!(results.iter().all(|result| *result == results[0]), "{what}: {results:?}");
        assert!(results[0].starts_with(&expected), "{what}: {results:?}");
    }
}
