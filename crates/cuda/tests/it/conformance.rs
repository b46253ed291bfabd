use syncline_cuda::{Probe, conformance::suite};
use syncline_device::registry::BackendProbe;
use syncline_device::{Backend, DeviceRegistry, DeviceSpec};

#[test]
fn every_device_passes_every_case() {
    let probe = Probe::new();
    let devices = match probe.probe() {
        Ok(devices) => devices,
        Err(reason) => return eprintln!("SKIPPED: {reason}"),
    };
    for info in devices {
        let report = suite().run(&probe.open(info.spec.index).unwrap());
        assert!(report.is_success(), "{report}");
        println!("{report}");
    }
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    let mut registry = DeviceRegistry::new();
    registry.register(Box::new(Probe::new()));
    let found = registry.probe();
    let found = found.iter().find(|found| found.backend == Backend::Cuda).unwrap();
    let Err(reason) = &found.devices else { return eprintln!("SKIPPED: there is a device") };
    assert!(reason.contains("libcuda"), "{reason}");
    let error = registry.open(DeviceSpec::new(Backend::Cuda, 0)).unwrap_err();
    assert!(error.to_string().contains(reason.as_str()), "{error}");
}
