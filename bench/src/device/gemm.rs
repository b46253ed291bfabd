//! The built-in `gemm` on a lane of the CPU, beside the GEMM crate called directly.

use std::time::Duration;

use syncline_device::cpu::CpuDevice;
use syncline_device::{Command, Deadline, Device, KernelArg, Scalar};
use syncline_kernels::Library;
use syncline_tensor::Dtype;

use crate::Effort;
use crate::measure::{figure, timed};
use crate::row::Row;

/// Square matrices of `f32`, in turns: once submitted to a lane and waited for, once multiplied on
/// this thread.
pub(super) fn run(effort: Effort) -> Vec<Row> {
    let (order, times) = match effort {
        Effort::Smoke => (33, 1),
        Effort::Quick => (1024, 7),
        Effort::Full => (1024, 15),
    };
    let device = CpuDevice::open_default().expect("a CPU");
    let device: &dyn Device = &*device;
    let count = (order * order) as usize;
    let values: Vec<f32> = (0..count).map(|at| (at % 17) as f32 / 16.0).collect();
    let matrices = [(); 3].map(|()| {
        let buffer = device.buffer(4 * order * order);
        buffer.write(0, &values).expect("memory");
        buffer.tensor(Dtype::F32, &[order, order]).expect("a matrix")
    });
    let library = Library::builtin();
    let gemm = &library.get("gemm").expect("built in").kernel;
    let [a, b, c] = &matrices;
    let scalars = [Scalar::F32(1.0), Scalar::F32(0.0), Scalar::Bool(false), Scalar::Bool(false)];
    let ours = || {
        let args = vec![
            KernelArg::input(a.clone()),
            KernelArg::input(b.clone()),
            KernelArg::inout(c.clone()),
        ];
        let command = Command::dispatch(gemm, args, scalars.to_vec());
        let done = device.lanes()[0].submit(command.into()).expect("a lane that works");
        done.wait(Deadline::after(Duration::from_secs(60))).expect("a product");
    };
    let mut product = vec![0f32; count];
    let mut theirs = || {
        let side = order as usize;
        let stride = order as isize;
        // SAFETY: the three slices have `order * order` elements, and rows follow each other.
        unsafe {
            matrixmultiply::sgemm(
                side,
                side,
                side,
                1.0,
                values.as_ptr(),
                stride,
                1,
                values.as_ptr(),
                stride,
                1,
                0.0,
                product.as_mut_ptr(),
                stride,
                1,
            );
        }
    };
    ours();
    theirs();
    let nanoseconds = |took: Duration| took.as_nanos() as f64;
    let (mine, peers): (Vec<f64>, Vec<f64>) =
        (0..times).map(|_| (nanoseconds(timed(ours)), nanoseconds(timed(&mut theirs)))).unzip();
    assert_eq!(c.to_vec::<f32>().expect("a product"), product, "both computed the same");
    let row = Row::new("device", "gemm-f32-cpu", "ns_per_product", order, figure(mine));
    vec![row.beside("matrixmultiply", figure(peers).median)]
}
