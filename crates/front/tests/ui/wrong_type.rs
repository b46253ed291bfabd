use syncline_front::{Serial, Submit, Tensor};

fn main() {
    let x = Tensor::from(vec![1.0f32]);
    let _ = Serial.task("one", x.update()).run(|mut x| x.fill(1u8));
}
