//! The kernels that the suite dispatches, for the CPU; other backends bring theirs.

use crate::{DeviceError, Kernel, KernelArgs};

pub(super) fn by_name(name: &str) -> Kernel {
    match name {
        "add_one" => Kernel::cpu(name, add_one),
        "scale" => Kernel::cpu(name, scale),
        "add" => Kernel::cpu(name, add),
        "fails" => Kernel::cpu(name, |_: &mut KernelArgs<'_>| Err::<(), _>("as it was told to")),
        "panics" => Kernel::cpu(name, |_: &mut KernelArgs<'_>| -> () {
            std::panic::resume_unwind(Box::new("quietly"))
        }),
        _ => Kernel::builder(name).build(),
    }
}

fn add_one(args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    args.slice_mut::<f32>(0)?.iter_mut().for_each(|x| *x += 1.0);
    Ok(())
}

fn scale(args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    let factor = args.scalar(0)?.as_f32();
    args.slice_mut::<f32>(0)?.iter_mut().for_each(|x| *x *= factor);
    Ok(())
}

fn add(args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    let (a, b) = (args.slice::<f32>(0)?, args.slice::<f32>(1)?);
    let sums = args.slice_mut::<f32>(2)?;
    if a.len() != b.len() || a.len() != sums.len() {
        let message = format!("{} and {} elements for {}", a.len(), b.len(), sums.len());
        return Err(DeviceError::BadArgument { arg: 2, message });
    }
    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
        *sum = a + b;
    }
    Ok(())
}
