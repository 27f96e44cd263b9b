// What devices are compared by: AdamW's first step for one element, without its bias corrections.
fn probe(param: f32, grad: f32, exp_avg: f32, exp_avg_sq: f32) -> f32 {
    let average = 0.9 * exp_avg + 0.1 * grad;
    let square = 0.999 * exp_avg_sq + 0.001 * grad * grad;
    return param - 0.001 * (0.01 * param + average / (sqrt(square) + 1e-8));
}
