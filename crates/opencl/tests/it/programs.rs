use std::fs;
use std::path::PathBuf;

use syncline_device::registry::BackendProbe;
use syncline_device::{
    Backend, Command, Device, DeviceError, Grid, Kernel, KernelArg, KernelSource,
};
use syncline_opencl::{OpenClOptions, Probe};
use syncline_tensor::Dtype;

use crate::{devices, options};

fn kernel(text: &str, entry: &str) -> Kernel {
    // SAFETY: the tests below call it with the arguments that it is written for.
    let source = unsafe { KernelSource::native(Backend::OpenCl, text, entry, [64, 1, 1]) };
    let source = source.grid(Grid::Elements { arg: 0 });
    Kernel::builder(entry).source(source).build()
}

const SET: &str = "__kernel void set(__global uint *x, __global const uint *p) {
    if (get_global_id(0) < p[2]) x[p[0] + get_global_id(0)] = 7;
}";

/// Runs `kernel` on ten words, and returns them.
fn run(device: &dyn Device, kernel: &Kernel) -> Result<Vec<u32>, DeviceError> {
    let view = device.buffer(40).tensor(Dtype::U32, &[10])?;
    view.buffer().write(0, &[0u32; 10])?;
    let args = vec![KernelArg::inout(view.clone())];
    device.lanes()[0].submit(Command::dispatch(kernel, args, vec![]).into())?;
    view.to_vec()
}

#[test]
fn a_source_that_does_not_compile_is_refused_with_the_log() {
    let Some(devices) = devices(options(), 1) else { return };
    let wrong = kernel("__kernel void f(__global uint *x) { x[0] = no_such_thing; }", "f");
    for _ in 0..2 {
        let error = run(&*devices[0], &wrong).unwrap_err();
        assert!(error.to_string().contains("no_such_thing"), "{error}");
        assert!(error.to_string().contains("kernel `f`"), "{error}");
    }
    // Nothing was submitted: the lane goes on.
    assert_eq!(run(&*devices[0], &kernel(SET, "set")).unwrap(), [7; 10]);
}

#[test]
fn a_function_that_is_not_there_is_refused_by_its_name() {
    let Some(devices) = devices(options(), 1) else { return };
    for entry in ["other", "s\0t", ""] {
        let error = run(&*devices[0], &kernel(SET, entry)).unwrap_err();
        assert!(matches!(error, DeviceError::KernelFailed { .. }), "{error}");
    }
}

#[test]
fn a_kernel_with_other_arguments_is_refused() {
    let Some(devices) = devices(options(), 1) else { return };
    let few = kernel("__kernel void few(__global uint *x) { x[0] = 1; }", "few");
    let error = run(&*devices[0], &few).unwrap_err();
    assert!(matches!(error, DeviceError::BadArgument { arg: 1, .. }), "{error}");
    // SAFETY: as above.
    let source = unsafe { KernelSource::native(Backend::OpenCl, SET, "set", [1 << 20, 1, 1]) };
    let source = source.grid(Grid::One);
    let large = Kernel::builder("large").source(source).build();
    let error = run(&*devices[0], &large).unwrap_err();
    assert!(matches!(error, DeviceError::KernelRefuses { .. }), "{error}");
}

/// A directory of this test's own, removed at its end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn programs_are_kept_on_disk_and_what_is_corrupt_is_ignored() {
    let name = format!("syncline-opencl-programs-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    let files = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&directory.0).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let open = || {
        crate::probe(options(), 1)?;
        let probe = Probe::with_options(options().with_program_cache(Some(directory.0.clone())));
        Some(probe.open(0).unwrap())
    };
    let Some(device) = open() else { return };
    assert_eq!(run(&*device, &kernel(SET, "set")).unwrap(), [7; 10]);
    drop(device);
    let kept = files();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let written = fs::read(&kept[0]).unwrap();

    // Used again as it is: not written anew.
    let before = fs::metadata(&kept[0]).unwrap().modified().unwrap();
    assert_eq!(run(&*open().unwrap(), &kernel(SET, "set")).unwrap(), [7; 10]);
    assert_eq!(fs::metadata(&kept[0]).unwrap().modified().unwrap(), before);

    // Cut off, changed, emptied, or another file altogether: compiled anew and replaced.
    let mut changed = written.clone();
    changed[written.len() / 2] ^= 0x55;
    for wrong in [&written[..written.len() / 2], &changed, &[], b"not a program at all"] {
        fs::write(&kept[0], wrong).unwrap();
        assert_eq!(run(&*open().unwrap(), &kernel(SET, "set")).unwrap(), [7; 10]);
        assert_ne!(fs::read(&kept[0]).unwrap(), wrong, "it was not replaced");
    }

    // Another text is another file.
    let other = SET.replace('7', "8");
    assert_eq!(run(&*open().unwrap(), &kernel(&other, "set")).unwrap(), [8; 10]);
    assert_eq!(files().len(), 2);
}

#[test]
fn parts_of_a_device_keep_their_programs_too() {
    let name = format!("syncline-opencl-parts-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    let written = || {
        let files = fs::read_dir(&directory.0).into_iter().flatten();
        files.map(|file| file.unwrap().metadata().unwrap().modified().unwrap()).max()
    };
    let options = options().with_parts(2).with_program_cache(Some(directory.0.clone()));
    let Some(parts) = devices(options.clone(), 2) else { return };
    for part in &parts {
        assert_eq!(run(&**part, &kernel(SET, "set")).unwrap(), [7; 10]);
    }
    let before = written();
    assert!(before.is_some(), "nothing was kept");
    drop(parts);
    for part in devices(options, 2).iter().flatten() {
        assert_eq!(run(&**part, &kernel(SET, "set")).unwrap(), [7; 10]);
    }
    assert_eq!(written(), before, "what was kept is used");
}

#[test]
fn several_threads_ask_for_devices_at_once() {
    // The driver is asked for the first time in this process, by all of them: libtest runs other
    // tests beside this one, the test runner of the project does not.
    std::thread::scope(|threads| {
        let found: Vec<_> =
            (0..4).map(|_| threads.spawn(|| devices(OpenClOptions::default(), 1))).collect();
        found.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    });
}
