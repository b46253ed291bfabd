//! WGSL: what the texts in this folder need in front of them, for arguments of certain dtypes.
//!
//! All buffers are arrays of words. Elements smaller than a word are parts of one, and so may be
//! those of other work items, of other tasks even: a store changes its own part alone, by an atomic
//! exclusive or of what was there and what shall be. No other task writes that part meanwhile, so
//! the difference is right whatever happens beside it.

mod convert;

use std::fmt::Write;

use syncline_tensor::Dtype;

use crate::compiled::entry;
use crate::compiled::kind::Kind;
use crate::compiled::recipe::{Frame, Recipe};
use crate::compiled::spec::{Operand, ScalarSpec, Spec};

/// The source of kernel `name` for arguments as in `spec`.
pub(crate) fn text(name: &str, recipe: &Recipe, spec: &Spec) -> String {
    let mut out = String::new();
    for (position, operand) in spec.operands.iter().enumerate() {
        let access = if operand.writes { "read_write" } else { "read" };
        let word = if is_atomic(operand) { "atomic<u32>" } else { "u32" };
        let line = format!(
            "@group(0) @binding({position}) var<storage, {access}> arg_{position}: array<{word}>;\n\
             const WORDS_{position} = {}u;\n",
            Spec::words_of(position)
        );
        out.push_str(&line);
    }
    let count = spec.operands.len();
    put(
        &mut out,
        format_args!("@group(0) @binding({count}) var<storage, read> params: array<u32>;"),
    );
    put(&mut out, format_args!("const LAST = WORDS_{};", count - 1));
    put(&mut out, format_args!("alias number = {};\n", type_of(spec.number)));
    out.push_str(include_str!("wgsl/walk.wgsl"));
    out.push('\n');
    if spec.operands.iter().any(|operand| operand.kind == Kind::F32) {
        out.push_str(include_str!("wgsl/half.wgsl"));
        out.push('\n');
    }
    arithmetic(&mut out, spec.number);
    for (position, operand) in spec.operands.iter().enumerate() {
        accessors(&mut out, position, operand);
    }
    for (position, scalar) in spec.scalars.iter().enumerate() {
        scalar_accessor(&mut out, position, scalar);
    }
    if name == "cast" {
        convert::function(&mut out, &spec.operands[0], &spec.operands[1]);
    }
    out.push_str(&body(name, recipe).replace("ENTRY", &entry(name)));
    out
}

fn body(name: &str, recipe: &Recipe) -> String {
    let around = include_str!("wgsl/elementwise.wgsl");
    let rows = include_str!("wgsl/rows.wgsl");
    match recipe.frame {
        Frame::Element(statement) => {
            let functions = match name {
                "gelu" | "silu" => include_str!("wgsl/activations.wgsl"),
                _ => "",
            };
            format!("{functions}\n{}", around.replace("STATEMENT", statement))
        }
        Frame::ElementText => around.replace("STATEMENT", &own(name).replace('\n', "\n        ")),
        Frame::Row => format!("{rows}\n{}", own(name)),
        Frame::Product => format!("{}\n{}", include_str!("wgsl/product.wgsl"), own(name)),
        Frame::Whole => own(name).to_owned(),
    }
}

/// The text that a kernel alone has.
fn own(name: &str) -> &'static str {
    match name {
        "stencil" => include_str!("wgsl/stencil.wgsl"),
        "embedding" => include_str!("wgsl/embedding.wgsl"),
        "reduce_sum" => include_str!("wgsl/reduce_sum.wgsl"),
        "reduce_max" => include_str!("wgsl/reduce_max.wgsl"),
        "softmax" => include_str!("wgsl/softmax.wgsl"),
        "layernorm" => include_str!("wgsl/layernorm.wgsl"),
        "rmsnorm" => include_str!("wgsl/rmsnorm.wgsl"),
        "gemm" => include_str!("wgsl/gemm.wgsl"),
        "syrk" => include_str!("wgsl/syrk.wgsl"),
        "trsm" => include_str!("wgsl/trsm.wgsl"),
        "potrf" => include_str!("wgsl/potrf.wgsl"),
        "transpose" => include_str!("wgsl/transpose.wgsl"),
        other => unreachable!("no WGSL for `{other}`"),
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "f32",
        Kind::I32 => "i32",
        Kind::U32 => "u32",
        Kind::I64 | Kind::U64 => "vec2<u32>",
        Kind::F64 => unreachable!("doubles were refused"),
    }
}

fn arithmetic(out: &mut String, number: Kind) {
    if number.is_wide() {
        let sign_bit = if number == Kind::I64 { 0x8000_0000u32 } else { 0 };
        put(out, format_args!("const SIGN_BIT = {sign_bit}u;"));
        out.push_str(include_str!("wgsl/wide.wgsl"));
    } else {
        out.push_str(include_str!("wgsl/numbers.wgsl"));
    }
    out.push('\n');
}

/// Whether stores to the argument change parts of words.
fn is_atomic(operand: &Operand) -> bool {
    operand.writes && operand.stored.bytes() < 4
}

fn accessors(out: &mut String, n: usize, operand: &Operand) {
    let place = match operand.is_flat {
        true => format!("params[WORDS_{n}] + i"),
        false => format!("walk(WORDS_{n}, i)"),
    };
    put(out, format_args!("fn place_{n}(i: u32) -> u32 {{\n    return {place};\n}}\n"));
    let number = type_of(operand.kind);
    let value = loaded(n, operand);
    put(out, format_args!("fn load_{n}(place: u32) -> {number} {{\n    return {value};\n}}\n"));
    if operand.writes {
        let store = stored(n, operand);
        put(out, format_args!("fn store_{n}(place: u32, value: {number}) {{\n{store}}}\n"));
    }
}

/// An expression for the element at `place`.
fn loaded(n: usize, operand: &Operand) -> String {
    let word = |index: &str| match is_atomic(operand) {
        true => format!("atomicLoad(&arg_{n}[{index}])"),
        false => format!("arg_{n}[{index}]"),
    };
    let (log, bits) = part(operand.stored);
    let part = |word: String| {
        let mask = (1 << log) - 1;
        format!("extractBits({word}, {bits}u * (place & {mask}u), {bits}u)")
    };
    let small = || word(&format!("place >> {log}u"));
    let is_index = operand.kind == Kind::U32;
    match operand.stored {
        Dtype::F32 => format!("bitcast<f32>({})", word("place")),
        Dtype::F16 => format!("from_f16({})", part(small())),
        Dtype::BF16 => format!("from_bf16({})", part(small())),
        Dtype::U32 => word("place"),
        // Rows are counted from zero: an id that is negative, or does not fit, is one that no table
        // has.
        Dtype::I32 if is_index => {
            format!("select({0}, 0xffffffffu, bitcast<i32>({0}) < 0)", word("place"))
        }
        Dtype::I64 | Dtype::U64 if is_index => {
            format!(
                "select({}, 0xffffffffu, {} != 0u)",
                word("2u * place"),
                word("2u * place + 1u")
            )
        }
        Dtype::I32 => format!("bitcast<i32>({})", word("place")),
        Dtype::U8 | Dtype::U16 => part(small()),
        Dtype::I8 | Dtype::I16 => part(format!("bitcast<i32>({})", small())),
        _ => format!("vec2({}, {})", word("2u * place"), word("2u * place + 1u")),
    }
}

/// Statements that replace the element at `place` by `value`.
fn stored(n: usize, operand: &Operand) -> String {
    let (log, bits) = part(operand.stored);
    let new = match operand.stored {
        Dtype::F16 => "to_f16(value)".to_owned(),
        Dtype::BF16 => "to_bf16(value)".to_owned(),
        Dtype::U8 | Dtype::U16 | Dtype::I8 | Dtype::I16 => {
            format!("bitcast<u32>(value) & {}u", (1u32 << bits) - 1)
        }
        _ if operand.stored.bytes() == 8 => {
            return format!(
                "    arg_{n}[2u * place] = value.x;\n    arg_{n}[2u * place + 1u] = value.y;\n"
            );
        }
        _ => return format!("    arg_{n}[place] = bitcast<u32>(value);\n"),
    };
    let mask = (1 << log) - 1;
    format!(
        "    let shift = {bits}u * (place & {mask}u);\n    \
         let before = extractBits(atomicLoad(&arg_{n}[place >> {log}u]), shift, {bits}u);\n    \
         atomicXor(&arg_{n}[place >> {log}u], (before ^ ({new})) << shift);\n"
    )
}

/// Of elements smaller than a word: the logarithm of how many it holds, and the bits of each.
fn part(dtype: Dtype) -> (u32, u32) {
    match dtype.bytes() {
        1 => (2, 8),
        2 => (1, 16),
        _ => (0, 32),
    }
}

fn scalar_accessor(out: &mut String, n: usize, scalar: &ScalarSpec) {
    let word = scalar.word;
    let (of, value) = match scalar.kind {
        None => ("bool", format!("params[{word}] != 0u")),
        Some(Kind::F32) => ("f32", format!("bitcast<f32>(params[{word}])")),
        Some(Kind::I32) => ("i32", format!("bitcast<i32>(params[{word}])")),
        Some(Kind::U32) => ("u32", format!("params[{word}]")),
        Some(_) => ("vec2<u32>", format!("vec2(params[{word}], params[{}])", word + 1)),
    };
    put(out, format_args!("fn scalar_{n}() -> {of} {{\n    return {value};\n}}\n"));
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a string takes everything");
}
