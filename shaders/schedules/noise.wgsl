// The base with noise, not below the offset. The same for the same seed and count, on every device.
import package::elementwise::random::{random_normal, random_uniform};
import package::lib::math::precise_sin;
import package::schedules::parameters::{Parameters, cycle};

const TWO_PI: f32 = 6.283185307179586;

fn noise(count: f32, base: f32, p: Parameters) -> f32 {
    let draw = random_uniform(u32(count), u32(p.rest), 0u, 0u);
    let decay = min(count / p.steps, 1.0);
    var added = p.start + (p.end - p.start) * draw; // uniform
    if p.stairs == 1.0 {
        added = p.start + p.end * random_normal(u32(count), u32(p.rest), 0u, 0u);
    } else if p.stairs == 2.0 {
        added = p.start * precise_sin(TWO_PI * (cycle(count, p.steps).at / p.steps));
    } else if p.stairs == 3.0 {
        added = (p.start + (p.end - p.start) * decay) * (2.0 * draw - 1.0);
    }
    return max(base + added, p.offset);
}
