//! The kernels that the suite dispatches, for the CPU; other backends bring theirs.

use syncline_device::{DeviceError, Kernel, KernelArgs};

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
    let (a, b) = (args.strided::<f32>(0)?, args.strided::<f32>(1)?);
    let shape = args.view(2)?.shape().to_vec();
    if a.shape() != shape || b.shape() != shape {
        let message = format!("{:?} and {:?} for {shape:?}", a.shape(), b.shape());
        return Err(DeviceError::BadArgument { arg: 2, message });
    }
    for (number, sum) in (0..).zip(args.slice_mut::<f32>(2)?) {
        let (mut rest, mut index) = (number, vec![0; shape.len()]);
        for (at, &size) in index.iter_mut().zip(&shape).rev() {
            (*at, rest) = (rest % size, rest / size);
        }
        *sum = a.get(&index) + b.get(&index);
    }
    Ok(())
}
