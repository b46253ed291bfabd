//! The cost of typed references and of the front end, to be counted by `valgrind --tool=callgrind`:
//! `row_access typed|raw` adds tiles of 64 by 64, `row_access front|below` submits empty tasks,
//! 20,000 of each.

use syncline_device::{Buffer, call_now};
use syncline_front::{Submit, Tensor};
use syncline_runtime::stream::{Stream, StreamOptions, Task};
use syncline_tensor::{Access, Dtype, View};

const SIDE: usize = 64;
const TIMES: usize = 20_000;

fn tiles() -> Result<[(Access, syncline_device::BufferView); 2], Box<dyn std::error::Error>> {
    let matrix = Buffer::from(vec![1.0f32; 4 * SIDE * SIDE]);
    let all = View::contiguous(Dtype::F32, &[2 * SIDE as u64, 2 * SIDE as u64])?;
    let tile = |row: u64, column: u64| {
        let side = SIDE as u64;
        all.slice(0, row * side..(row + 1) * side)?.slice(1, column * side..(column + 1) * side)
    };
    Ok([(Access::Input, matrix.view(tile(0, 0)?)?), (Access::InOut, matrix.view(tile(0, 1)?)?)])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let what = std::env::args().nth(1).unwrap_or_else(|| "typed".to_owned());
    let tiles = tiles()?;
    let options = StreamOptions { workers: 1, ..Default::default() };
    match what.as_str() {
        "typed" => call_now(&tiles, &[], |args| {
            let (from, mut into) = (args.tensor::<f32>(0)?, args.tensor_mut::<f32>(1)?);
            for _ in 0..TIMES {
                for (into, from) in into.rows_mut().zip(from.rows()) {
                    into.iter_mut().zip(from).for_each(|(x, y)| *x += y);
                }
                std::hint::black_box(&mut into);
            }
            Ok::<(), syncline_device::DeviceError>(())
        })??,
        "raw" => call_now(&tiles, &[], |args| {
            let [from, into] = [args.pointer(0)?.cast::<f32>(), args.pointer(1)?.cast::<f32>()];
            for _ in 0..TIMES {
                raw_add(from, into);
                std::hint::black_box(into);
            }
            Ok::<(), syncline_device::DeviceError>(())
        })??,
        "front" => {
            let (stream, x) = (Stream::new(options)?, Tensor::from(vec![0.0f32]));
            stream.adopt(x.buffer())?;
            for _ in 0..TIMES {
                stream.task("empty", x.update()).run(|_| ())?;
            }
            stream.wait_all()?;
        }
        _ => {
            let (stream, x) = (Stream::new(options)?, Tensor::from(vec![0.0f32]));
            stream.adopt(x.buffer())?;
            for _ in 0..TIMES {
                let task = Task::new("empty").inout(x.buffer(), x.view());
                stream.submit(task.body(|args| args.slice_mut::<f32>(0).map(drop)))?;
            }
            stream.wait_all()?;
        }
    }
    Ok(())
}

/// The same by pointers.
fn raw_add(from: *const f32, into: *mut f32) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            let at = 2 * SIDE * row + column;
            // SAFETY: both tiles have 64 rows of 64 elements in a matrix 128 wide, and no byte in
            // common.
            unsafe { *into.add(at) += *from.add(at) };
        }
    }
}
