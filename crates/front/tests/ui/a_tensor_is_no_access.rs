use syncline_front::{Serial, Submit, Tensor};

fn main() {
    let x = Tensor::from(vec![1.0f32]);
    let _ = Serial.task("one", &x).run(|_| ());
}
