use syncline_deps::Dtype;
use syncline_device::{
    Backend, Command, Deadline, DeviceError, Kernel, KernelArg, KernelSource, LaneKind,
};
use syncline_vulkan::conformance::elementwise;

use crate::support::device;

/// What submitting `text` as a kernel with one argument says.
fn error_of(text: &str, group: [u32; 3]) -> Option<DeviceError> {
    let device = device()?;
    let source = KernelSource::new(text, "main", group);
    let kernel = Kernel::builder("odd").source(Backend::Vulkan, source).build();
    let view = device.buffer(64).tensor(Dtype::F32, &[16]).unwrap();
    let command = Command::dispatch(&kernel, vec![KernelArg::inout(view)], vec![]);
    let lane = device.lane(LaneKind::Compute);
    let error = lane.submit(command.into()).expect_err("it cannot run");
    // A refusal is no failure: the lane goes on.
    lane.submit(syncline_device::Batch::new()).unwrap().wait(Deadline::NEVER).unwrap();
    Some(error)
}

#[test]
fn an_error_in_the_source_is_shown_with_its_line() {
    let text = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n\
                @compute @workgroup_size(1)\nfn main() { x[0] = nothing; }\n";
    let Some(error) = error_of(text, [1; 3]) else { return };
    let shown = error.to_string();
    assert!(matches!(error, DeviceError::KernelFailed { .. }), "{error:?}");
    assert!(shown.contains("`odd`") && shown.contains(":3:"), "{shown}");
    assert!(shown.contains("nothing"), "{shown}");
}

#[test]
fn what_does_not_fit_the_convention_is_refused_with_a_reason() {
    let kernel = |binding: &str, group: &str| {
        format!(
            "@group(0) @binding({binding}) var<storage, read_write> x: array<f32>;\n\
             @compute @workgroup_size({group})\nfn main() {{ x[0] = 1.0; }}\n"
        )
    };
    for (text, group, reason) in [
        (kernel("0", "2"), [1; 3], "@workgroup_size"),
        (kernel("7", "1"), [1; 3], "binding 7"),
        (kernel("0", "1").replace("main", "other"), [1; 3], "no `@compute` function `main`"),
        (kernel("0", "65536"), [65_536, 1, 1], "work items"),
    ] {
        let Some(error) = error_of(&text, group) else { return };
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
}

#[test]
fn an_argument_that_spans_more_than_can_be_bound_is_refused() {
    let Some(device) = device() else { return };
    let kernel = elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;");
    // The least that drivers must bind is 128 MiB; where more can be, there is nothing to refuse.
    let bytes = (128 << 20) + 4;
    let view = device.buffer(bytes).tensor(Dtype::F32, &[bytes / 4]).unwrap();
    let command = Command::dispatch(&kernel, vec![KernelArg::inout(view)], vec![]);
    match device.lane(LaneKind::Compute).submit(command.into()) {
        Ok(point) => point.wait(Deadline::NEVER).unwrap(),
        Err(error) => assert!(error.to_string().contains("split the view"), "{error}"),
    }
}

#[test]
fn strided_and_odd_placed_arguments_reach_their_elements() {
    let Some(device) = device() else { return };
    let kernel = elementwise("add_one", 1, "arg_0[at(0u, i)] += 1.0;");
    let all = device.buffer(4 * 30 * 40).tensor(Dtype::F32, &[30, 40]).unwrap();
    all.buffer().write(0, &vec![0f32; 1_200]).unwrap();
    let part = all.view().slice(0, 7..23).unwrap().slice(1, 3..29).unwrap();
    let turned = all.buffer().view(part.transpose(0, 1).unwrap()).unwrap();
    let command = Command::dispatch(&kernel, vec![KernelArg::inout(turned)], vec![]);
    let point = device.lane(LaneKind::Compute).submit(command.into()).unwrap();
    point.wait(Deadline::NEVER).unwrap();
    for (at, x) in all.to_vec::<f32>().unwrap().into_iter().enumerate() {
        let inside = (7..23).contains(&(at / 40)) && (3..29).contains(&(at % 40));
        assert_eq!(x, f32::from(u8::from(inside)), "element {at}");
    }
}
