use syncline_front::{Serial, Submit, Tensor};

fn main() {
    let (x, factor) = (Tensor::from(vec![1.0f32]), 2.0);
    let _ = Serial.task("one", x.update()).run(|mut x| x.apply(|x| x * factor));
}
