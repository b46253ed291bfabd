//! A guard borrows the stream that keeps others off.
use syncline_runtime::stream::{Stream, StreamOptions};

fn main() {
    let guard = {
        let stream = Stream::new(StreamOptions::default()).unwrap();
        let buffer = stream.buffer(64).unwrap();
        stream.read(&buffer).unwrap()
    };
    println!("{:?}", guard.as_slice::<u8>());
}
