//! OpenCL C: what the texts in this folder need in front of them, for arguments of certain dtypes.
//!
//! Contraction of products and sums into one rounding is switched off, so that devices agree where
//! the text says no `fma`. Elements of any size are stored on their own; the language has that
//! since version 1.1.

use std::fmt::Write;

use syncline_tensor::Dtype;

use crate::compiled::entry;
use crate::compiled::kind::Kind;
use crate::compiled::recipe::{Frame, Recipe};
use crate::compiled::spec::{Operand, Spec};

/// The source of kernel `name` for arguments as in `spec`.
pub(crate) fn text(name: &str, recipe: &Recipe, spec: &Spec) -> String {
    let mut out = String::from("#pragma OPENCL FP_CONTRACT OFF\n");
    if spec.operands.iter().any(|operand| operand.kind == Kind::F64) {
        out.push_str("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
    }
    let (number, arithmetic) = (type_of(spec.number), arithmetic_of(spec.number));
    define(&mut out, format_args!("typedef {number} number;\ntypedef {number}4 number4;"));
    define(&mut out, format_args!("typedef {arithmetic} arithmetic;"));
    let mut arguments = String::new();
    for (n, operand) in spec.operands.iter().enumerate() {
        let constant = if operand.writes { "" } else { "const " };
        let element = element_of(operand.stored);
        let _ = write!(arguments, "__global {constant}{element} *arg_{n}, ");
        define(&mut out, format_args!("#define WORDS_{n} (params + {})", Spec::words_of(n)));
        let place = match operand.is_flat {
            true => format!("(WORDS_{n}[0] + (i))"),
            false => format!("walk(WORDS_{n}, (i))"),
        };
        define(&mut out, format_args!("#define place_{n}(i) {place}"));
        define(&mut out, format_args!("#define load_{n}(place) {}", loaded(n, operand)));
        if operand.writes {
            let stored = stored(n, operand);
            define(&mut out, format_args!("#define store_{n}(place, value) {stored}"));
        }
    }
    for (n, scalar) in spec.scalars.iter().enumerate() {
        let word = scalar.word;
        let both = format!("((ulong)params[{}] << 32 | params[{word}])", word + 1);
        let value = match scalar.kind {
            None => format!("(params[{word}] != 0)"),
            Some(Kind::F32) => format!("as_float(params[{word}])"),
            Some(Kind::F64) => format!("as_double({both})"),
            Some(Kind::I32) => format!("as_int(params[{word}])"),
            Some(Kind::U32) => format!("params[{word}]"),
            Some(Kind::I64) => format!("as_long({both})"),
            Some(Kind::U64) => both,
        };
        define(&mut out, format_args!("#define scalar_{n}() {value}"));
    }
    if name == "cast" {
        let convert = convert(&spec.operands[0], &spec.operands[1]);
        define(&mut out, format_args!("#define convert(x) {convert}"));
    }
    define(&mut out, format_args!("#define ARGUMENTS {arguments}__global const uint *params"));
    define(&mut out, format_args!("#define LAST WORDS_{}\n", spec.operands.len() - 1));
    for common in [
        include_str!("opencl/walk.cl"),
        include_str!("opencl/half.cl"),
        include_str!("opencl/numbers.cl"),
    ] {
        out.push_str(common);
        out.push('\n');
    }
    out.push_str(&body(name, recipe).replace("ENTRY", &entry(name)));
    out
}

fn body(name: &str, recipe: &Recipe) -> String {
    let around = include_str!("opencl/elementwise.cl");
    let indented = |statements: &str, by: &str| statements.trim_end().replace('\n', by);
    match recipe.frame {
        Frame::Element(statement) => {
            let functions = match name {
                "gelu" | "silu" => include_str!("opencl/activations.cl"),
                _ => "",
            };
            format!("{functions}\n{}", around.replace("STATEMENT", statement))
        }
        Frame::ElementText => around.replace("STATEMENT", &indented(own(name), "\n        ")),
        Frame::Row => {
            include_str!("opencl/rows.cl").replace("STATEMENT", &indented(own(name), "\n    "))
        }
        Frame::Product => format!("{}\n{}", own(name), include_str!("opencl/product.cl")),
        Frame::Whole => own(name).to_owned(),
    }
}

/// The text that a kernel alone has.
fn own(name: &str) -> &'static str {
    match name {
        "stencil" => include_str!("opencl/stencil.cl"),
        "embedding" => include_str!("opencl/embedding.cl"),
        "reduce_sum" => include_str!("opencl/reduce_sum.cl"),
        "reduce_max" => include_str!("opencl/reduce_max.cl"),
        "softmax" => include_str!("opencl/softmax.cl"),
        "layernorm" => include_str!("opencl/layernorm.cl"),
        "rmsnorm" => include_str!("opencl/rmsnorm.cl"),
        "gemm" => include_str!("opencl/gemm.cl"),
        "syrk" => include_str!("opencl/syrk.cl"),
        "trsm" => include_str!("opencl/trsm.cl"),
        "potrf" => include_str!("opencl/potrf.cl"),
        "transpose" => include_str!("opencl/transpose.cl"),
        other => unreachable!("no OpenCL C for `{other}`"),
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "float",
        Kind::F64 => "double",
        Kind::I32 => "int",
        Kind::U32 => "uint",
        Kind::I64 => "long",
        Kind::U64 => "ulong",
    }
}

/// The type in which numbers of `kind` are added: overflow of signed integers is not defined.
fn arithmetic_of(kind: Kind) -> &'static str {
    match kind {
        Kind::I32 => "uint",
        Kind::I64 => "ulong",
        other => type_of(other),
    }
}

/// The type of elements in memory.
fn element_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "half",
        Dtype::BF16 | Dtype::U16 => "ushort",
        Dtype::I16 => "short",
        Dtype::U8 => "uchar",
        Dtype::I8 => "char",
        other => type_of(Kind::of(other)),
    }
}

/// An expression for the element at `place`.
fn loaded(n: usize, operand: &Operand) -> String {
    match operand.stored {
        Dtype::F16 => format!("vload_half((place), arg_{n})"),
        Dtype::BF16 => format!("from_bf16(arg_{n}[place])"),
        // Rows are counted from zero: an id that is negative, or does not fit, is one that no table
        // has.
        Dtype::I32 if operand.kind == Kind::U32 => {
            format!("(arg_{n}[place] < 0 ? 0xffffffffu : (uint)arg_{n}[place])")
        }
        Dtype::I64 | Dtype::U64 if operand.kind == Kind::U32 => {
            format!("((ulong)arg_{n}[place] >> 32 ? 0xffffffffu : (uint)arg_{n}[place])")
        }
        _ => format!("(({})arg_{n}[place])", type_of(operand.kind)),
    }
}

/// A statement that replaces the element at `place` by `value`.
fn stored(n: usize, operand: &Operand) -> String {
    match operand.stored {
        Dtype::F16 => format!("vstore_half_rte((value), (place), arg_{n})"),
        Dtype::BF16 => format!("arg_{n}[place] = to_bf16(value)"),
        other => format!("arg_{n}[place] = ({})(value)", element_of(other)),
    }
}

/// From the loaded type of `source` to the stored type of `target`: as the CPU does it, floats to
/// integers are cut off and become the nearest in range, integers to integers keep their low bits.
fn convert(source: &Operand, target: &Operand) -> String {
    let kind = type_of(target.kind);
    match (source.kind.is_float(), target.kind.is_float()) {
        (true, false) => {
            format!("(isnan(x) ? 0 : ({kind})convert_{}_sat(x))", element_of(target.stored))
        }
        (false, true) => format!("convert_{kind}_rte(x)"),
        _ => format!("(({kind})(x))"),
    }
}

fn define(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a string takes everything");
}
