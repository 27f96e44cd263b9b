// Sums of rows, of one array or of two.

fn sum(x: f32) -> f32 {
    return x;
}

fn second_sum(second: f32) -> f32 {
    return second;
}
