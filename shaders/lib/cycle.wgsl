// A count within periods. Counts are whole numbers below 2^24, exact in f32.

struct Cycle { number: f32, at: f32 }

// Which period it is, and the place in it; right at its ends too, where the quotient is not: WGSL allows a division to be
// off by 2.5 ulp, and NVIDIA's Vulkan driver makes use of that.
fn cycle(count: f32, period: f32) -> Cycle {
    let guess = floor(count / period);
    let at = count - guess * period;
    let change = select(0.0, 1.0, at >= period) - select(0.0, 1.0, at < 0.0);
    return Cycle(guess + change, at - change * period);
}
