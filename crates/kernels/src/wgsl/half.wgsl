// 16-bit floats as bits. The built-in packing may round in any direction and drop what is subnormal; these round to the
// nearest, ties to even, as the CPU does.

fn is_nan(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}

fn from_f16(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let exponent = (bits >> 10u) & 31u;
    let fraction = bits & 0x3ffu;
    if exponent == 0u {
        return bitcast<f32>(bitcast<u32>(f32(fraction) * 5.9604644775390625e-8) | sign);
    }
    let wider = select(exponent + 112u, 255u, exponent == 31u);
    return bitcast<f32>(sign | (wider << 23u) | (fraction << 13u));
}

fn to_f16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u;
    }
    // From 65520 on the nearest is infinity.
    if magnitude >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if magnitude >= 0x38800000u {
        let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
        return sign | ((rounded >> 13u) - (112u << 10u));
    }
    // Subnormal: whole multiples of 2^-24. What is below half of that is zero.
    let exponent = magnitude >> 23u;
    if exponent < 102u {
        return sign;
    }
    let fraction = (magnitude & 0x7fffffu) | 0x800000u;
    let dropped = 126u - exponent;
    let tie = (1u << (dropped - 1u)) - 1u + ((fraction >> dropped) & 1u);
    return sign | ((fraction + tie) >> dropped);
}

fn from_bf16(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}

fn to_bf16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if is_nan(value) {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
