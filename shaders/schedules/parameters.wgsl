// What the pieces of schedules have in common. Counts are whole numbers below 2^24, exact in f32.

struct Parameters {
    steps: f32, // how long it takes; of a triangle, its first side
    until: f32, // the count at its end: not the steps, where it begins between two counts
    start: f32, // the factor of the base at first
    end: f32, // and at last
    power: f32, // of the curve; or the ratio from one step to the next
    rest: f32, // log(ratio / power), for what the ratio has beyond f32
    offset: f32, // what the base is measured from
    period: f32, // after which it repeats
    stairs: f32, // not 0: counts whole steps or periods only; or the kind of noise
}

struct Cycle { number: f32, at: f32 }

// Which period it is, and the place in it; right at its ends too, where the quotient is not.
fn cycle(count: f32, period: f32) -> Cycle {
    let guess = floor(count / period);
    let at = count - guess * period;
    let change = select(0.0, 1.0, at >= period) - select(0.0, 1.0, at < 0.0);
    return Cycle(guess + change, at - change * period);
}
