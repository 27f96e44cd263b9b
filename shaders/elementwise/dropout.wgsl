// Dropout by counter (Hinton et al. 2012, arXiv:1207.0580): an element is kept if its random number is at least `p`.
import package::elementwise::random::draw_uniform;

fn dropout(
    x: f32, index: u32, seed_low: u32, seed_high: u32, stream: u32, replay: u32, first: u32, p: f32, scale: f32,
) -> f32 {
    return select(0.0, x * scale, draw_uniform(index, seed_low, seed_high, stream, replay, first) >= p);
}
