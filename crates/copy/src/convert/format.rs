//! The formats: how each widens to the bits of an `f32`, and how these are rounded to it.
//!
//! Values travel as `u32` bit patterns and choices as selects, never as branches, so that a loop
//! over any pair of formats vectorises.

/// One floating-point format.
pub(super) trait FloatFormat {
    /// Bytes of one element.
    const BYTES: usize;
    /// Reads the element at the start of `bytes`.
    fn load(bytes: &[u8]) -> u32;
    /// Writes the element to the start of `bytes`.
    fn store(raw: u32, bytes: &mut [u8]);
    /// The `f32` bits of the same value.
    fn widen(raw: u32) -> u32;
    /// The nearest element to the `f32` with these bits.
    fn narrow(bits: u32) -> u32;
}

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
const QUIET: u32 = 0x0040_0000;

macro_rules! load_store {
    ($word:ty) => {
        const BYTES: usize = size_of::<$word>();

        #[inline(always)]
        fn load(bytes: &[u8]) -> u32 {
            let mut word = [0; size_of::<$word>()];
            word.copy_from_slice(bytes);
            <$word>::from_le_bytes(word) as u32
        }

        #[inline(always)]
        fn store(raw: u32, bytes: &mut [u8]) {
            bytes.copy_from_slice(&(raw as $word).to_le_bytes());
        }
    };
}

pub(super) struct F32;

impl FloatFormat for F32 {
    load_store!(u32);

    #[inline(always)]
    fn widen(raw: u32) -> u32 {
        raw
    }

    #[inline(always)]
    fn narrow(bits: u32) -> u32 {
        let is_nan = bits & !SIGN > INFINITY;
        if is_nan { bits | QUIET } else { bits }
    }
}

pub(super) struct Bf16;

impl FloatFormat for Bf16 {
    load_store!(u16);

    #[inline(always)]
    fn widen(raw: u32) -> u32 {
        raw << 16
    }

    #[inline(always)]
    fn narrow(bits: u32) -> u32 {
        let odd = (bits >> 16) & 1;
        let rounded = bits.wrapping_add(0x7fff + odd) >> 16;
        let is_nan = bits & !SIGN > INFINITY;
        if is_nan { (bits | QUIET) >> 16 } else { rounded }
    }
}

pub(super) struct F16;

impl FloatFormat for F16 {
    load_store!(u16);

    #[inline(always)]
    fn widen(raw: u32) -> u32 {
        let magnitude = widen_finite::<10, 15>(raw & 0x7fff);
        let is_special = raw & 0x7c00 == 0x7c00;
        let special = INFINITY | (raw & 0x3ff) << 13;
        ((raw & 0x8000) << 16) | if is_special { special } else { magnitude }
    }

    #[inline(always)]
    fn narrow(bits: u32) -> u32 {
        let magnitude = bits & !SIGN;
        // 65,536 and above: below it, rounding reaches the pattern of infinity by itself.
        let finite =
            if magnitude >= 0x4780_0000 { 0x7c00 } else { narrow_finite::<10, 15>(magnitude) };
        let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
        (bits >> 16 & 0x8000) | if magnitude > INFINITY { nan } else { finite }
    }
}

pub(super) struct E5m2;

impl FloatFormat for E5m2 {
    load_store!(u8);

    #[inline(always)]
    fn widen(raw: u32) -> u32 {
        let magnitude = widen_finite::<2, 15>(raw & 0x7f);
        let is_special = raw & 0x7c == 0x7c;
        let special = INFINITY | (raw & 0x3) << 21;
        ((raw & 0x80) << 24) | if is_special { special } else { magnitude }
    }

    #[inline(always)]
    fn narrow(bits: u32) -> u32 {
        let magnitude = bits & !SIGN;
        let finite = narrow_finite::<2, 15>(magnitude.min(57_344f32.to_bits()));
        let finite = if magnitude == INFINITY { 0x7c } else { finite };
        (bits >> 24 & 0x80) | if magnitude > INFINITY { 0x7f } else { finite }
    }
}

pub(super) struct E4m3;

impl FloatFormat for E4m3 {
    load_store!(u8);

    #[inline(always)]
    fn widen(raw: u32) -> u32 {
        let magnitude = widen_finite::<3, 7>(raw & 0x7f);
        let is_nan = raw & 0x7f == 0x7f;
        ((raw & 0x80) << 24) | if is_nan { INFINITY | QUIET } else { magnitude }
    }

    #[inline(always)]
    fn narrow(bits: u32) -> u32 {
        let magnitude = bits & !SIGN;
        let finite = narrow_finite::<3, 7>(magnitude.min(448f32.to_bits()));
        (bits >> 24 & 0x80) | if magnitude > INFINITY { 0x7f } else { finite }
    }
}

/// The `f32` bits of a finite magnitude with `MANTISSA` bits and exponent bias `BIAS`.
///
/// Shifted into place, the pattern means 2^(BIAS-127) times the value, subnormals included, and one
/// exact multiplication puts that right: no case for subnormals.
#[inline(always)]
fn widen_finite<const MANTISSA: u32, const BIAS: u32>(magnitude: u32) -> u32 {
    let scale = f32::from_bits((254 - BIAS) << 23);
    (f32::from_bits(magnitude << (23 - MANTISSA)) * scale).to_bits()
}

/// Rounds a finite magnitude that does not overflow the format.
///
/// Below the smallest normal number, adding a power of two whose last place is the format's
/// smallest subnormal makes the adder do the rounding; above it, the carry out of the mantissa
/// does.
#[inline(always)]
fn narrow_finite<const MANTISSA: u32, const BIAS: u32>(magnitude: u32) -> u32 {
    let smallest_normal = (128 - BIAS) << 23;
    let anchor = (127 - BIAS + 23 - MANTISSA + 1) << 23;
    let shift = 23 - MANTISSA;
    let subnormal =
        (f32::from_bits(magnitude) + f32::from_bits(anchor)).to_bits().wrapping_sub(anchor);
    let odd = (magnitude >> shift) & 1;
    let rebased = magnitude.wrapping_sub((127 - BIAS) << 23);
    let normal = rebased.wrapping_add((1 << (shift - 1)) - 1 + odd) >> shift;
    if magnitude < smallest_normal { subnormal } else { normal }
}
