//! Integers, bit for bit, and arguments that are the same bytes.

use syncline_device::{KernelArgs, RawArg, Scalar};
use syncline_kernels::Library;
use syncline_tensor::{Access, Dtype, View};
use syncline_testing::for_seeds;

use crate::support::{Held, run};

#[test]
fn integers_wrap_around() {
    let library = Library::builtin();
    for_seeds("integers_wrap_around", 50, |rng| {
        let (a, b) = (rng.next_u64() as i32, rng.next_u64() as i32);
        let cases =
            [("add", a.wrapping_add(b)), ("sub", a.wrapping_sub(b)), ("mul", a.wrapping_mul(b))];
        for (name, wanted) in cases {
            let mut held: Vec<Held> = [Access::Input, Access::Input, Access::OutputExisting]
                .map(|access| Held::random_layout(rng, Dtype::I32, &[1], access))
                .into();
            held[0].set(&[f64::from(a)]);
            held[1].set(&[f64::from(b)]);
            run(&library.get(name).unwrap().kernel, &mut held, &[]).unwrap();
            assert_eq!(held[2].get().values, [f64::from(wanted)], "{a} {name} {b}");
        }
    });
}

#[test]
fn large_integers_are_filled_and_copied_whole() {
    let library = Library::builtin();
    let value = i64::MAX - 12;
    let mut bytes = [0u8; 16];
    let view = |at: u64| View::strided(Dtype::I64, at, &[1], &[8]).unwrap();
    let base = bytes.as_mut_ptr();
    let raw = [
        RawArg { base, view: view(0), writes: true },
        RawArg { base, view: view(8), writes: true },
    ];
    let scalars = [Scalar::I64(value)];
    // SAFETY: the bytes are this test's own.
    let mut fill = unsafe { KernelArgs::from_raw(&raw[..1], &scalars) };
    library.get("fill").unwrap().kernel.call(&mut fill).unwrap();
    // SAFETY: as above.
    let mut copy = unsafe { KernelArgs::from_raw(&raw, &[]) };
    library.get("copy").unwrap().kernel.call(&mut copy).unwrap();
    assert_eq!(bytes[..8], value.to_le_bytes());
    assert_eq!(bytes[8..], value.to_le_bytes());
}

#[test]
fn a_target_may_be_one_of_the_sources() {
    let library = Library::builtin();
    let mut numbers: Vec<f32> = (0..600).map(|n| n as f32).collect();
    let view = View::contiguous(Dtype::F32, &[600]).unwrap();
    let base = numbers.as_mut_ptr().cast();
    let raw = [false, false, true].map(|writes| RawArg { base, view, writes });
    // SAFETY: the numbers are this test's own.
    let mut args = unsafe { KernelArgs::from_raw(&raw, &[]) };
    library.get("add").unwrap().kernel.call(&mut args).unwrap();
    assert!(numbers.iter().enumerate().all(|(n, &x)| x == 2.0 * n as f32));
}
