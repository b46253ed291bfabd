use std::sync::Mutex;

use syncline_front::{Serial, Submit, Tensor, TensorRef};

fn main() {
    static KEPT: Mutex<Option<TensorRef<'static, f32>>> = Mutex::new(None);
    let x = Tensor::from(vec![1.0f32]);
    let _ = Serial.task("one", x.read()).run(|x| *KEPT.lock().unwrap() = Some(x));
}
