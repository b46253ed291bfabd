//! The chain of kernels with `wgpu`: one encoder for all of them.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::chain::ITEMS;
use super::vulkan::SOURCE;

/// A device of `wgpu`, with the kernel and its arguments.
pub struct Wgpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
}

impl Wgpu {
    pub fn new() -> Self {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let adapter = ready(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
            .expect("there is a driver");
        let (device, queue) = ready(adapter.request_device(&wgpu::DeviceDescriptor::default()))
            .expect("a device with the usual limits");
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(SOURCE.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("bump"),
            compilation_options: Default::default(),
            cache: None,
        });
        let buffer = |bytes: u64| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: bytes,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        };
        let (elements, parameters) = (buffer(4 * ITEMS as u64), buffer(72));
        queue.write_buffer(&parameters, 8, &(ITEMS as u32).to_ne_bytes());
        let [elements, parameters] = [(0, &elements), (1, &parameters)].map(|(binding, buffer)| {
            wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() }
        });
        let bindings = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[elements, parameters],
        });
        Self { device, queue, pipeline, bindings }
    }

    /// `count` kernels in one pass of one encoder, submitted and awaited.
    pub fn one_encoder(&self, count: usize) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        (0..count).for_each(|_| pass.dispatch_workgroups(1, 1, 1));
        drop(pass);
        self.queue.submit([encoder.finish()]);
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("nothing fails");
    }
}

/// What `future` gives. On native backends those of `wgpu` are done when they are asked.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}
