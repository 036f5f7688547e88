fn main() { println!("{:?}", tch::Tensor::from_slice(&[1.0f32, 2.0]).sum(tch::Kind::Float)); }
