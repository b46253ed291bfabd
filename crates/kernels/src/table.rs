//! The table of built-in kernels.

use syncline_device::{DeviceError, Kernel, KernelArgs, Scalar};
use syncline_tensor::{Dtype, View};

use crate::Overlap::{self, InPlace, Never};
use crate::Tolerance::{self, Epsilons, EpsilonsPerTerm, Exact};
use crate::cpu::{elementwise, matrix, rows, triangular};
use crate::library::Entry;
use crate::{Parameter, ScalarParameter, Signature, compiled};

const NUMBERS: &[Dtype] = &[
    Dtype::F32,
    Dtype::F16,
    Dtype::BF16,
    Dtype::F64,
    Dtype::I32,
    Dtype::U32,
    Dtype::I64,
    Dtype::U64,
    Dtype::I16,
    Dtype::U16,
    Dtype::I8,
    Dtype::U8,
];
const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::BF16];
const FLOATS_AND_DOUBLE: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64];
const SINGLE: &[Dtype] = &[Dtype::F32];
const INDICES: &[Dtype] = &[Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64];

const fn read(name: &'static str, dtypes: &'static [Dtype]) -> Parameter {
    Parameter { name, reads: true, writes: false, dtypes, old_times: None }
}

const fn write(name: &'static str, dtypes: &'static [Dtype]) -> Parameter {
    Parameter { name, reads: false, writes: true, dtypes, old_times: None }
}

const fn update(name: &'static str, dtypes: &'static [Dtype]) -> Parameter {
    Parameter { name, reads: true, writes: true, dtypes, old_times: None }
}

const fn update_times(
    name: &'static str,
    dtypes: &'static [Dtype],
    factor: &'static str,
) -> Parameter {
    Parameter { old_times: Some(factor), ..update(name, dtypes) }
}

const fn number(name: &'static str, default: f32, about: &'static str) -> ScalarParameter {
    ScalarParameter { name, default: Scalar::F32(default), about }
}

const fn flag(name: &'static str, default: bool, about: &'static str) -> ScalarParameter {
    ScalarParameter { name, default: Scalar::Bool(default), about }
}

type Body = fn(&mut KernelArgs<'_>) -> Result<(), DeviceError>;
type Shapes = fn(&[View], &[Scalar]) -> Result<(), String>;
type Operations = fn(&[View]) -> u64;

fn entry(
    (name, about): (&'static str, &'static str),
    parameters: &[Parameter],
    scalars: &[ScalarParameter],
    (shapes, operations): (Shapes, Operations),
    overlap: Overlap,
    tolerance: Tolerance,
    body: Body,
) -> Entry {
    let signature = Signature {
        name: name.to_owned(),
        about,
        parameters: parameters.to_vec(),
        scalars: scalars.to_vec(),
        shapes,
        operations,
        overlap,
        tolerance,
    };
    let builder =
        Kernel::builder(name).cpu(
            move |args: &mut KernelArgs<'_>| {
                if writes_nothing(args)? { Ok(()) } else { body(args) }
            },
        );
    Entry::new(signature, compiled::attach(builder, name, parameters))
}

/// Whether all that would be written has no elements: other sizes may be anything then, as may the
/// rest.
fn writes_nothing(args: &KernelArgs<'_>) -> Result<bool, DeviceError> {
    for arg in 0..args.len() {
        if args.writes(arg)? && !args.view(arg)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every built-in kernel.
pub(crate) fn builtin() -> Vec<Entry> {
    let mut entries = elementwise_entries();
    entries.extend(row_entries());
    entries.extend(matrix_entries());
    entries
}

fn elementwise_entries() -> Vec<Entry> {
    let one = |n: &'static str| read(n, NUMBERS);
    let alike: (Shapes, Operations) = (all_alike, elements);
    let same: (Shapes, Operations) = (one_shape, elements);
    vec![
        entry(
            ("fill", "target = value"),
            &[write("target", NUMBERS)],
            &[number("value", 0.0, "what every element becomes")],
            same,
            InPlace,
            Exact,
            elementwise::fill,
        ),
        entry(
            ("copy", "target = source"),
            &[one("source"), write("target", NUMBERS)],
            &[],
            alike,
            InPlace,
            Exact,
            elementwise::copy,
        ),
        entry(
            ("cast", "target = source, rounded to the target's dtype"),
            &[one("source"), write("target", NUMBERS)],
            &[],
            same,
            InPlace,
            Epsilons(1),
            elementwise::cast,
        ),
        entry(
            ("add", "target = left + right"),
            &[one("left"), one("right"), write("target", NUMBERS)],
            &[],
            alike,
            InPlace,
            Exact,
            elementwise::add,
        ),
        entry(
            ("sub", "target = left - right"),
            &[one("left"), one("right"), write("target", NUMBERS)],
            &[],
            alike,
            InPlace,
            Exact,
            elementwise::sub,
        ),
        entry(
            ("mul", "target = left * right"),
            &[one("left"), one("right"), write("target", NUMBERS)],
            &[],
            alike,
            InPlace,
            Exact,
            elementwise::mul,
        ),
        entry(
            ("scale", "target = alpha * source"),
            &[one("source"), write("target", NUMBERS)],
            &[number("alpha", 1.0, "the factor")],
            alike,
            InPlace,
            Exact,
            elementwise::scale,
        ),
        entry(
            ("axpy", "target += alpha * source"),
            &[one("source"), update("target", NUMBERS)],
            &[number("alpha", 1.0, "the factor")],
            alike,
            InPlace,
            Epsilons(1),
            elementwise::axpy,
        ),
        entry(
            ("gelu", "target = source * its share in the normal distribution"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[flag("approximate", false, "by tanh instead of the error function")],
            (one_shape, |views| elements(views).saturating_mul(16)),
            InPlace,
            Epsilons(16),
            elementwise::gelu,
        ),
        entry(
            ("silu", "target = source / (1 + exp(-source))"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[],
            (one_shape, |views| elements(views).saturating_mul(8)),
            InPlace,
            Epsilons(16),
            elementwise::silu,
        ),
        entry(
            ("stencil", "target = centre * source inside its border + side * its four neighbours"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[
                number("centre", 0.5, "weight of the element itself"),
                number("side", 0.125, "weight of each neighbour"),
            ],
            (stencil_shapes, |views| elements(views).saturating_mul(6)),
            Never,
            Epsilons(4),
            elementwise::stencil,
        ),
    ]
}

fn row_entries() -> Vec<Entry> {
    vec![
        entry(
            ("reduce_sum", "target = the sum along the last dimension"),
            &[read("source", NUMBERS), write("target", NUMBERS)],
            &[],
            (reduced, |views| first(views)),
            Never,
            EpsilonsPerTerm(1),
            rows::reduce_sum,
        ),
        entry(
            ("reduce_max", "target = the largest element along the last dimension"),
            &[read("source", NUMBERS), write("target", NUMBERS)],
            &[],
            (reduced_not_empty, |views| first(views)),
            Never,
            Exact,
            rows::reduce_max,
        ),
        entry(
            ("softmax", "target = exp(source), each row divided by its sum"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[flag("causal", false, "row i sees elements 0..=i only")],
            (one_shape, |views| elements(views).saturating_mul(10)),
            InPlace,
            EpsilonsPerTerm(16),
            rows::softmax,
        ),
        entry(
            (
                "layernorm",
                "target = rows of source with mean 0 and deviation 1, times gamma plus beta",
            ),
            &[
                read("source", FLOATS),
                read("gamma", FLOATS),
                read("beta", FLOATS),
                write("target", FLOATS),
            ],
            &[number("epsilon", 1e-5, "added to the variance")],
            (normed, |views| elements(views).saturating_mul(8)),
            InPlace,
            EpsilonsPerTerm(4),
            rows::layernorm,
        ),
        entry(
            ("rmsnorm", "target = rows of source divided by their root mean square, times gamma"),
            &[read("source", FLOATS), read("gamma", FLOATS), write("target", FLOATS)],
            &[number("epsilon", 1e-5, "added to the mean square")],
            (normed, |views| elements(views).saturating_mul(6)),
            InPlace,
            EpsilonsPerTerm(4),
            rows::rmsnorm,
        ),
        entry(
            ("embedding", "target = the rows of table that ids name"),
            &[read("table", FLOATS), read("ids", INDICES), write("target", FLOATS)],
            &[],
            (embedded, elements),
            Never,
            Exact,
            rows::embedding,
        ),
    ]
}

fn matrix_entries() -> Vec<Entry> {
    vec![
        entry(
            ("gemm", "c = alpha * op(a) * op(b) + beta * c"),
            &[
                read("a", FLOATS_AND_DOUBLE),
                read("b", FLOATS_AND_DOUBLE),
                update_times("c", FLOATS_AND_DOUBLE, "beta"),
            ],
            &[
                number("alpha", 1.0, "factor of the product"),
                number("beta", 0.0, "factor of what was there"),
                flag("transpose_a", false, "use a transposed"),
                flag("transpose_b", false, "use b transposed"),
            ],
            (multiplied, |views| {
                let depth = views[0].shape().iter().copied().max().unwrap_or(1);
                elements(views).saturating_mul(depth).saturating_mul(2)
            }),
            Never,
            EpsilonsPerTerm(1),
            matrix::gemm,
        ),
        entry(
            ("syrk", "lower triangle of c = alpha * a * aT + beta * c"),
            &[read("a", SINGLE), update("c", SINGLE)],
            &[
                number("alpha", 1.0, "factor of the product"),
                number("beta", 0.0, "factor of what was there"),
            ],
            (squared, |views| times_side(views, 1)),
            Never,
            EpsilonsPerTerm(1),
            matrix::syrk,
        ),
        entry(
            ("trsm", "b = the solution x of x * op(l) = alpha * b, l lower triangular"),
            &[read("l", SINGLE), update("b", SINGLE)],
            &[
                number("alpha", 1.0, "factor of the right-hand side"),
                flag("left", false, "solve op(l) * x = alpha * b instead"),
                flag("transpose", true, "use l transposed"),
            ],
            (solvable, |views| times_side(views, 0)),
            Never,
            EpsilonsPerTerm(4),
            triangular::trsm,
        ),
        entry(
            ("potrf", "a = the lower triangular l of a = l * lT"),
            &[update("a", SINGLE)],
            &[],
            (square, |views| times_side(views, 0) / 3),
            Never,
            EpsilonsPerTerm(4),
            triangular::potrf,
        ),
        entry(
            ("transpose", "target = source with rows and columns exchanged"),
            &[read("source", NUMBERS), write("target", NUMBERS)],
            &[],
            (transposed, elements),
            Never,
            Exact,
            matrix::transpose,
        ),
    ]
}

fn elements(views: &[View]) -> u64 {
    views.last().map_or(0, View::elements)
}

/// The elements, each as often as dimension `dim` of the first argument says.
fn times_side(views: &[View], dim: usize) -> u64 {
    elements(views).saturating_mul(views[0].shape().get(dim).copied().unwrap_or(1))
}

fn first(views: &[View]) -> u64 {
    views[0].elements()
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn one_shape(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let shapes: Vec<_> = views.iter().map(View::shape).collect();
    ensure(shapes.iter().all(|shape| *shape == shapes[0]), || {
        format!("the shapes {shapes:?} must be the same")
    })
}

fn all_alike(views: &[View], scalars: &[Scalar]) -> Result<(), String> {
    one_shape(views, scalars)?;
    let dtypes: Vec<_> = views.iter().map(|view| view.dtype().name()).collect();
    ensure(dtypes.iter().all(|dtype| *dtype == dtypes[0]), || {
        format!("the dtypes {} must be the same; `cast` converts", dtypes.join(", "))
    })
}

fn stencil_shapes(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let (source, target) = (views[0].shape(), views[1].shape());
    let bordered = source.len() == 2
        && target.len() == 2
        && target.iter().zip(source).all(|(inner, outer)| outer.checked_sub(2) == Some(*inner));
    ensure(bordered, || format!("source {source:?} must be target {target:?} and a border of one"))
}

fn reduced(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let (source, target) = (views[0].shape(), views[1].shape());
    let rest = source.split_last().map(|(_, rest)| rest);
    ensure(views[0].dtype() == views[1].dtype(), || {
        format!(
            "{} is reduced to {}: the dtypes must be the same",
            views[0].dtype(),
            views[1].dtype()
        )
    })?;
    ensure(rest == Some(target), || {
        format!("target {target:?} must be source {source:?} without its last dimension")
    })
}

fn reduced_not_empty(views: &[View], scalars: &[Scalar]) -> Result<(), String> {
    reduced(views, scalars)?;
    ensure(views[0].shape().last() != Some(&0), || "the largest of no elements".to_owned())
}

fn normed(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let (source, target) = (views[0].shape(), views[views.len() - 1].shape());
    ensure(source == target && !source.is_empty(), || {
        format!(
            "source {source:?} and target {target:?} must be the same, with a dimension at least"
        )
    })?;
    let width = &source[source.len() - 1..];
    ensure(views[1..views.len() - 1].iter().all(|view| view.shape() == width), || {
        format!("gamma and beta must have the shape {width:?} of a row")
    })
}

fn embedded(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let (table, ids, target) = (views[0].shape(), views[1].shape(), views[2].shape());
    let fits = table.len() == 2 && ids.len() == 1 && target == [ids[0], table[1]];
    ensure(fits, || {
        format!(
            "table {table:?} and ids {ids:?} must be [rows, width] and [n], target {target:?} [n, width]"
        )
    })
}

fn matrix_of(view: &View, name: &str) -> Result<[u64; 2], String> {
    view.shape().try_into().map_err(|_| format!("{name} {:?} must be a matrix", view.shape()))
}

fn multiplied(views: &[View], scalars: &[Scalar]) -> Result<(), String> {
    let (mut a, mut b) = (matrix_of(&views[0], "a")?, matrix_of(&views[1], "b")?);
    let c = matrix_of(&views[2], "c")?;
    if scalars[2].as_bool() {
        a.swap(0, 1);
    }
    if scalars[3].as_bool() {
        b.swap(0, 1);
    }
    ensure(a[1] == b[0] && c == [a[0], b[1]], || {
        format!("op(a) {a:?} times op(b) {b:?} does not give c {c:?}")
    })?;
    let double = |view: &View| view.dtype() == Dtype::F64;
    ensure(views.iter().all(double) || !views.iter().any(double), || {
        "f64 goes with f64 only".to_owned()
    })
}

fn squared(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let (a, c) = (matrix_of(&views[0], "a")?, matrix_of(&views[1], "c")?);
    ensure(c == [a[0], a[0]], || format!("a {a:?} times itself transposed does not give c {c:?}"))
}

fn solvable(views: &[View], scalars: &[Scalar]) -> Result<(), String> {
    let (l, b) = (matrix_of(&views[0], "l")?, matrix_of(&views[1], "b")?);
    let side = if scalars[1].as_bool() { b[0] } else { b[1] };
    ensure(l[0] == l[1] && l[0] == side, || format!("l {l:?} cannot be solved for b {b:?}"))
}

fn square(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let a = matrix_of(&views[0], "a")?;
    ensure(a[0] == a[1], || format!("a {a:?} must be square"))
}

fn transposed(views: &[View], _: &[Scalar]) -> Result<(), String> {
    let (source, target) = (matrix_of(&views[0], "source")?, matrix_of(&views[1], "target")?);
    ensure(source == [target[1], target[0]] && views[0].dtype() == views[1].dtype(), || {
        format!("target {target:?} is not source {source:?} transposed, of the same dtype")
    })
}
