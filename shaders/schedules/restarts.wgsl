// Cosine annealing from the base to the offset with restarts (Loshchilov & Hutter 2017, arXiv:1608.03983): the first
// period takes `steps`, each next one `growth` times the one before, a whole number. 24 times 2 are all counts.
import package::schedules::cosine::cosine;
import package::lib::cycle::cycle;

fn restarts(count: f32, base: f32, steps: f32, growth: f32, offset: f32) -> f32 {
    var at = select(count, cycle(count, steps).at, growth == 1.0);
    var period = steps;
    for (var number = 0; number < 24; number++) {
        let is_over = at >= period;
        at = select(at, at - period, is_over);
        period = select(period, period * growth, is_over);
    }
    return cosine(at, base, 1.0, 0.0, period, period, 1.0, offset, 2.0 * period);
}
