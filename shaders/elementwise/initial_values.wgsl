// First values of parameters. The inverse error function: Giles 2010, "Approximating the erfinv function", table 5.
import package::lib::math::precise_log;

const FARTHEST: f32 = 17.0; // beyond -log of the smallest 1 - x² that is not 0

fn near_zero(w: f32) -> f32 {
    var p = 2.81022636e-8;
    p = 3.43273939e-7 + p * w;
    p = -3.5233877e-6 + p * w;
    p = -4.39150654e-6 + p * w;
    p = 0.00021858087 + p * w;
    p = -0.00125372503 + p * w;
    p = -0.00417768164 + p * w;
    p = 0.246640727 + p * w;
    return 1.50140941 + p * w;
}

fn in_tails(w: f32) -> f32 {
    var p = -0.000200214257;
    p = 0.000100950558 + p * w;
    p = 0.00134934322 + p * w;
    p = -0.00367342844 + p * w;
    p = 0.00573950773 + p * w;
    p = -0.0076224613 + p * w;
    p = 0.00943887047 + p * w;
    p = 1.00167406 + p * w;
    return 2.83297682 + p * w;
}

fn erfinv(x: f32) -> f32 {
    let w = min(-precise_log((1.0 - x) * (1.0 + x)), FARTHEST);
    return x * select(in_tails(sqrt(w) - 3.0), near_zero(w - 2.5), w < 5.0);
}

// Of a uniform number between the values of the error function at the two ends.
fn truncated_normal(uniform: f32, mean: f32, deviation_times_root_2: f32, low: f32, high: f32) -> f32 {
    return clamp(mean + deviation_times_root_2 * erfinv(uniform), low, high);
}

fn eye(index: u32, first: u32, columns: u32) -> f32 {
    return select(0.0, 1.0, (first + index) / columns == (first + index) % columns);
}
