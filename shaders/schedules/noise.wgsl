// The base with noise, not below `lowest`. The same for the same seed and count, on every device.
// `distribution`: 0 uniform, 1 gaussian, 2 cyclical, 3 decaying; see `optim.schedules.noisy`.
import package::elementwise::random::{random_normal, random_uniform};
import package::lib::math::precise_sin;
import package::lib::cycle::cycle;

const TWO_PI: f32 = 6.283185307179586;

fn noise(
    count: f32, base: f32, distribution: f32, first: f32, second: f32, steps: f32, lowest: f32, seed: f32
) -> f32 {
    let draw = random_uniform(u32(count), u32(seed), 0u, 0u);
    let decay = min(count / steps, 1.0);
    var added = first + (second - first) * draw;
    if distribution == 1.0 {
        added = first + second * random_normal(u32(count), u32(seed), 0u, 0u);
    } else if distribution == 2.0 {
        added = first * precise_sin(TWO_PI * (cycle(count, steps).at / steps));
    } else if distribution == 3.0 {
        added = (first + (second - first) * decay) * (2.0 * draw - 1.0);
    }
    return max(base + added, lowest);
}
