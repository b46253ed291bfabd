//! Which devices there are, and how they work together.

use syncline::device::{Backend, DeviceSpec};
use syncline::plan::{DeviceIndex, Route};
use syncline::runtime::{ExecutorOptions, Path};

use crate::executor;

#[test]
fn every_backend_has_devices_or_a_reason() {
    let found = syncline::registry().probe();
    assert_eq!(found.iter().map(|one| one.backend).collect::<Vec<_>>(), Backend::ALL);
    for one in found {
        match one.devices {
            Ok(devices) => {
                assert!(!devices.is_empty(), "{}: neither devices nor a reason", one.backend)
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}

/// What was found by trying, for every pair: parts of one OpenCL device copy from each other, a
/// lane reaches memory of the CPU from wherever it is, and the rest goes through the host.
#[test]
fn the_path_of_every_pair_is_what_its_lanes_can_do() {
    let Some(executor) = executor(ExecutorOptions::default()) else { return };
    let devices = crate::specs(&executor);
    for &source in &devices {
        for &target in &devices {
            let expected = match (source.backend, target.backend) {
                _ if source == target => Path::Local,
                (Backend::OpenCl, Backend::OpenCl) | (Backend::Cpu, _) => Path::Pull,
                (_, Backend::Cpu) => Path::Push,
                _ => Path::Staged,
            };
            assert_eq!(executor.path(source, target).unwrap(), expected, "{source} to {target}");
        }
    }
}

#[test]
fn plans_know_the_routes_that_there_are() {
    let Some(executor) = executor(ExecutorOptions::default()) else { return };
    let machine = executor.machine().unwrap();
    let find = |backend| machine.find(&DeviceSpec::new(backend, 0).to_string()).unwrap();
    let [cpu, vulkan, opencl] = [Backend::Cpu, Backend::Vulkan, Backend::OpenCl].map(find);
    assert_eq!(machine.route(cpu, vulkan), Route::Pull);
    assert_eq!(machine.route(vulkan, cpu), Route::Push);
    assert_eq!(machine.route(vulkan, opencl), Route::Through(cpu));
    assert_eq!(machine.route(opencl, vulkan), Route::Through(cpu));
    if let Some(other) = machine.find("opencl:1") {
        assert_eq!(machine.route(opencl, other), Route::Pull);
    }
    // Copies that were tried take some time, whatever the machine.
    assert!(machine.copy_ns(vulkan, opencl, 1 << 20) > machine.copy_ns(vulkan, opencl, 64));
    assert_eq!(cpu, DeviceIndex(0));
}
