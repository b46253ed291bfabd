use syncline_device::{Command, Deadline, DeviceError, Kernel, KernelArg, KernelSource, LaneKind};
use syncline_tensor::Dtype;
use syncline_vulkan::conformance::elementwise;

use crate::support::device;

/// What submitting `text` as a kernel with one argument says.
fn error_of(text: &str, group: [u32; 3]) -> Option<DeviceError> {
    let device = device()?;
    let source = KernelSource::wgsl(text, "main", group);
    let kernel = Kernel::builder("odd").source(source).build();
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

/// Indices that are known only when the kernel runs, so that the compiler cannot refuse them.
const OUT_OF_BOUNDS: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @group(0) @binding(1) var<storage, read> params: array<u32>;
    var<workgroup> shared_words: array<u32, 4>;
    @compute @workgroup_size(1)
    fn main() {
        var own: array<u32, 4>;
        for (var at = 1u; at < 0x40000000u; at *= 2u) {
            let far = at + params[1];
            x[far] = 7u;
            x[0u - far] = 7u;
            own[far] = own[far * 3u] + 1u;
            shared_words[far] = shared_words[0u - far] + params[far];
            x[far] += own[far] + shared_words[far];
        }
    }";

#[test]
fn wgsl_that_indexes_out_of_bounds_reaches_nothing_but_its_argument() {
    let Some(device) = device() else { return };
    // Pieces of the same memory, before and behind the argument.
    let around: Vec<_> = (0..24).map(|_| device.buffer(256)).collect();
    for buffer in &around {
        buffer.write(0, &[0xA5A5_A5A5u32; 64]).unwrap();
    }
    let source = KernelSource::wgsl(OUT_OF_BOUNDS, "main", [1; 3]);
    let kernel = Kernel::builder("far").source(source).build();
    let whole = around[12].tensor(Dtype::U32, &[64]).unwrap();
    let part = whole.buffer().view(whole.view().slice(0, 16..32).unwrap()).unwrap();
    let command = Command::dispatch(&kernel, vec![KernelArg::inout(part)], vec![]);
    let point = device.lane(LaneKind::Compute).submit(command.into()).unwrap();
    point.wait(Deadline::NEVER).unwrap();
    for (at, buffer) in around.iter().enumerate() {
        let words = buffer.read::<u32>(0, 64).unwrap();
        let beyond = if at == 12 { &words[32..] } else { &words[..] };
        assert!(beyond.iter().all(|&word| word == 0xA5A5_A5A5), "buffer {at}: {words:x?}");
    }
    assert_ne!(around[12].read::<u32>(0, 32).unwrap(), [0xA5A5_A5A5; 32], "it ran");
}

#[test]
fn wgsl_that_indexes_an_argument_without_elements_reaches_nothing() {
    let Some(device) = device() else { return };
    let text = OUT_OF_BOUNDS
        .replace("@binding(1)", "@binding(2)")
        .replace(
            "var<workgroup>",
            "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n var<workgroup>",
        )
        .replace("x[far] = 7u;", "x[far] = 7u; y[at - 1u] = params[19];");
    let source = KernelSource::wgsl(text, "main", [1; 3]);
    let kernel = Kernel::builder("far").source(source).build();
    let empty = device.buffer(0).tensor(Dtype::U32, &[0]).unwrap();
    let y = device.buffer(16).tensor(Dtype::U32, &[4]).unwrap();
    let args = || vec![KernelArg::inout(empty.clone()), KernelArg::inout(y.clone())];
    let lane = device.lane(LaneKind::Compute);
    for _ in 0..2 {
        // The parameters say the rank of the second argument: writes to the first must not reach
        // them.
        let command = Command::dispatch(&kernel, args(), vec![]);
        lane.submit(command.into()).unwrap().wait(Deadline::NEVER).unwrap();
        assert_eq!(y.to_vec::<u32>().unwrap()[0], 1);
    }
}

#[test]
fn wgsl_that_could_write_what_its_task_reads_is_refused() {
    let Some(device) = device() else { return };
    let kernel = |x: &str, params: &str, element: &str| {
        let text = format!(
            "@group(0) @binding(0) var<storage, {x}> x: array<{element}>;\n\
             @group(0) @binding(1) var<storage, {params}> p: array<u32>;\n\
             @compute @workgroup_size(1)\nfn main() {{ _ = p[0]; }}\n"
        );
        Kernel::builder("odd").source(KernelSource::wgsl(text, "main", [1; 3])).build()
    };
    let view = device.buffer(64).tensor(Dtype::F32, &[3]).unwrap();
    let submit = |kernel: &Kernel, arg: KernelArg| {
        let point = device
            .lane(LaneKind::Compute)
            .submit(Command::dispatch(kernel, vec![arg], vec![]).into());
        point.map(|point| point.wait(Deadline::NEVER).unwrap())
    };
    let writes = kernel("read_write", "read", "f32");
    submit(&writes, KernelArg::inout(view.clone())).unwrap();
    let refused = submit(&writes, KernelArg::input(view.clone())).unwrap_err().to_string();
    assert!(refused.contains("argument 0 is not written by the task"), "{refused}");
    submit(&kernel("read", "read", "f32"), KernelArg::input(view.clone())).unwrap();
    let parameters = kernel("read", "read_write", "f32");
    let refused = submit(&parameters, KernelArg::input(view.clone())).unwrap_err().to_string();
    assert!(refused.contains("bound to the parameters"), "{refused}");
    // Of a type that is larger than the argument there is no element to fall back on.
    let wide = kernel("read", "read", "vec4<f32>");
    let refused = submit(&wide, KernelArg::input(view)).unwrap_err().to_string();
    assert!(refused.contains("spans 12 bytes") && refused.contains("of 16"), "{refused}");
}
