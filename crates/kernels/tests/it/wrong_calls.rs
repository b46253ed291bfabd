//! Calls that are wrong in some way, or in none: every kernel on every backend refuses them, or
//! does what the plain reference says. All arguments lie in few buffers, so that they alias, and
//! what lies beside them shows damage.

use std::sync::Arc;
use std::time::Duration;

use syncline_device::cpu::CpuDevice;
use syncline_device::{Buffer, Command, Deadline, Device, DeviceError, KernelArg, Scalar};
use syncline_kernels::{Entry, Library};
use syncline_tensor::{Access, Dtype, MAX_DIMS, View};
use syncline_testing::{Rng, for_seeds};

use crate::cases::{is_float, shapes, values, wanted};
use crate::devices::{opencl, vulkan};
use crate::support::Held;

/// Bytes of each buffer: room for the arguments of most calls, and for ASan to see what goes
/// beyond.
const BYTES: u64 = 24 << 10;

/// A size that no memory holds: harmless beside a size of zero, or where nothing advances.
const HUGE: u64 = 1 << 40;

/// Kernels whose errors add up where many elements are the same number: the bound is for errors
/// that do not.
const SUMS: [&str; 7] = ["reduce_sum", "softmax", "layernorm", "rmsnorm", "gemm", "syrk", "trsm"];

/// A call, and the buffer of each argument.
struct Call {
    held: Vec<Held>,
    places: Vec<usize>,
    scalars: Vec<Scalar>,
}

fn access(rng: &mut Rng, reads: bool, writes: bool) -> Access {
    let any = [
        Access::Input,
        Access::Output,
        Access::InOut,
        Access::OutputExisting,
        Access::NoDep,
        Access::Commutative,
    ];
    match (reads, writes) {
        _ if rng.one_in(12) => *rng.pick(&any),
        (true, true) => Access::InOut,
        (false, _) => *rng.pick(&[Access::OutputExisting, Access::InOut]),
        _ => Access::Input,
    }
}

/// A shape near `shape`.
fn bent(mut shape: Vec<u64>, rng: &mut Rng) -> Vec<u64> {
    let dim = rng.below(shape.len().max(1));
    match rng.range(0..9) {
        0 if !shape.is_empty() => shape[dim] = 0,
        1 if !shape.is_empty() => shape[dim] += rng.range(1..70),
        2 if !shape.is_empty() => shape[dim] /= 2,
        3 => shape.reverse(),
        4 if shape.len() < MAX_DIMS => shape.insert(dim, rng.range(0..4)),
        5 if !shape.is_empty() => _ = shape.remove(dim),
        6 if !shape.is_empty() => shape[dim] = 1,
        7 => shape = vec![rng.range(0..4_096), rng.range(0..3)],
        // Empty, and beyond all counting.
        _ => {
            shape = vec![HUGE; 3];
            shape[rng.below(3)] = 0;
        }
    }
    shape
}

/// A view of `shape` somewhere in a buffer.
fn view(dtype: Dtype, shape: &[u64], rng: &mut Rng) -> Option<View> {
    if shape.contains(&0) {
        // At any place, also outside.
        let strides: Vec<i64> = shape.iter().map(|_| rng.range(0..64) as i64 - 32).collect();
        let offset = *rng.pick(&[0, 1, 4, BYTES, BYTES + 64, 1 << 50]);
        return View::strided(dtype, offset, shape, &strides).ok();
    }
    let whole = View::contiguous(dtype, shape).ok()?;
    let mut strides = whole.strides().to_vec();
    if rng.one_in(8) {
        // Windows that overlap, rows that are one.
        let dim = rng.below(strides.len().max(1));
        if let Some(stride) = strides.get_mut(dim) {
            *stride = *rng.pick(&[0, 1, dtype.bytes() as i64, 2 * dtype.bytes() as i64]);
        }
    }
    let step = if rng.one_in(12) { 1 } else { dtype.bytes() };
    let same = rng.one_in(4);
    let offset = if same { 0 } else { rng.range(0..BYTES / 2) / step * step };
    let view = View::strided(dtype, offset, shape, &strides).ok()?;
    if view.span().is_none_or(|(_, end)| end <= BYTES) {
        return Some(view);
    }
    let view = View::strided(dtype, 0, shape, &strides).ok()?;
    view.span().is_none_or(|(_, end)| end <= BYTES).then_some(view)
}

impl Call {
    /// A call of `entry` with up to three things wrong.
    fn random(entry: &Entry, rng: &mut Rng, buffers: &[Vec<u8>]) -> Option<Self> {
        let signature = &entry.signature;
        // Drivers take a while to compile each.
        let of = signature.parameters[0].dtypes;
        let common = if rng.one_in(4) { *rng.pick(of) } else { of[0] };
        let mut scalars: Vec<Scalar> = signature
            .scalars
            .iter()
            .map(|scalar| match scalar.default {
                Scalar::Bool(_) => Scalar::Bool(rng.one_in(2)),
                _ if scalar.name == "epsilon" => scalar.default,
                _ if is_integer(common) => Scalar::I64(rng.range(0..5) as i64),
                _ => Scalar::F32(rng.range(0..9) as f32 / 4.0 - 1.0),
            })
            .collect();
        let mut shapes = shapes(&signature.name, rng, &scalars);
        let mut dtypes: Vec<Dtype> = signature
            .parameters
            .iter()
            .map(|one| if one.dtypes.contains(&common) { common } else { *rng.pick(one.dtypes) })
            .collect();
        let mut accesses: Vec<Access> =
            signature.parameters.iter().map(|one| access(rng, one.reads, one.writes)).collect();
        for _ in 0..rng.range(0..3) {
            let at = rng.below(shapes.len());
            match rng.range(0..8) {
                0 => scalars.push(Scalar::U64(u64::MAX)),
                1 => _ = scalars.pop(),
                2 => dtypes[at] = *rng.pick(&Dtype::ALL),
                3 if shapes.len() > 1 => {
                    shapes.remove(at);
                    dtypes.remove(at);
                    accesses.remove(at);
                }
                4 => {
                    shapes.push(shapes[at].clone());
                    dtypes.push(dtypes[at]);
                    accesses.push(accesses[at]);
                }
                5 if rng.one_in(2) => {
                    let same = bent(shapes[at].clone(), rng);
                    shapes.iter_mut().for_each(|shape| shape.clone_from(&same));
                }
                _ => shapes[at] = bent(shapes[at].clone(), rng),
            }
        }
        let one_buffer = rng.one_in(3);
        let mut call = Self { held: Vec::new(), places: Vec::new(), scalars };
        for (position, shape) in shapes.iter().enumerate() {
            let mut view = view(dtypes[position], shape, rng)?;
            if let Some(other) = call.held.iter().find(|held| held.view.shape() == view.shape())
                && other.view.dtype() == view.dtype()
                && rng.one_in(4)
            {
                view = other.view;
            }
            let place = if one_buffer { 0 } else { position % buffers.len() };
            call.places.push(place);
            let access = accesses[position];
            call.held.push(Held { bytes: buffers[place].clone(), view, access });
        }
        // Numbers that make sense, each argument over the ones before it where they overlap.
        let mut bytes = buffers.to_vec();
        let rows = shapes[0].first().copied().unwrap_or(0).clamp(1, HUGE);
        for position in 0..call.held.len() {
            let (one, place) = (&mut call.held[position], call.places[position]);
            let takes_numbers = is_float(one.view.dtype()) || is_integer(one.view.dtype());
            if one.view.is_empty() || !takes_numbers {
                continue;
            }
            let square = one.view.rank() == 2 && one.view.shape()[0] == one.view.shape()[1];
            let name = if square { signature.name.as_str() } else { "" };
            let name = if signature.name == "embedding" { "embedding" } else { name };
            one.bytes.clone_from(&bytes[place]);
            let numbers = values(name, position, one, rows, rng);
            one.set(&numbers);
            bytes[place].clone_from(&one.bytes);
        }
        for (one, &place) in call.held.iter_mut().zip(&call.places) {
            one.bytes.clone_from(&bytes[place]);
        }
        Some(call)
    }

    /// The arguments in `buffers`, whose contents become what the call begins with.
    fn args(&self, buffers: &[Buffer]) -> Result<Vec<KernelArg>, DeviceError> {
        let mut args = Vec::new();
        for (one, &place) in self.held.iter().zip(&self.places) {
            buffers[place].write(0, &one.bytes)?;
            args.push(KernelArg::new(one.access, buffers[place].view(one.view)?));
        }
        Ok(args)
    }

    /// Whether the reference can say what comes out: all numbers are such that it computes with
    /// them as kernels do.
    fn is_comparable(&self, entry: &Entry) -> bool {
        let name = entry.signature.name.as_str();
        if self.held.last().is_none_or(|target| target.view.is_empty()) {
            return false;
        }
        let fits = |held: &Held| {
            let limit = if is_float(held.view.dtype()) { 1e4 } else { 1e8 };
            held.view.elements() < 1 << 16
                && held.get().values.iter().all(|x| x.abs() < limit)
                && !(SUMS.contains(&name) && held.view.shares_bytes())
        };
        let (scalars, [first, ..]) = (&self.scalars, &self.held[..]) else { return false };
        let is_whole = |scalar: &Scalar| scalar.as_i64().is_some();
        scalars.iter().all(|scalar| scalar.as_f64().abs() < 100.0)
            && (is_float(first.view.dtype()) || scalars.iter().all(is_whole))
            && self.held.iter().all(fits)
            && match name {
                "embedding" => {
                    let rows = first.view.shape()[0] as f64;
                    self.held[1].get().values.iter().all(|id| (0.0..rows).contains(id))
                }
                "potrf" | "trsm" => is_diagonal(first),
                _ => true,
            }
    }
}

fn is_integer(dtype: Dtype) -> bool {
    use Dtype::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}

/// Whether the matrix is symmetric, with a diagonal that is larger than the rest.
fn is_diagonal(held: &Held) -> bool {
    let (matrix, order) = (held.get(), held.view.shape()[0] as usize);
    let at = |row: usize, column: usize| matrix.values[row * order + column];
    (0..order).all(|row| {
        let rest: f64 = (0..order).filter(|&column| column != row).map(|c| at(row, c).abs()).sum();
        at(row, row) > rest && (0..row).all(|column| at(row, column) == at(column, row))
    })
}

/// What came of the calls of one kernel.
#[derive(Debug, Default)]
struct Tally {
    ran: u32,
    compared: u32,
    refused: u32,
}

fn check(device: &Arc<dyn Device>, entry: &Entry, rng: &mut Rng, tally: &mut Tally) {
    let name = entry.signature.name.as_str();
    let zeroes = vec![vec![0u8; BYTES as usize]; 4];
    let Some(call) = Call::random(entry, rng, &zeroes) else { return };
    let buffers: Vec<Buffer> = zeroes.iter().map(|_| device.buffer(BYTES)).collect();
    let args = match call.args(&buffers) {
        Ok(args) => args,
        Err(DeviceError::OutOfBounds { .. }) => return,
        Err(error) => panic!("{name} on {}: {error}", device.spec()),
    };
    let command = Command::dispatch(&entry.kernel, args, call.scalars.clone());
    let lane = &device.lanes()[0];
    let done = lane.submit(command.into());
    let is_refused = done.is_err();
    let done = done.and_then(|point| point.wait(Deadline::after(Duration::from_secs(120))));
    if let Err(error) = &done {
        assert!(!matches!(error, DeviceError::DeadlinePassed { .. }), "{name} hangs");
        let panicked = matches!(error.root_cause(), DeviceError::KernelPanicked { .. });
        assert!(!panicked, "{name} on {}: {error}", device.spec());
        lane.recover();
    }
    let shown = || {
        let args = call.held.iter().zip(&call.places);
        let args: Vec<_> = args.map(|(held, place)| (place, held.access, held.view)).collect();
        format!("{name} on {} {args:?} {:?}", device.spec(), call.scalars)
    };
    let fits_count = call.held.len() == entry.signature.parameters.len();
    assert!(fits_count || is_refused, "{}", shown());
    // What a failed or refused call may have written: its target, if it began.
    let target = call.held.last().filter(|_| !is_refused).zip(call.places.last());
    let mut after = call.held.last().cloned();
    for (place, buffer) in buffers.iter().enumerate() {
        let Some(at) = call.places.iter().position(|of| *of == place) else { continue };
        let bytes = buffer.read::<u8>(0, BYTES as usize);
        // A failure makes the contents of what it writes unknown.
        let Ok(bytes) = bytes else { continue };
        let mut is_inside = vec![false; bytes.len()];
        if let Some((target, of)) = target
            && *of == place
        {
            for element in target.places() {
                is_inside[element..element + target.view.dtype().bytes() as usize].fill(true);
            }
            after.as_mut().unwrap().bytes.clone_from(&bytes);
        }
        for (at, (&was, &is)) in call.held[at].bytes.iter().zip(&bytes).enumerate() {
            assert!(was == is || is_inside[at], "byte {at} of buffer {place}: {}", shown());
        }
    }
    match done {
        Err(_) => tally.refused += 1,
        Ok(()) => {
            tally.ran += 1;
            if call.is_comparable(entry) {
                tally.compared += 1;
                let (wanted, bound) = wanted(entry, &call.held, &call.scalars);
                let got = after.unwrap().get().values;
                for (at, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                    let is_right = (got - wanted).abs() <= bound || got == wanted;
                    assert!(is_right, "element {at} is {got}, not {wanted}: {}", shown());
                }
            }
        }
    }
}

fn all(test: &str, device: Option<Arc<dyn Device>>, calls: u32) {
    let Some(device) = device else { return };
    for_seeds(test, 1, |rng| {
        for entry in Library::builtin().iter() {
            let mut tally = Tally::default();
            (0..calls).for_each(|_| check(&device, entry, rng, &mut tally));
            println!("{}: {tally:?}", entry.signature.name);
            assert!(tally.refused > 0 && tally.compared > 0, "{}: {tally:?}", entry.signature.name);
        }
    });
}

#[test]
fn wrong_calls_on_the_cpu() {
    all("wrong_calls_on_the_cpu", Some(CpuDevice::open_default().unwrap()), 300);
}

#[test]
fn wrong_calls_on_vulkan() {
    all("wrong_calls_on_vulkan", vulkan(), 40);
}

#[test]
fn wrong_calls_on_opencl() {
    all("wrong_calls_on_opencl", opencl(), 40);
}
