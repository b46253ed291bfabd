//! Conversions between kinds of numbers, as the CPU makes them: floats to integers are cut off and
//! become the nearest in range, integers to integers keep their low bits.

use syncline_tensor::Dtype;

use super::{put, type_of};
use crate::compiled::kind::Kind;
use crate::compiled::spec::Operand;

/// The function `convert`, from the loaded type of `source` to the stored type of `target`.
pub(super) fn function(out: &mut String, source: &Operand, target: &Operand) {
    let (from, to) = (type_of(source.kind), type_of(target.kind));
    let body = match (source.kind, target.kind) {
        (Kind::F32, Kind::F32) => "    return x;\n".to_owned(),
        (Kind::F32, _) => saturating(target.stored),
        (_, Kind::F32) => "    return f32(x);\n".to_owned(),
        (a, b) if a.is_wide() && b.is_wide() => "    return x;\n".to_owned(),
        (a, _) if a.is_wide() => format!("    return bitcast<{to}>(x.x);\n"),
        (Kind::I32, b) if b.is_wide() => {
            "    return vec2(bitcast<u32>(x), select(0u, 0xffffffffu, x < 0));\n".to_owned()
        }
        (_, b) if b.is_wide() => "    return vec2(x, 0u);\n".to_owned(),
        _ => format!("    return bitcast<{to}>(x);\n"),
    };
    put(out, format_args!("fn convert(x: {from}) -> {to} {{\n{body}}}\n"));
}

/// From `f32` to an integer of at most 32 bits.
fn saturating(target: Dtype) -> String {
    let (least, most): (i64, i64) = match target {
        Dtype::U8 => (0, u8::MAX.into()),
        Dtype::I8 => (i8::MIN.into(), i8::MAX.into()),
        Dtype::U16 => (0, u16::MAX.into()),
        Dtype::I16 => (i16::MIN.into(), i16::MAX.into()),
        Dtype::U32 => (0, u32::MAX.into()),
        _ => (i32::MIN.into(), i32::MAX.into()),
    };
    let to = if least == 0 { "u32" } else { "i32" };
    // One more than the largest is a power of two, hence a float, and everything from there on is
    // out of range.
    format!(
        "    if is_nan(x) {{\n        return {to}(0);\n    }}\n    \
         if x <= {least}.0 {{\n        return {to}({least});\n    }}\n    \
         if x >= {}.0 {{\n        return {to}({most});\n    }}\n    \
         return {to}(x);\n",
        most + 1
    )
}
