//! Element types of safetensors files.

use syncline_layout::Dims;
use syncline_tensor::Dtype;

/// An element type as files name it.
///
/// Types that plans know are moved as such. Others, smaller than a byte or of a rare encoding, are
/// moved as bytes along the last dimension and keep their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// A type that plans know.
    Known(Dtype),
    /// Any other: its name in files, and its bits.
    Opaque(&'static str, u64),
}

const OPAQUE: [ElementType; 5] = [
    ElementType::Opaque("F4", 4),
    ElementType::Opaque("F6_E2M3", 6),
    ElementType::Opaque("F6_E3M2", 6),
    ElementType::Opaque("F8_E4M3FNUZ", 8),
    ElementType::Opaque("F8_E5M2FNUZ", 8),
];

impl ElementType {
    /// The type with this name in files.
    pub fn parse(name: &str) -> Option<Self> {
        let plain = Dtype::ALL.into_iter().map(Self::Known);
        plain.chain(OPAQUE).find(|element| element.name() == name)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opaque(name, _) => name,
            Self::Known(dtype) => match dtype {
                Dtype::Bool => "BOOL",
                Dtype::U8 => "U8",
                Dtype::I8 => "I8",
                Dtype::F8E4M3 => "F8_E4M3",
                Dtype::F8E5M2 => "F8_E5M2",
                Dtype::F8E8M0 => "F8_E8M0",
                Dtype::U16 => "U16",
                Dtype::I16 => "I16",
                Dtype::F16 => "F16",
                Dtype::BF16 => "BF16",
                Dtype::U32 => "U32",
                Dtype::I32 => "I32",
                Dtype::F32 => "F32",
                Dtype::U64 => "U64",
                Dtype::I64 => "I64",
                Dtype::F64 => "F64",
                Dtype::C64 => "C64",
            },
        }
    }

    /// The type that plans move it as.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Known(dtype) => dtype,
            Self::Opaque(..) => Dtype::U8,
        }
    }

    /// `shape` in units of [`dtype`](Self::dtype); `None` where elements end within a byte.
    pub fn stored_shape(self, shape: &Dims) -> Option<Dims> {
        self.scale_last(shape, |last, bits| {
            (last * bits).is_multiple_of(8).then(|| last * bits / 8)
        })
    }

    /// The shape in elements of bytes that are stored with `shape`; `None` where elements are cut.
    pub fn element_shape(self, shape: &Dims) -> Option<Dims> {
        self.scale_last(shape, |last, bits| {
            (last * 8).is_multiple_of(bits).then(|| last * 8 / bits)
        })
    }

    fn scale_last(self, shape: &Dims, scale: impl Fn(u64, u64) -> Option<u64>) -> Option<Dims> {
        let Self::Opaque(_, bits) = self else { return Some(*shape) };
        let mut scaled = *shape;
        let last = scaled.last_mut()?;
        // Sizes come from files: too large a one is no shape either.
        *last = if *last < 1 << 59 { scale(*last, bits)? } else { return None };
        Some(scaled)
    }
}
