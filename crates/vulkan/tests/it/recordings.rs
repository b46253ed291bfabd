use std::sync::Arc;

use syncline_deps::{Dtype, View};
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Buffer, Command, Deadline, KernelArg, LaneKind, Pattern, Recording};
use syncline_testing::{Rng, for_seeds};
use syncline_vulkan::conformance::elementwise;

use crate::support::device;

#[test]
fn a_thousand_dependent_dispatches_run_again_and_again() {
    let Some(device) = device() else { return };
    let kernel = elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;");
    let view = device.buffer(256).tensor(Dtype::F32, &[64]).unwrap();
    view.buffer().write(0, &[0f32; 64]).unwrap();
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
    let recording = Arc::new(Recording::new((0..1_000).map(|_| bump()).collect()).unwrap());
    let lane = device.lane(LaneKind::Compute);
    for _ in 0..5 {
        lane.submit(Command::recording(&recording).into()).unwrap();
    }
    assert_eq!(view.to_vec::<f32>().unwrap(), [5_000.0; 64]);
}

#[test]
fn one_recording_on_two_lanes_dropped_while_it_runs() {
    let Some(device) = device() else { return };
    let kernel = elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;");
    let view = device.buffer(256).tensor(Dtype::F32, &[64]).unwrap();
    view.buffer().write(0, &[0f32; 64]).unwrap();
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
    let recording = Arc::new(Recording::new((0..200).map(|_| bump()).collect()).unwrap());
    for lane in device.lanes() {
        lane.submit(Command::recording(&recording).into()).unwrap();
    }
    drop(recording);
    assert_eq!(view.to_vec::<f32>().unwrap(), [400.0; 64]);
}

/// Barriers are left out between commands that do not conflict: a random program must not notice.
#[test]
fn random_recordings_equal_their_serial_run() {
    let Some(device) = device() else { return };
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
    const BYTES: u64 = 128;
    for_seeds("random_recordings_equal_their_serial_run", 30, |rng| {
        let mut expected = vec![vec![0u8; BYTES as usize]; 4];
        // The last one lies on the host, so that recordings have steps there too.
        let buffers: Vec<Buffer> = (0..4)
            .map(|at| if at == 3 { cpu.buffer(BYTES) } else { device.buffer(BYTES) })
            .collect();
        buffers.iter().for_each(|buffer| buffer.write(0, &[0u8; BYTES as usize]).unwrap());
        let mut commands = Vec::new();
        let mut steps: Vec<Box<dyn Fn(&mut Vec<Vec<u8>>)>> = Vec::new();
        for _ in 0..60 {
            let bytes = rng.range(1..41);
            let place = |rng: &mut Rng| (rng.below(4), rng.range(0..BYTES - bytes + 1));
            let ((source, from), (target, to)) = (place(rng), place(rng));
            let view = |buffer: usize, at| buffers[buffer].view(View::bytes_at(at, bytes).unwrap());
            let (start, end) = (to as usize, (to + bytes) as usize);
            if rng.one_in(3) {
                let byte = rng.below(256) as u8;
                let pattern = Pattern::new(&[byte]).unwrap();
                commands.push(Command::fill(view(target, to).unwrap(), pattern));
                steps.push(Box::new(move |memory| memory[target][start..end].fill(byte)));
            } else {
                let (source_view, target_view) = (view(source, from), view(target, to));
                commands.push(Command::copy(source_view.unwrap(), target_view.unwrap()));
                steps.push(Box::new(move |memory| {
                    let moved = memory[source][from as usize..(from + bytes) as usize].to_vec();
                    memory[target][start..end].copy_from_slice(&moved);
                }));
            }
        }
        let recording = Arc::new(Recording::new(commands).unwrap());
        let mut last = None;
        for _ in 0..3 {
            steps.iter().for_each(|step| step(&mut expected));
            let lane = device.lane(LaneKind::Compute);
            last = Some(lane.submit(Command::recording(&recording).into()).unwrap());
        }
        last.unwrap().wait(Deadline::NEVER).unwrap();
        for (buffer, expected) in buffers.iter().zip(&expected) {
            assert_eq!(buffer.read::<u8>(0, BYTES as usize).unwrap(), *expected);
        }
    });
}
