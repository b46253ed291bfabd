//! Every kernel against the plain reference, as a body on the CPU.

use syncline_device::Scalar;
use syncline_kernels::Library;
use syncline_tensor::{Access, Dtype};
use syncline_testing::for_seeds;

use crate::cases::{Case, dtypes};
use crate::support::{Held, run};

#[test]
fn kernels_compute_what_the_reference_does() {
    let library = Library::builtin();
    for_seeds("kernels_compute_what_the_reference_does", 20, |rng| {
        for entry in library.iter() {
            let name = entry.signature.name.as_str();
            for dtypes in dtypes(entry, rng) {
                let mut case = Case::random(entry, &dtypes, rng);
                let before: Vec<_> = case.held.iter().map(|held| held.bytes.clone()).collect();
                run(&entry.kernel, &mut case.held, &case.scalars)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                case.verify(name, &before);
            }
        }
    });
}

#[test]
fn what_lies_around_an_argument_stays() {
    let library = Library::builtin();
    for_seeds("what_lies_around_an_argument_stays", 40, |rng| {
        let entry = library.get("scale").unwrap();
        let shape = [rng.range(1..9), rng.range(1..9)];
        let mut held = vec![
            Held::random_layout(rng, Dtype::F32, &shape, Access::Input),
            Held::random_layout(rng, Dtype::F32, &shape, Access::OutputExisting),
        ];
        run(&entry.kernel, &mut held, &[Scalar::F32(0.0)]).unwrap();
        let places = held[1].places();
        for (at, &byte) in held[1].bytes.iter().enumerate() {
            let inside = places.iter().any(|&place| (place..place + 4).contains(&at));
            assert_eq!(byte, if inside { 0x80 * u8::from(at % 4 == 3 && byte != 0) } else { 0xA5 });
        }
    });
}
