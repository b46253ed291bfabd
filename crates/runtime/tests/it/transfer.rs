use syncline_copy::CopyError;
use syncline_device::{DeviceError, DeviceSpec};
use syncline_runtime::{ExecutorError, ExecutorOptions};
use syncline_tensor::{Dtype, View};
use syncline_testing::{Rng, for_seeds};

use crate::{in_time, two_devices};

/// A random view of at most `bytes` bytes with the given shape, no two elements of which share
/// bytes.
fn random_view(rng: &mut Rng, dtype: Dtype, shape: &[u64], bytes: u64) -> Option<View> {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    rng.shuffle(&mut order);
    let mut strides = vec![0i64; shape.len()];
    let (mut extent, mut offset) = (dtype.bytes(), 0u64);
    for &dim in &order {
        let stride = extent + dtype.bytes() * rng.range(0..3);
        extent = stride * shape[dim].max(1);
        strides[dim] = stride as i64;
        if rng.one_in(4) {
            strides[dim] = -strides[dim];
            offset += stride * shape[dim].saturating_sub(1);
        }
    }
    offset += dtype.bytes() * rng.range(0..4);
    let view = View::strided(dtype, offset, shape, &strides).unwrap();
    view.span().is_none_or(|(_, end)| end <= bytes).then_some(view)
}

/// The places of the elements of `view`, in its order.
fn places(view: &View) -> Vec<usize> {
    (0..view.elements())
        .map(|number| {
            let (mut rest, mut place) = (number, view.offset() as i64);
            for (&size, &stride) in view.shape().iter().zip(view.strides()).rev() {
                place += (rest % size) as i64 * stride;
                rest /= size;
            }
            place as usize
        })
        .collect()
}

fn random_transfers(name: &str, options: ExecutorOptions) {
    const BYTES: u64 = 8192;
    let (executor, first, second) = two_devices(options);
    let devices = [first, second];
    for_seeds(name, 150, |rng| {
        let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64]);
        let shape: Vec<u64> = (0..rng.below(5)).map(|_| rng.range(0..6)).collect();
        let mut view = || random_view(rng, dtype, &shape, BYTES);
        let (Some(source_view), Some(target_view)) = (view(), view()) else { return };
        let mut buffer = |device: DeviceSpec| {
            let buffer = executor.context(device).unwrap().device().buffer(BYTES);
            let bytes: Vec<u8> = (0..BYTES).map(|_| rng.next_u64() as u8).collect();
            buffer.write(0, &bytes).unwrap();
            (buffer, bytes)
        };
        let (source, source_bytes) = buffer(devices[0]);
        let (target, mut expected) = buffer(devices[1]);
        let size = dtype.bytes() as usize;
        for (from, to) in places(&source_view).into_iter().zip(places(&target_view)) {
            expected[to..to + size].copy_from_slice(&source_bytes[from..from + size]);
        }
        let done = executor
            .execute_transfer(
                &source.view(source_view).unwrap(),
                &target.view(target_view).unwrap(),
            )
            .unwrap();
        done.wait(in_time()).unwrap();
        assert_eq!(target.read::<u8>(0, BYTES as usize).unwrap(), expected);
        assert_eq!(source.read::<u8>(0, BYTES as usize).unwrap(), source_bytes);
    });
}

#[test]
fn direct_transfers_move_every_element() {
    random_transfers("direct_transfers_move_every_element", ExecutorOptions::default());
}

#[test]
fn staged_transfers_move_every_element() {
    for chunk_bytes in [1, 64, 1000] {
        let options = ExecutorOptions::default().staged(chunk_bytes);
        random_transfers("staged_transfers_move_every_element", options);
    }
}

/// Both directions at once, from two threads, many times: legs on the same two lanes must not wait
/// crosswise.
#[test]
fn opposite_staged_transfers_do_not_wait_for_each_other() {
    let (executor, first, second) = two_devices(ExecutorOptions::default().staged(256));
    let buffer = |device| executor.context(device).unwrap().device().buffer(4096);
    let pairs = [(buffer(first), buffer(second)), (buffer(second), buffer(first))];
    std::thread::scope(|scope| {
        for (source, target) in &pairs {
            let executor = &executor;
            scope.spawn(move || {
                for round in 0..100u32 {
                    source.write(0, &[round; 1024]).unwrap();
                    let done = executor.execute_transfer(&source.all(), &target.all()).unwrap();
                    done.wait(in_time()).unwrap();
                    assert_eq!(target.read::<u32>(0, 1024).unwrap(), [round; 1024]);
                }
            });
        }
    });
}

#[test]
fn transfers_that_cannot_be_are_refused_before_anything_moves() {
    for options in [ExecutorOptions::default(), ExecutorOptions::default().staged(16)] {
        let (executor, first, second) = two_devices(options);
        let buffer = |device| executor.context(device).unwrap().device().buffer(64);
        let (source, target) = (buffer(first), buffer(second));
        target.write(0, &[7u8; 64]).unwrap();
        let of = |buffer: &syncline_device::Buffer, dtype, shape: &[u64]| {
            buffer.tensor(dtype, shape).unwrap()
        };
        let shapes = executor
            .execute_transfer(&of(&source, Dtype::F32, &[4]), &of(&target, Dtype::F32, &[2, 2]));
        assert!(matches!(
            shapes,
            Err(ExecutorError::Device(DeviceError::Copy(CopyError::ShapeMismatch { .. })))
        ));
        let sizes = executor
            .execute_transfer(&of(&source, Dtype::F32, &[4]), &of(&target, Dtype::U8, &[4]));
        assert!(matches!(
            sizes,
            Err(ExecutorError::Device(DeviceError::Copy(CopyError::ElementSize { .. })))
        ));
        assert_eq!(target.read::<u8>(0, 64).unwrap(), [7; 64]);
    }
}

/// A transfer reads after the kernel before it and is read by the kernel after it, without a wait
/// in sight.
#[test]
fn transfers_and_kernels_keep_their_order() {
    for options in [ExecutorOptions::default(), ExecutorOptions::default().staged(64)] {
        let (executor, first, second) = two_devices(options);
        let add_one = crate::executor::add_one();
        let view = |device| {
            let buffer = executor.context(device).unwrap().device().buffer(400);
            buffer.write(0, &[0f32; 100]).unwrap();
            buffer.tensor(Dtype::F32, &[100]).unwrap()
        };
        let (here, there) = (view(first), view(second));
        let run = |device, view: &syncline_device::BufferView| {
            let args = vec![syncline_device::KernelArg::inout(view.clone())];
            executor.execute_kernel(device, &add_one, args, vec![]).unwrap();
        };
        for _ in 0..50 {
            run(first, &here);
            executor.execute_transfer(&here, &there).unwrap();
            run(second, &there);
            executor.execute_transfer(&there, &here).unwrap();
        }
        executor.synchronize_all(in_time()).unwrap();
        assert_eq!(here.to_vec::<f32>().unwrap(), [100.0; 100]);
    }
}
