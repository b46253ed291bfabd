//! The table of built-in kernels.

use syncline_deps::{Dtype, View};
use syncline_device::{DeviceError, Kernel, KernelArgs, Scalar};

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
        tolerance,
    };
    let choices = choices(scalars);
    let fits = move |views: &[View]| fits_some(shapes, views, &choices);
    let builder = Kernel::builder(name).cpu(body);
    Entry { signature, kernel: compiled::attach(builder, name, parameters, fits).build() }
}

/// The scalars by default, and with every other choice of truth values: what a source is selected by does not include
/// them.
fn choices(scalars: &[ScalarParameter]) -> Vec<Vec<Scalar>> {
    let mut choices = vec![Vec::new()];
    for scalar in scalars {
        let both = match scalar.default {
            Scalar::Bool(default) => vec![Scalar::Bool(default), Scalar::Bool(!default)],
            other => vec![other],
        };
        let longer = |choice: &Vec<Scalar>| {
            let choice = choice.clone();
            both.iter().map(move |&scalar| [&choice[..], &[scalar]].concat()).collect::<Vec<_>>()
        };
        choices = choices.iter().flat_map(longer).collect();
    }
    choices
}

fn fits_some(shapes: Shapes, views: &[View], choices: &[Vec<Scalar>]) -> Result<(), String> {
    let first = shapes(views, &choices[0]);
    if first.is_ok() || choices[1..].iter().any(|choice| shapes(views, choice).is_ok()) {
        return Ok(());
    }
    first
}

/// Every built-in kernel.
pub fn builtin() -> Vec<Entry> {
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
            Exact,
            elementwise::fill,
        ),
        entry(
            ("copy", "target = source"),
            &[one("source"), write("target", NUMBERS)],
            &[],
            alike,
            Exact,
            elementwise::copy,
        ),
        entry(
            ("cast", "target = source, rounded to the target's dtype"),
            &[one("source"), write("target", NUMBERS)],
            &[],
            same,
            Epsilons(1),
            elementwise::cast,
        ),
        entry(
            ("add", "target = left + right"),
            &[one("left"), one("right"), write("target", NUMBERS)],
            &[],
            alike,
            Exact,
            elementwise::add,
        ),
        entry(
            ("sub", "target = left - right"),
            &[one("left"), one("right"), write("target", NUMBERS)],
            &[],
            alike,
            Exact,
            elementwise::sub,
        ),
        entry(
            ("mul", "target = left * right"),
            &[one("left"), one("right"), write("target", NUMBERS)],
            &[],
            alike,
            Exact,
            elementwise::mul,
        ),
        entry(
            ("scale", "target = alpha * source"),
            &[one("source"), write("target", NUMBERS)],
            &[number("alpha", 1.0, "the factor")],
            alike,
            Exact,
            elementwise::scale,
        ),
        entry(
            ("axpy", "target += alpha * source"),
            &[one("source"), update("target", NUMBERS)],
            &[number("alpha", 1.0, "the factor")],
            alike,
            Epsilons(1),
            elementwise::axpy,
        ),
        entry(
            ("gelu", "target = source * its share in the normal distribution"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[flag("approximate", false, "by tanh instead of the error function")],
            (one_shape, |views| 16 * elements(views)),
            Epsilons(16),
            elementwise::gelu,
        ),
        entry(
            ("silu", "target = source / (1 + exp(-source))"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[],
            (one_shape, |views| 8 * elements(views)),
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
            (stencil_shapes, |views| 6 * elements(views)),
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
            EpsilonsPerTerm(1),
            rows::reduce_sum,
        ),
        entry(
            ("reduce_max", "target = the largest element along the last dimension"),
            &[read("source", NUMBERS), write("target", NUMBERS)],
            &[],
            (reduced_not_empty, |views| first(views)),
            Exact,
            rows::reduce_max,
        ),
        entry(
            ("softmax", "target = exp(source), each row divided by its sum"),
            &[read("source", FLOATS), write("target", FLOATS)],
            &[flag("causal", false, "row i sees elements 0..=i only")],
            (one_shape, |views| 10 * elements(views)),
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
            (normed, |views| 8 * elements(views)),
            EpsilonsPerTerm(4),
            rows::layernorm,
        ),
        entry(
            ("rmsnorm", "target = rows of source divided by their root mean square, times gamma"),
            &[read("source", FLOATS), read("gamma", FLOATS), write("target", FLOATS)],
            &[number("epsilon", 1e-5, "added to the mean square")],
            (normed, |views| 6 * elements(views)),
            EpsilonsPerTerm(4),
            rows::rmsnorm,
        ),
        entry(
            ("embedding", "target = the rows of table that ids name"),
            &[read("table", FLOATS), read("ids", INDICES), write("target", FLOATS)],
            &[],
            (embedded, elements),
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
                2 * elements(views) * views[0].shape().iter().copied().max().unwrap_or(1)
            }),
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
            (squared, |views| elements(views) * views[0].shape().get(1).copied().unwrap_or(1)),
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
            (solvable, |views| elements(views) * views[0].shape().first().copied().unwrap_or(1)),
            EpsilonsPerTerm(4),
            triangular::trsm,
        ),
        entry(
            ("potrf", "a = the lower triangular l of a = l * lT"),
            &[update("a", SINGLE)],
            &[],
            (square, |views| elements(views) * views[0].shape().first().copied().unwrap_or(1) / 3),
            EpsilonsPerTerm(4),
            triangular::potrf,
        ),
        entry(
            ("transpose", "target = source with rows and columns exchanged"),
            &[read("source", NUMBERS), write("target", NUMBERS)],
            &[],
            (transposed, elements),
            Exact,
            matrix::transpose,
        ),
    ]
}

fn elements(views: &[View]) -> u64 {
    views.last().map_or(0, View::elements)
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
        && target.iter().zip(source).all(|(inner, outer)| inner + 2 == *outer);
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
