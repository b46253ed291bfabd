//! Conversions against a slow implementation that knows nothing of bit tricks: it lists every value
//! of a format as `f64` and picks the nearest.

use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};

use super::*;

const FORMATS: [Dtype; 5] = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F8E4M3, Dtype::F8E5M2];

/// (exponent bits, mantissa bits) of a format.
fn shape(dtype: Dtype) -> (u32, u32) {
    match dtype {
        Dtype::F32 => (8, 23),
        Dtype::F16 => (5, 10),
        Dtype::BF16 => (8, 7),
        Dtype::F8E4M3 => (4, 3),
        Dtype::F8E5M2 => (5, 2),
        other => panic!("{other} is not tested here"),
    }
}

/// The value of a pattern, from the definition of the format.
fn value(dtype: Dtype, raw: u32) -> f64 {
    let (exponent_bits, mantissa_bits) = shape(dtype);
    let mantissa = f64::from(raw & ((1 << mantissa_bits) - 1));
    let exponent = (raw >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let top = (1 << exponent_bits) - 1;
    let negative = raw >> (mantissa_bits + exponent_bits) & 1 == 1;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let step = |exponent: i32| 2f64.powi(exponent - bias - mantissa_bits as i32);
    let is_e4m3 = dtype == Dtype::F8E4M3;
    let magnitude = if is_e4m3 && raw & 0x7f == 0x7f {
        f64::NAN
    } else if !is_e4m3 && exponent == top {
        if mantissa == 0.0 { f64::INFINITY } else { f64::NAN }
    } else if exponent == 0 {
        mantissa * step(1)
    } else {
        (mantissa + f64::from(1 << mantissa_bits)) * step(exponent as i32)
    };
    if negative { -magnitude } else { magnitude }
}

/// Every finite magnitude of a format; its index is its pattern.
fn magnitudes(dtype: Dtype) -> Vec<f64> {
    let (exponent_bits, mantissa_bits) = shape(dtype);
    (0..1u32 << (exponent_bits + mantissa_bits))
        .map(|raw| value(dtype, raw))
        .take_while(|value| value.is_finite())
        .collect()
}

/// The pattern that `value` should round to, or none for NaN.
fn nearest(dtype: Dtype, all: &[f64], value: f64) -> Option<u32> {
    if value.is_nan() {
        return None;
    }
    let (exponent_bits, mantissa_bits) = shape(dtype);
    let sign = u32::from(value.is_sign_negative()) << (exponent_bits + mantissa_bits);
    let magnitude = value.abs();
    let last = all.len() - 1;
    let infinity = all.len() as u32;
    let above = all.partition_point(|&other| other < magnitude);
    let raw = if above <= last {
        let below = above.saturating_sub(1);
        let (under, over) = (magnitude - all[below], all[above] - magnitude);
        if under < over || (under == over && below % 2 == 0) { below as u32 } else { above as u32 }
    } else {
        let half_step = (all[last] - all[last - 1]) / 2.0;
        let keeps_infinity = dtype != Dtype::F8E4M3;
        let saturates = dtype.bytes() == 1;
        let overflows = magnitude >= all[last] + half_step;
        match magnitude.is_infinite() {
            true if keeps_infinity => infinity,
            false if overflows && !saturates => infinity,
            _ => last as u32,
        }
    };
    Some(sign | raw)
}

fn convert_one(from: Dtype, to: Dtype, raw: u32) -> u32 {
    let mut target = [0; 4];
    let (source_bytes, target_bytes) = (from.bytes() as usize, to.bytes() as usize);
    convert_slice(from, to, &raw.to_le_bytes()[..source_bytes], &mut target[..target_bytes])
        .unwrap();
    u32::from_le_bytes(target)
}

fn check_one(from: Dtype, to: Dtype, all: &[f64], raw: u32, got: u32) {
    let exact = value(from, raw);
    match nearest(to, all, exact) {
        Some(expected) => {
            assert_eq!(got, expected, "{from} {raw:#x} ({exact}) to {to}");
        }
        None => {
            let back = value(to, got);
            assert!(back.is_nan(), "NaN {from} {raw:#x} became {back} in {to}");
            let (from_top, to_top) = (from.bytes() * 8 - 1, to.bytes() * 8 - 1);
            assert_eq!(raw >> from_top & 1, got >> to_top & 1, "sign of NaN {raw:#x} to {to}");
        }
    }
}

#[test]
fn every_pattern_of_the_small_formats_converts_to_every_format() {
    for from in FORMATS.into_iter().filter(|from| from.bytes() < 4) {
        for to in FORMATS.into_iter().filter(|to| *to != from) {
            let count = 1u32 << (from.bytes() * 8);
            let source: Vec<u8> = (0..count)
                .flat_map(|raw| raw.to_le_bytes()[..from.bytes() as usize].to_vec())
                .collect();
            let mut target = vec![0; count as usize * to.bytes() as usize];
            convert_slice(from, to, &source, &mut target).unwrap();
            let all = if to == Dtype::F32 { Vec::new() } else { magnitudes(to) };
            for (raw, bytes) in target.chunks_exact(to.bytes() as usize).enumerate() {
                let mut word = [0; 4];
                word[..bytes.len()].copy_from_slice(bytes);
                let got = u32::from_le_bytes(word);
                if to == Dtype::F32 {
                    let (exact, got) = (value(from, raw as u32), f64::from(f32::from_bits(got)));
                    let same = exact.to_bits() == got.to_bits() || exact.is_nan() && got.is_nan();
                    assert!(same, "{from} {raw:#x} is {exact}, became {got}");
                } else {
                    check_one(from, to, &all, raw as u32, got);
                }
            }
        }
    }
}

#[test]
fn sampled_f32_rounds_to_every_format() {
    for to in FORMATS.into_iter().filter(|to| *to != Dtype::F32) {
        let all = magnitudes(to);
        for_seeds("sampled_f32_rounds_to_every_format", 4, |rng| {
            for _ in 0..20_000 {
                let raw = rng.next_u64() as u32;
                check_one(Dtype::F32, to, &all, raw, convert_one(Dtype::F32, to, raw));
            }
        });
        // Around every representable value and every midpoint, where rounding is decided.
        for pair in all.windows(2) {
            for point in [pair[0], (pair[0] + pair[1]) / 2.0] {
                for step in -2i32..=2 {
                    let raw = (point as f32).to_bits().wrapping_add_signed(step) & 0x7fff_ffff;
                    check_one(Dtype::F32, to, &all, raw, convert_one(Dtype::F32, to, raw));
                }
            }
        }
    }
}

#[test]
fn a_slice_of_any_length_and_alignment_equals_its_elements() {
    for_seeds("a_slice_of_any_length_and_alignment_equals_its_elements", 200, |rng| {
        let (from, to) = (*rng.pick(&FORMATS), *rng.pick(&FORMATS));
        let (count, skew) = (rng.below(130), rng.below(7));
        let (source_bytes, target_bytes) =
            (count * from.bytes() as usize, count * to.bytes() as usize);
        let source: Vec<u8> = (0..skew + source_bytes).map(|_| rng.next_u64() as u8).collect();
        let mut target = vec![0xaa; skew + target_bytes + 1];
        let body = skew..skew + target_bytes;
        convert_slice(from, to, &source[skew..], &mut target[body.clone()]).unwrap();
        assert_eq!(target[target_bytes + skew], 0xaa, "wrote past the end");
        let elements = source[skew..].chunks_exact(from.bytes() as usize);
        for (element, got) in elements.zip(target[body].chunks_exact(to.bytes() as usize)) {
            let mut one = [0; 4];
            convert_slice(from, to, element, &mut one[..got.len()]).unwrap();
            assert_eq!(got, &one[..got.len()]);
        }
    });
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let refused = convert_slice(Dtype::F64, Dtype::F32, &[0; 8], &mut [0; 4]).unwrap_err();
    assert_eq!(refused, ConvertError::Unsupported { from: Dtype::F64, to: Dtype::F32 });
    assert!(matches!(
        convert_slice(Dtype::F32, Dtype::BF16, &[0; 8], &mut [0; 2]),
        Err(ConvertError::Length { .. })
    ));
    assert!(matches!(
        mx::quantise(Dtype::F32, &[0; 64 * 4], Dtype::F8E4M3, &mut [0; 64], &mut [0; 1]),
        Err(ConvertError::Blocks { elements: 64, scales: 1 })
    ));
    assert!(mx::quantise(Dtype::F32, &[0; 64], Dtype::BF16, &mut [0; 16], &mut [0; 1]).is_err());
}

/// The scale and elements of a block, from the definition, in `f64`.
fn quantise_slowly(block: &[f64], to: Dtype, all: &[f64]) -> (u8, Vec<Option<u32>>) {
    let largest = block.iter().filter(|x| x.is_finite()).fold(0f64, |m, x| m.max(x.abs()));
    let mut exponent = -127;
    let top = if to == Dtype::F8E4M3 { 8 } else { 15 };
    while largest > 0.0 && exponent < 127 && 2f64.powi(exponent + 1 + top) <= largest {
        exponent += 1;
    }
    let scale = 2f64.powi(exponent);
    let elements = block.iter().map(|&x| nearest(to, all, x / scale)).collect();
    ((exponent + 127) as u8, elements)
}

/// Quantises blocks of `from` and restores them, and compares every element with the slow way.
fn check_blocks(from: Dtype, to: Dtype, all: &[f64], raws: &[u32]) {
    let source_bytes = from.bytes() as usize;
    let source: Vec<u8> =
        raws.iter().flat_map(|raw| raw.to_le_bytes()[..source_bytes].to_vec()).collect();
    let (mut elements, mut scales) = (vec![0; raws.len()], vec![0; raws.len() / mx::BLOCK]);
    mx::quantise(from, &source, to, &mut elements, &mut scales).unwrap();
    let mut back = vec![0; source.len()];
    mx::dequantise(to, &elements, &scales, from, &mut back).unwrap();
    // Only the formats that are tested come back here; all their magnitudes are in a list but those
    // of f32.
    let wide = if from == Dtype::F32 { Vec::new() } else { magnitudes(from) };
    for (block, raws) in raws.chunks_exact(mx::BLOCK).enumerate() {
        let values: Vec<f64> = raws.iter().map(|&raw| value(from, raw)).collect();
        let (scale, expected) = quantise_slowly(&values, to, all);
        assert_eq!(scales[block], scale, "{from} {raws:x?}");
        for (at, expected) in expected.into_iter().enumerate() {
            let at = block * mx::BLOCK + at;
            let mut word = [0; 4];
            word[..source_bytes].copy_from_slice(&back[at * source_bytes..][..source_bytes]);
            let restored = u32::from_le_bytes(word);
            let Some(expected) = expected else {
                assert!(value(to, u32::from(elements[at])).is_nan());
                assert!(value(from, restored).is_nan(), "{from} {restored:#x}");
                continue;
            };
            assert_eq!(u32::from(elements[at]), expected, "{from} to {to}: {raws:x?}");
            let exact = value(to, expected) * 2f64.powi(i32::from(scale) - 127);
            if from == Dtype::F32 {
                let restored = f32::from_bits(restored);
                assert_eq!(restored.to_bits(), (exact as f32).to_bits(), "{exact}");
            } else {
                assert_eq!(Some(restored), nearest(from, &wide, exact), "{exact} to {from}");
            }
        }
    }
}

#[test]
fn every_pattern_of_the_small_formats_is_quantised_in_blocks_and_comes_back() {
    for from in [Dtype::F16, Dtype::BF16] {
        for to in [Dtype::F8E4M3, Dtype::F8E5M2] {
            let all = magnitudes(to);
            // In order, so that blocks hold values of one size; and shuffled, so that the largest
            // rules over all.
            let mut raws: Vec<u32> = (0..1 << 16).collect();
            check_blocks(from, to, &all, &raws);
            Rng::new(5).shuffle(&mut raws);
            check_blocks(from, to, &all, &raws);
        }
    }
}

#[test]
fn sampled_f32_is_quantised_in_blocks_and_comes_back() {
    for to in [Dtype::F8E4M3, Dtype::F8E5M2] {
        let all = magnitudes(to);
        // One of every 16,384 patterns, from a place that differs by run of 32.
        let raws: Vec<u32> =
            (0..1u32 << 18).map(|at| (at << 14) | (at.reverse_bits() >> 18)).collect();
        check_blocks(Dtype::F32, to, &all, &raws);
        for_seeds("sampled_f32_is_quantised_in_blocks_and_comes_back", 20, |rng| {
            let spread = rng.below(40) as u32;
            let base = rng.below(200) as u32;
            // Exponents near each other: as in blocks of real weights.
            let near = |rng: &mut Rng| {
                let bits = rng.next_u64() as u32;
                let exponent = base + (bits >> 8 & 0xff) % (spread + 1);
                bits & 0x807f_ffff | exponent << 23
            };
            let raws: Vec<u32> = (0..64 * mx::BLOCK).map(|_| near(rng)).collect();
            check_blocks(Dtype::F32, to, &all, &raws);
        });
    }
}

#[test]
fn blocks_are_scaled_as_defined_and_come_back() {
    let any = |rng: &mut Rng| match rng.below(20) {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => 0.0,
        3 => f32::from_bits(rng.next_u64() as u32),
        _ => (rng.range(0..2_000) as f32 - 1_000.0) * 2f32.powi(rng.below(20) as i32 - 10),
    };
    for to in [Dtype::F8E4M3, Dtype::F8E5M2] {
        let all = magnitudes(to);
        for_seeds("blocks_are_scaled_as_defined_and_come_back", 300, |rng| {
            let spread = 2f32.powi(rng.range(0..240) as i32 - 120);
            let block: Vec<f32> = (0..mx::BLOCK).map(|_| any(rng) * spread).collect();
            let source: Vec<u8> = block.iter().flat_map(|x| x.to_le_bytes()).collect();
            let (mut elements, mut scales) = ([0; mx::BLOCK], [0; 1]);
            mx::quantise(Dtype::F32, &source, to, &mut elements, &mut scales).unwrap();
            let values: Vec<f64> = block.iter().map(|&x| f64::from(x)).collect();
            let (scale, expected) = quantise_slowly(&values, to, &all);
            assert_eq!(scales[0], scale, "{block:?}");
            let mut back = [0; mx::BLOCK * 4];
            mx::dequantise(to, &elements, &scales, Dtype::F32, &mut back).unwrap();
            for (at, expected) in expected.into_iter().enumerate() {
                let restored = f32::from_le_bytes(back[at * 4..][..4].try_into().unwrap());
                let Some(expected) = expected else {
                    assert!(value(to, u32::from(elements[at])).is_nan() && restored.is_nan());
                    continue;
                };
                assert_eq!(u32::from(elements[at]), expected, "{} in {block:?}", block[at]);
                let exact = value(to, expected) * 2f64.powi(i32::from(scale) - 127);
                assert_eq!(restored, exact as f32);
            }
        });
    }
}

/// The choice that the module's documentation states, where torch would give infinity and NaN.
#[test]
fn eight_bit_formats_saturate() {
    let source = [57_344.0, 61_440.0, 1e30, f32::MAX, f32::INFINITY, -1e30, 448.0, 465.0];
    let bytes: Vec<u8> = source.iter().flat_map(|value: &f32| value.to_le_bytes()).collect();
    let to = |dtype| {
        let mut target = [0; 8];
        convert_slice(Dtype::F32, dtype, &bytes, &mut target).unwrap();
        target
    };
    let expected = [0x7b, 0x7b, 0x7b, 0x7b, 0x7c, 0xfb, 0x5f, 0x5f];
    assert_eq!(to(Dtype::F8E5M2), expected);
    assert_eq!(to(Dtype::F8E4M3), [0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7e]);
}
