//! Arguments in memory of the test's own.

use syncline_device::{Kernel, KernelArgs, RawArg, Scalar};
use syncline_kernels::reference::Doubles;
use syncline_tensor::{Access, Arg, BufferId, Dtype, View};
use syncline_testing::Rng;

/// An argument: bytes of its own, and a view that covers some of them.
#[derive(Clone)]
pub struct Held {
    pub bytes: Vec<u8>,
    pub view: View,
    pub access: Access,
}

impl Held {
    /// A tensor of `shape`, laid out at random: padded rows, exchanged dimensions, reversed ones.
    pub fn random_layout(rng: &mut Rng, dtype: Dtype, shape: &[u64], access: Access) -> Self {
        let rank = shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if rng.one_in(3) {
            rng.shuffle(&mut order);
        }
        let padded: Vec<u64> = order.iter().map(|&dim| shape[dim] + rng.range(0..3)).collect();
        let whole = View::contiguous(dtype, &padded).unwrap();
        let mut view = whole;
        for (place, &dim) in order.iter().enumerate() {
            let start = rng.range(0..padded[place] - shape[dim] + 1);
            view = view.slice(place, start..start + shape[dim]).unwrap();
        }
        let mut back = vec![0; rank];
        for (place, &dim) in order.iter().enumerate() {
            back[dim] = place;
        }
        let view = reversed(&view.permute(&back).unwrap(), rng);
        Self { bytes: vec![0xA5; whole.bytes() as usize], view, access }
    }

    /// The places of the elements in the last-dimension-fastest order.
    pub fn places(&self) -> Vec<usize> {
        let shape = self.view.shape();
        (0..self.view.elements())
            .map(|mut count| {
                let mut place = self.view.offset() as i64;
                for dim in (0..shape.len()).rev() {
                    place += (count % shape[dim]) as i64 * self.view.strides()[dim];
                    count /= shape[dim];
                }
                place as usize
            })
            .collect()
    }

    pub fn set(&mut self, values: &[f64]) {
        for (place, &value) in self.places().into_iter().zip(values) {
            match self.view.dtype() {
                Dtype::F32 => self.put(place, (value as f32).to_le_bytes()),
                Dtype::F64 => self.put(place, value.to_le_bytes()),
                Dtype::F16 => self.put(place, half::f16::from_f64(value).to_le_bytes()),
                Dtype::BF16 => self.put(place, half::bf16::from_f64(value).to_le_bytes()),
                Dtype::I64 | Dtype::U64 => self.put(place, (value as i64).to_le_bytes()),
                Dtype::I32 | Dtype::U32 => self.put(place, (value as i64 as i32).to_le_bytes()),
                Dtype::I16 | Dtype::U16 => self.put(place, (value as i64 as i16).to_le_bytes()),
                Dtype::I8 | Dtype::U8 => self.put(place, (value as i64 as i8).to_le_bytes()),
                other => panic!("{other} is not used here"),
            }
        }
    }

    fn put<const N: usize>(&mut self, place: usize, bytes: [u8; N]) {
        self.bytes[place..place + N].copy_from_slice(&bytes);
    }

    pub fn get(&self) -> Doubles {
        let at = |place: usize| {
            let bytes = &self.bytes[place..];
            match self.view.dtype() {
                Dtype::F32 => f32::from_le_bytes(bytes[..4].try_into().unwrap()).into(),
                Dtype::F64 => f64::from_le_bytes(bytes[..8].try_into().unwrap()),
                Dtype::F16 => half::f16::from_le_bytes(bytes[..2].try_into().unwrap()).to_f64(),
                Dtype::BF16 => half::bf16::from_le_bytes(bytes[..2].try_into().unwrap()).to_f64(),
                Dtype::I64 => i64::from_le_bytes(bytes[..8].try_into().unwrap()) as f64,
                Dtype::U64 => u64::from_le_bytes(bytes[..8].try_into().unwrap()) as f64,
                Dtype::I32 => i32::from_le_bytes(bytes[..4].try_into().unwrap()).into(),
                Dtype::U32 => u32::from_le_bytes(bytes[..4].try_into().unwrap()).into(),
                Dtype::I16 => i16::from_le_bytes(bytes[..2].try_into().unwrap()).into(),
                Dtype::U16 => u16::from_le_bytes(bytes[..2].try_into().unwrap()).into(),
                Dtype::I8 => f64::from(bytes[0] as i8),
                Dtype::U8 => bytes[0].into(),
                other => panic!("{other} is not used here"),
            }
        };
        let shape: Vec<usize> = self.view.shape().iter().map(|&size| size as usize).collect();
        Doubles::new(&shape, self.places().into_iter().map(at).collect())
    }

    /// The argument, in a buffer of this number.
    pub fn arg(&self, buffer: usize) -> Arg {
        Arg::new(self.access, BufferId(buffer as u64), self.view)
    }
}

/// `view` with some of its dimensions backwards.
fn reversed(view: &View, rng: &mut Rng) -> View {
    let (mut offset, mut strides) = (view.offset() as i64, view.strides().to_vec());
    for (stride, &size) in strides.iter_mut().zip(view.shape()) {
        if size > 0 && rng.one_in(6) {
            offset += (size as i64 - 1) * *stride;
            *stride = -*stride;
        }
    }
    View::strided(view.dtype(), offset as u64, view.shape(), &strides).unwrap()
}

/// `value` as an element of `dtype` holds it: floats to the nearest, integers by their low bits.
pub fn rounded(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(value as f32),
        Dtype::F16 => half::f16::from_f64(value).to_f64(),
        Dtype::BF16 => half::bf16::from_f64(value).to_f64(),
        Dtype::F64 => value,
        Dtype::I64 => value as i64 as f64,
        Dtype::U64 => value as i64 as u64 as f64,
        Dtype::I32 => f64::from(value as i64 as i32),
        Dtype::U32 => f64::from(value as i64 as u32),
        Dtype::I16 => f64::from(value as i64 as i16),
        Dtype::U16 => f64::from(value as i64 as u16),
        Dtype::I8 => f64::from(value as i64 as i8),
        Dtype::U8 => f64::from(value as i64 as u8),
        other => panic!("{other} is not used here"),
    }
}

/// The integer of `dtype` that a float becomes: its fraction is cut off, and a value out of range
/// is the nearest.
pub fn saturated(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::I64 => value as i64 as f64,
        Dtype::U64 => value as u64 as f64,
        Dtype::I32 => f64::from(value as i32),
        Dtype::U32 => f64::from(value as u32),
        Dtype::I16 => f64::from(value as i16),
        Dtype::U16 => f64::from(value as u16),
        Dtype::I8 => f64::from(value as i8),
        Dtype::U8 => f64::from(value as u8),
        other => panic!("{other} is no integer"),
    }
}

/// Runs the kernel's body on the arguments.
pub fn run(kernel: &Kernel, held: &mut [Held], scalars: &[Scalar]) -> Result<(), String> {
    let raw: Vec<RawArg> = held
        .iter_mut()
        .map(|held| RawArg {
            base: held.bytes.as_mut_ptr(),
            view: held.view,
            writes: held.access.writes(),
        })
        .collect();
    // SAFETY: every argument has bytes of its own, which no other thread touches while the kernel
    // runs.
    let mut args = unsafe { KernelArgs::from_raw(&raw, scalars) };
    kernel.call(&mut args).map_err(|error| error.to_string())
}
