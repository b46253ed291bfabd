//! A kernel from a shared object.

use std::process::Command;

use syncline_device::{Backend, Scalar};
use syncline_kernels::load_shared_object;
use syncline_tensor::{Access, Dtype};
use syncline_testing::Rng;

use crate::support::{Held, run};

const SOURCE: &str = "
struct syncline_arg { void *data; const unsigned long long *shape; const long long *strides; unsigned int rank; unsigned int element_bytes; };
int shift(const struct syncline_arg *args, unsigned int arg_count, const double *scalars, unsigned int scalar_count) {
    if (arg_count != 1 || scalar_count != 1 || args[0].rank != 1 || args[0].element_bytes != 4) return 3;
    for (unsigned long long i = 0; i < args[0].shape[0]; i++)
        *(float *)((char *)args[0].data + (long long)i * args[0].strides[0]) += (float)scalars[0];
    return 0;
}";

#[test]
fn a_function_of_a_shared_object_is_a_kernel() {
    let folder = std::env::temp_dir().join(format!("syncline-foreign-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("shift.c"), folder.join("libshift.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler").success());

    let path = library.to_str().unwrap();
    // SAFETY: the function above keeps to the interface.
    let kernel = unsafe { load_shared_object("shift", path, "shift") }.unwrap();
    let mut rng = Rng::new(1);
    let mut held = vec![Held::random_layout(&mut rng, Dtype::F32, &[5], Access::InOut)];
    held[0].set(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    run(&kernel, &mut held, &[Scalar::F64(0.5)]).unwrap();
    assert_eq!(held[0].get().values, [1.5, 2.5, 3.5, 4.5, 5.5]);
    let error = run(&kernel, &mut held, &[]).unwrap_err();
    assert!(error.contains("returned 3"), "{error}");

    // It knows nothing of blocks: each would do all of the work, at the same time as the others.
    let error = kernel.check(Backend::Cpu, &[held[0].arg(0)], &[], 4).unwrap_err().to_string();
    assert!(error.contains("4 blocks"), "{error}");

    // SAFETY: nothing is called.
    let missing = unsafe { load_shared_object("shift", path, "shrift") }.unwrap_err();
    assert!(missing.to_string().contains("shrift"), "{missing}");
    std::fs::remove_dir_all(&folder).unwrap();
}
