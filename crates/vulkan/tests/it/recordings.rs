use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Buffer, Command, Deadline, Device, KernelArg, LaneKind, Pattern, Recording, Scalar,
};
use syncline_tensor::{Dtype, View};
use syncline_testing::{Rng, for_seeds};
use syncline_vulkan::conformance::elementwise;

use crate::support::{device, validated};

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

/// Launches share blocks of parameters and sets of bindings where they are the same, and no launch
/// may get those of another.
#[test]
fn random_dispatches_equal_their_serial_run() {
    let Some(device) = device() else { return };
    random_dispatches(&device, 30);
}

fn random_dispatches(device: &Arc<dyn Device>, seeds: u64) {
    let kernels = [
        elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;"),
        elementwise("scale", 1, "arg_0[at(0u, i)] *= scalar(0u);"),
        elementwise("add", 3, "arg_2[at(2u, i)] = arg_0[at(0u, i)] + arg_1[at(1u, i)];"),
    ];
    const ITEMS: u64 = 16;
    const PARTS: u64 = 3;
    for_seeds("random_dispatches_equal_their_serial_run", seeds, |rng| {
        let buffers = [(); 2].map(|()| device.buffer(4 * ITEMS * PARTS));
        let mut expected = [(); 2].map(|()| vec![1f32; (ITEMS * PARTS) as usize]);
        buffers.iter().zip(&expected).for_each(|(of, values)| of.write(0, values).unwrap());
        let mut commands = Vec::new();
        for _ in 0..60 {
            // One of a few places, so that many launches are alike.
            let places = [(); 3].map(|()| (rng.below(2), rng.below(PARTS as usize)));
            let arg = |(of, part): (usize, usize)| {
                let view = View::contiguous(Dtype::F32, &[ITEMS * PARTS]).unwrap();
                let start = part as u64 * ITEMS;
                buffers[of].view(view.slice(0, start..start + ITEMS).unwrap()).unwrap()
            };
            let at = |(_, part): (usize, usize), item| part * ITEMS as usize + item;
            let [left, right, target] = places;
            let factor = *rng.pick(&[-1.0f32, 0.5]);
            let number = match (left == target || right == target, rng.below(3)) {
                (true, 2) => 0,
                (_, number) => number,
            };
            let inout = vec![KernelArg::inout(arg(target))];
            let (args, scalars) = match number {
                0 => (inout, vec![]),
                1 => (inout, vec![Scalar::F32(factor)]),
                _ => {
                    let inputs = [left, right].map(|of| KernelArg::input(arg(of)));
                    (inputs.into_iter().chain(inout).collect(), vec![])
                }
            };
            commands.push(Command::dispatch(&kernels[number], args, scalars));
            for item in 0..ITEMS as usize {
                let sum = expected[left.0][at(left, item)] + expected[right.0][at(right, item)];
                let value = &mut expected[target.0][at(target, item)];
                *value = match number {
                    0 => *value + 1.0,
                    1 => *value * factor,
                    _ => sum,
                };
            }
        }
        let recording = Arc::new(Recording::new(commands).unwrap());
        let lane = device.lane(LaneKind::Compute);
        lane.submit(Command::recording(&recording).into()).unwrap();
        for (buffer, values) in buffers.iter().zip(&expected) {
            assert_eq!(buffer.read::<f32>(0, values.len()).unwrap(), *values);
        }
    });
}

/// Barriers are left out between commands that do not conflict: a random program must not notice.
#[test]
fn random_recordings_equal_their_serial_run() {
    let Some(device) = device() else { return };
    random_recordings(&device, 30);
}

fn random_recordings(device: &Arc<dyn Device>, seeds: u64) {
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
    const BYTES: u64 = 128;
    for_seeds("random_recordings_equal_their_serial_run", seeds, |rng| {
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

/// A driver on a CPU may forgive a missing barrier; the layers, which follow every byte, do not.
#[test]
fn random_recordings_have_every_barrier() {
    validated(|device| {
        random_dispatches(device, 5);
        random_recordings(device, 5);
    });
}
