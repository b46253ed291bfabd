//! Refits of tensors in memory of devices, by lanes, against arrays that were laid out element by
//! element.
//!
//! What is checked here holds for any device: a second CPU device, which is always there and is
//! treated as a device whose memory only its own lanes touch, and whatever other devices this
//! machine has drivers for.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use syncline_copy::convert::convert_slice;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::registry::BackendProbe;
use syncline_device::{
    Batch, BufferView, Command, Device, Kernel, KernelArg, LaneKind, Pattern, Timeline,
};
use syncline_layout::{Layout, PlanOptions};
use syncline_opencl::OpenClOptions;
use syncline_reshard::{CopyService, Refit, ServiceOptions, Sources, Target, Targets, Versions};
use syncline_tensor::{Dtype, View};
use syncline_testing::{Rng, for_seeds, need};
use syncline_transport::{Transport, local, shm};

use crate::blocks::block_refits;
use crate::groups::{Meddled, PATIENCE, agreed, on_endpoints, world};
use crate::meshes;
use crate::models::shards;
use crate::pipelines::model;
use crate::services::tp;

/// Soon enough to be waited for in vain.
const SHORT: Duration = Duration::from_millis(300);

/// A device that is treated through its lanes alone.
pub fn second_cpu() -> Arc<dyn Device> {
    CpuDevice::open(CpuOptions::new(1).compute_lanes(1)).unwrap()
}

/// Returns the first device of a driver that this machine may lack.
fn driven(probe: &dyn BackendProbe) -> Option<Arc<dyn Device>> {
    need(&format!("a driver for {}", probe.backend()), probe.probe())?;
    Some(probe.open(0).expect("a device that was listed can be opened"))
}

/// What a tensor is put into, by a coin for each.
#[derive(Clone, Copy, PartialEq)]
enum Home {
    Host,
    /// A buffer of a CPU device that the service has no lanes of.
    PlainBuffer,
    Device,
}

/// `bytes` in a buffer of `device`, not at its start.
fn upload(device: &Arc<dyn Device>, bytes: &[u8], skew: u64) -> BufferView {
    let buffer = device.buffer(bytes.len() as u64 + skew + 64);
    buffer.write(skew, bytes).unwrap();
    buffer.view(View::bytes_at(skew, bytes.len() as u64).unwrap()).unwrap()
}

fn any_home(rng: &mut Rng) -> Home {
    *rng.pick(&[Home::Host, Home::PlainBuffer, Home::Device, Home::Device])
}

/// One PE's refit with sources and targets wherever coins put them; twice, with other values the
/// second time.
fn check_pe<T: Transport + 'static>(
    transport: T,
    device: &Arc<dyn Device>,
    (from, to): (&Layout, &Layout),
    options: ServiceOptions,
    seed: u64,
) {
    let mut service = CopyService::new(transport, options);
    let rank = service.rank();
    let mut rng = Rng::new(seed ^ (rank as u64) << 32);
    let refit = service.prepare(from, to, &PlanOptions::default()).unwrap();
    service.add_device(device).unwrap();
    let plain = CpuDevice::open(CpuOptions::new(2).compute_lanes(1)).unwrap();
    let into_destination = rng.one_in(2);
    let destination = into_destination.then(|| service.destination_on(&refit, device).unwrap());
    for round in 0..2u8 {
        let stamp = |mut held: Vec<(String, Vec<u8>)>| {
            held.iter_mut().for_each(|(_, bytes)| bytes.iter_mut().for_each(|byte| *byte ^= round));
            held.retain(|(_, bytes)| !bytes.is_empty());
            held
        };
        let (mine, expected) = (stamp(shards(from, rank)), stamp(shards(to, rank)));
        let mut sources = Sources::new(&refit);
        for (name, bytes) in &mine {
            let skew = rng.range(0..9);
            match any_home(&mut rng) {
                Home::Host => sources.bind(&refit, name, bytes),
                Home::PlainBuffer => sources.bind_view(&refit, name, upload(&plain, bytes, skew)),
                Home::Device => sources.bind_view(&refit, name, upload(device, bytes, skew)),
            }
            .unwrap();
        }
        if let Some(destination) = &destination {
            service.refit(&refit, &sources, Target::Destination(destination)).unwrap();
            let reading = destination.read().unwrap();
            assert_eq!(reading.version(), u64::from(round) + 1);
            for (name, bytes) in &expected {
                let got = reading.view(name).unwrap().to_vec::<u8>().unwrap();
                assert!(got == *bytes, "`{name}` on PE {rank}");
            }
            continue;
        }
        let mut memory: Vec<Vec<u8>> = Vec::new();
        let mut views = Vec::new();
        for (_, bytes) in &expected {
            memory.push(vec![0xa5; bytes.len()]);
            let skew = rng.range(0..9);
            views.push(match any_home(&mut rng) {
                Home::Host => None,
                Home::PlainBuffer => Some(upload(&plain, &vec![1; bytes.len()], skew)),
                Home::Device => Some(upload(device, &vec![2; bytes.len()], skew)),
            });
        }
        let mut targets = Targets::new(&refit);
        for (((name, _), bytes), view) in expected.iter().zip(&mut memory).zip(&views) {
            match view {
                Some(view) => targets.bind_view(&refit, name, view.clone()),
                None => targets.bind(&refit, name, bytes),
            }
            .unwrap();
        }
        service.refit(&refit, &sources, Target::Memory(&mut targets)).unwrap();
        drop(targets);
        for (((name, bytes), host), view) in expected.iter().zip(memory).zip(views) {
            let got = view.map_or(host, |view| view.to_vec::<u8>().unwrap());
            assert!(got == *bytes, "`{name}` on PE {rank}");
        }
    }
}

/// A ring of requests, from and to memory of devices and of the process.
#[test]
fn requests_move_tensors_on_devices() {
    for_seeds("requests_move_tensors_on_devices", 8, |rng| {
        let (size, bytes) = (3, rng.range(1..5_000) as usize);
        let slots = local::Options { depth: rng.below(3) + 1, slot_bytes: 256 };
        let seed = rng.next_u64();
        let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
        on_endpoints(local::group(size, &slots).unwrap(), |endpoint| {
            let mut service = CopyService::new(endpoint, options);
            let (rank, device) = (service.rank(), second_cpu());
            service.add_device(&device).unwrap();
            let mut rng = Rng::new(seed ^ rank as u64);
            let content = |rank: usize, round: u8| vec![rank as u8 * 16 + round + 1; bytes];
            for round in 0..3 {
                let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
                let (mine, mut host) = (content(rank, round), vec![0; bytes]);
                let view = rng.one_in(2).then(|| upload(&device, &host, 5));
                let mut requests = service.requests();
                match rng.one_in(2) {
                    true => requests.submit_send_view(next, None, upload(&device, &mine, 3)),
                    false => requests.submit_send(next, None, &mine),
                }
                .unwrap();
                match &view {
                    Some(view) => requests.submit_recv_view(before, None, view.clone()),
                    None => requests.submit_recv(before, None, &mut host),
                }
                .unwrap();
                requests.run().unwrap();
                let got = view.map_or(host, |view| view.to_vec::<u8>().unwrap());
                assert!(got == content(before, round), "round {round} on PE {rank}");
            }
        });
    });
}

/// Work that is queued on a tensor's buffer may take any time. A refit behind it keeps its
/// deadline, and leaves nothing queued behind that work.
#[test]
fn a_deadline_holds_behind_earlier_work_on_a_buffer() {
    let (from, to) = (tp(2), tp(1));
    for blocks_source in [true, false] {
        let never = Timeline::new("never", 0);
        let (awaited, (from, to)) = (never.clone(), (from.clone(), to.clone()));
        let (sender, done) = channel();
        let group = thread::spawn(move || {
            let group = local::Options { depth: 2, slot_bytes: 256 };
            let results = on_endpoints(local::group(2, &group).unwrap(), |endpoint| {
                let options = ServiceOptions { timeout: SHORT, ..Default::default() };
                let mut service = CopyService::new(endpoint, options);
                let rank = service.rank();
                let device = second_cpu();
                service.add_device(&device).unwrap();
                let refit = service.prepare(&from, &to, &PlanOptions::default())?;
                let block = |view: &BufferView| {
                    let fill = Command::fill(view.clone(), Pattern::new(&[1]).unwrap());
                    device.lane(LaneKind::Compute).submit(Batch::from(fill).wait(awaited.point(1)))
                };
                let mut sources = Sources::new(&refit);
                for (at, (name, bytes)) in shards(&from, rank).iter().enumerate() {
                    let view = upload(&device, bytes, 0);
                    if blocks_source && at == 0 {
                        block(&view).unwrap();
                    }
                    sources.bind_view(&refit, name, view).unwrap();
                }
                let mut targets = Targets::new(&refit);
                for (at, (name, bytes)) in shards(&to, rank).iter().enumerate() {
                    let view = upload(&device, bytes, 0);
                    if !blocks_source && at == 0 {
                        block(&view).unwrap();
                    }
                    targets.bind_view(&refit, name, view).unwrap();
                }
                service.refit(&refit, &sources, Target::Memory(&mut targets))
            });
            sender.send(results).unwrap();
        });
        let results = done.recv_timeout(PATIENCE);
        never.signal(1).unwrap();
        group.join().unwrap();
        let error = agreed(results.expect("the refit waited beyond its deadline"));
        assert!(error.contains("timed out") || error.contains("deadline"), "{error}");
    }
}

/// Random layouts over a local group whose PEs share `device`.
pub fn random_refits(name: &str, seeds: u64, device: &Arc<dyn Device>) {
    for_seeds(name, seeds, |rng| {
        let (from, to) = meshes::any_pair(rng);
        let options = ServiceOptions {
            timeout: PATIENCE,
            checksums: rng.one_in(3),
            versions: *rng.pick(&[Versions::One, Versions::Two]),
            separate_lanes: Some(rng.one_in(2)),
        };
        let slot_bytes = *rng.pick(&[64, 192, 1_024, 65_536]);
        let group = local::Options { depth: rng.below(3) + 1, slot_bytes };
        let seed = rng.next_u64();
        on_endpoints(local::group(world(&from, &to), &group).unwrap(), |endpoint| {
            check_pe(endpoint, device, (&from, &to), options, seed);
        });
    });
}

#[test]
fn tensors_on_a_device_arrive_as_the_naive_copy_says() {
    random_refits("tensors_on_a_device_arrive_as_the_naive_copy_says", 40, &second_cpu());
}

#[test]
fn a_transport_without_slots_in_memory_will_do() {
    let device = second_cpu();
    for_seeds("a_transport_without_slots_in_memory_will_do", 20, |rng| {
        let (from, to) = meshes::any_pair(rng);
        let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
        let group = local::Options { depth: rng.below(3) + 1, slot_bytes: 192 };
        let seed = rng.next_u64();
        on_endpoints(local::group(world(&from, &to), &group).unwrap(), |endpoint| {
            let copying = Meddled::copying(endpoint);
            check_pe(copying, &device, (&from, &to), options, seed);
        });
    });
}

#[test]
fn threads_joined_over_shared_memory_move_device_tensors() {
    let device = second_cpu();
    let from = model(3, 160, Dtype::F32, r#"[["tp", 3]]"#);
    let to = model(3, 160, Dtype::F32, r#"[["tp", 2]]"#);
    let name = format!("test-devices-{}", std::process::id());
    let options = shm::Options { slot_bytes: 4096, ..Default::default() };
    thread::scope(|scope| {
        for rank in 0..3 {
            let (device, from, to, name, options) = (&device, &from, &to, &name, &options);
            scope.spawn(move || {
                let wait = syncline_transport::Wait::timeout(PATIENCE);
                let endpoint = shm::join(name, rank, 3, options, &wait).unwrap();
                let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
                check_pe(endpoint, device, (from, to), options, 11);
            });
        }
    });
}

/// Converts on the way, with sources and destinations on `device`.
pub fn converted_refits(device: &Arc<dyn Device>) {
    for (source, target) in
        [(Dtype::F32, Dtype::BF16), (Dtype::BF16, Dtype::F32), (Dtype::F32, Dtype::F8E4M3)]
    {
        let from = model(2, 48, source, r#"[["tp", 3]]"#);
        let to = model(2, 48, target, r#"[["tp", 2]]"#);
        let plain = model(2, 48, source, r#"[["tp", 2]]"#);
        let options = PlanOptions::default().convert(source, target);
        for checksums in [false, true] {
            let group = local::Options { depth: 2, slot_bytes: 512 };
            on_endpoints(local::group(3, &group).unwrap(), |endpoint| {
                let service_options =
                    ServiceOptions { timeout: PATIENCE, checksums, ..Default::default() };
                let mut service = CopyService::new(endpoint, service_options);
                let refit = service.prepare(&from, &to, &options).unwrap();
                let destination = service.destination_on(&refit, device).unwrap();
                let sources = bind_on(device, &refit, &shards(&from, service.rank()));
                service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
                let reading = destination.read().unwrap();
                for (name, bytes) in shards(&plain, service.rank()) {
                    let elements = bytes.len() / source.bytes() as usize;
                    let mut expected = vec![0; elements * target.bytes() as usize];
                    convert_slice(source, target, &bytes, &mut expected).unwrap();
                    let got = reading.view(&name).unwrap().to_vec::<u8>().unwrap();
                    assert!(got == expected, "`{name}`: {source} to {target}");
                }
            });
        }
    }
}

/// Sources in memory of `device`, every shard that is not empty.
pub fn bind_on(
    device: &Arc<dyn Device>,
    refit: &Refit,
    shards: &[(String, Vec<u8>)],
) -> Sources<'static> {
    let mut sources = Sources::new(refit);
    for (name, bytes) in shards.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        sources.bind_view(refit, name, upload(device, bytes, 0)).unwrap();
    }
    sources
}

#[test]
fn elements_are_converted_on_their_way_between_devices() {
    converted_refits(&second_cpu());
}

#[test]
fn blocks_are_quantised_and_restored_between_devices() {
    block_refits(&second_cpu());
}

#[test]
fn direct_placement_is_one_copy_and_needs_no_message() {
    let device = second_cpu();
    let from = model(2, 64, Dtype::F32, r#"[["tp", 2]]"#);
    let to = model(2, 64, Dtype::F32, r#"[["tp", 1]]"#);
    let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
    let moved = on_endpoints(local::group(2, &local::Options::default()).unwrap(), |endpoint| {
        let mut service = CopyService::new(endpoint, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
        let destination = service.destination_on(&refit, &device).unwrap();
        let sources = bind_on(&device, &refit, &shards(&from, service.rank()));
        service.refit(&refit, &sources, Target::Destination(&destination)).unwrap()
    });
    assert!(moved.iter().all(|moved| moved.messages == 0), "{moved:?}");
    assert_eq!(moved[1].placed_bytes, 4 * 64 * 64 * 4 / 2);
}

#[test]
fn a_refit_reads_what_was_submitted_before_it() {
    let device = second_cpu();
    let layout = |rank: u32| {
        let mut builder = Layout::builder();
        let tensor = &model(1, 16, Dtype::F32, r#"[["tp", 1]]"#).tensors()[0].clone();
        let mut shard = tensor.placement().shards()[0].clone();
        shard.rank = rank;
        builder.tensor("w", Dtype::F32, tensor.shape(), vec![shard]).unwrap();
        builder.finish()
    };
    let (from, to) = (layout(0), layout(1));
    let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
    on_endpoints(local::group(2, &local::Options::default()).unwrap(), |endpoint| {
        let mut service = CopyService::new(endpoint, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
        service.add_device(&device).unwrap();
        let view = device.buffer(1024).tensor(Dtype::F32, &[256]).unwrap();
        let mut sources = Sources::new(&refit);
        let mut targets = Targets::new(&refit);
        if service.rank() == 0 {
            let slow = Kernel::cpu("slow", |args| {
                thread::sleep(Duration::from_millis(50));
                args.slice_mut::<f32>(0).map(|xs| xs.fill(3.5))
            });
            let fill = Command::dispatch(&slow, vec![KernelArg::output(view.clone())], vec![]);
            device.lane(LaneKind::Compute).submit(Batch::from(fill)).unwrap();
            sources.bind_view(&refit, "w", view).unwrap();
            service.refit(&refit, &sources, Target::Nothing).unwrap();
        } else {
            targets.bind_view(&refit, "w", view.clone()).unwrap();
            service.refit(&refit, &sources, Target::Memory(&mut targets)).unwrap();
            assert_eq!(view.to_vec::<f32>().unwrap(), vec![3.5; 256]);
        }
    });
}

#[test]
fn failed_work_on_a_source_fails_the_refit_on_every_pe() {
    let device = second_cpu();
    let lane = device.open_lane(LaneKind::Compute, "broken").unwrap();
    let (from, to) =
        (model(1, 64, Dtype::F32, r#"[["tp", 2]]"#), model(1, 64, Dtype::F32, r#"[["tp", 1]]"#));
    let options = ServiceOptions { timeout: PATIENCE, checksums: true, ..Default::default() };
    let error = agreed(on_endpoints(
        local::group(2, &local::Options { depth: 2, slot_bytes: 512 }).unwrap(),
        |endpoint| {
            let mut service = CopyService::new(endpoint, options);
            let refit = service.prepare(&from, &to, &PlanOptions::default())?;
            service.add_device(&device)?;
            let held = shards(&from, service.rank());
            let mut sources = Sources::new(&refit);
            for (name, bytes) in &held {
                let view = upload(&device, bytes, 0);
                if service.rank() == 1 && name == "layers.0.down" {
                    let broken = Kernel::cpu("broken", |_| Err::<(), _>("out of ideas"));
                    let args = vec![KernelArg::output(view.clone())];
                    let batch = Batch::from(Command::dispatch(&broken, args, vec![]));
                    lane.submit(batch).unwrap();
                }
                sources.bind_view(&refit, name, view).unwrap();
            }
            let destination = service.destination(&refit)?;
            service.refit(&refit, &sources, Target::Destination(&destination))
        },
    ));
    assert!(error.starts_with("PE 1: ") && error.contains("out of ideas"), "{error}");
}

#[test]
fn views_that_do_not_fit_are_refused_when_bound() {
    let device = second_cpu();
    let layout = model(1, 16, Dtype::F32, r#"[["tp", 1]]"#);
    on_endpoints(local::group(1, &local::Options::default()).unwrap(), |endpoint| {
        let mut service = CopyService::new(endpoint, ServiceOptions::default());
        let refit = service.prepare(&layout, &layout, &PlanOptions::default()).unwrap();
        let matrix = device.buffer(2048).tensor(Dtype::F32, &[16, 32]).unwrap();
        let mut sources = Sources::new(&refit);
        let half = matrix.view().slice(1, 0..16).unwrap();
        let half = matrix.buffer().view(half).unwrap();
        let strided = sources.bind_view(&refit, "layers.0.up", half).unwrap_err().to_string();
        assert!(strided.contains("one after the other"), "{strided}");
        let size = sources.bind_view(&refit, "layers.0.up", matrix).unwrap_err().to_string();
        assert!(size.contains("2048 bytes given"), "{size}");
    });
}

#[test]
fn views_of_memory_that_is_also_written_are_refused() {
    let device = second_cpu();
    let layout = model(1, 16, Dtype::F32, r#"[["tp", 1]]"#);
    // Where `up` and `down` are bound as sources, and where as targets, in one buffer; and which
    // two are named.
    let up_and_down = Some(
        "tensor `layers.0.down` of the destination layout is bound to memory that tensor `layers.0.up` of the source",
    );
    let both_written = Some("memory that tensor `layers.0.up` of the destination layout");
    for (sources_at, targets_at, cause) in [
        ([0, 1024], [2048, 3072], None),
        ([0, 0], [2048, 3072], None),
        ([0, 1024], [2048, 512], up_and_down),
        ([512, 1536], [2560, 0], up_and_down),
        ([0, 1024], [2048, 2560], both_written),
    ] {
        on_endpoints(local::group(1, &local::Options::default()).unwrap(), |endpoint| {
            let mut service = CopyService::new(endpoint, ServiceOptions::default());
            let refit = service.prepare(&layout, &layout, &PlanOptions::default()).unwrap();
            service.add_device(&device).unwrap();
            let buffer = device.buffer(4096);
            let view = |at: u64| buffer.view(View::bytes_at(at, 1024).unwrap()).unwrap();
            let (mut sources, mut targets) = (Sources::new(&refit), Targets::new(&refit));
            for (at, name) in ["layers.0.up", "layers.0.down"].into_iter().enumerate() {
                sources.bind_view(&refit, name, view(sources_at[at])).unwrap();
                targets.bind_view(&refit, name, view(targets_at[at])).unwrap();
            }
            let refitted = service.refit(&refit, &sources, Target::Memory(&mut targets));
            match cause {
                None => assert!(refitted.is_ok(), "{refitted:?}"),
                Some(cause) => {
                    let error = refitted.unwrap_err().to_string();
                    assert!(error.contains(cause), "{error}");
                }
            }
        });
    }
}

#[test]
fn tensors_in_vulkan_memory_arrive_as_the_naive_copy_says() {
    let Some(device) = driven(&syncline_vulkan::Probe::new()) else { return };
    random_refits("tensors_in_vulkan_memory_arrive_as_the_naive_copy_says", 8, &device);
    converted_refits(&device);
    block_refits(&device);
}

#[test]
fn tensors_in_opencl_memory_arrive_as_the_naive_copy_says() {
    for host_visible in [true, false] {
        let options = OpenClOptions::new().with_host_visible(host_visible);
        let Some(device) = driven(&syncline_opencl::Probe::with_options(options)) else { return };
        random_refits("tensors_in_opencl_memory_arrive_as_the_naive_copy_says", 8, &device);
        converted_refits(&device);
        block_refits(&device);
    }
}

#[test]
fn tensors_go_from_one_kind_of_device_to_another() {
    let mut devices = vec![second_cpu()];
    devices.extend(driven(&syncline_opencl::Probe::new()));
    let from = model(2, 80, Dtype::F32, r#"[["tp", 3]]"#);
    let to = model(2, 80, Dtype::F32, r#"[["tp", 2]]"#);
    for shift in 0..devices.len() {
        let group = local::Options { depth: 2, slot_bytes: 2048 };
        on_endpoints(local::group(3, &group).unwrap(), |endpoint| {
            let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
            let mut service = CopyService::new(endpoint, options);
            let rank = service.rank();
            let held_on = &devices[rank % devices.len()];
            let received_on = &devices[(rank + shift) % devices.len()];
            let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
            service.add_device(held_on).unwrap();
            let destination = service.destination_on(&refit, received_on).unwrap();
            let sources = bind_on(held_on, &refit, &shards(&from, rank));
            service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
            let reading = destination.read().unwrap();
            for (name, bytes) in shards(&to, rank) {
                let got = reading.view(&name).unwrap().to_vec::<u8>().unwrap();
                assert!(got == bytes, "`{name}` on PE {rank}, {shift} devices on");
            }
        });
    }
}
