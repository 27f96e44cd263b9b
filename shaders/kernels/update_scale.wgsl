// The scale of a loss after a step (Micikevicius et al. 2018, arXiv:1710.03740), by the rule of torch.amp.GradScaler: smaller
// after gradients that were not finite, larger after growth_interval steps in a row without.
struct Rule { growth_factor: f32, backoff_factor: f32, growth_interval: f32 }

@group(0) @binding(0) var<storage, read_write> scaler: array<f32>; // scale, found_inf, growth_tracker
@group(0) @binding(1) var<uniform> rule: Rule;

const LARGEST: f32 = 3.4028234e38;
const SMALLEST: f32 = 1.1754944e-38; // the smallest that no device takes for 0

@compute @workgroup_size(1)
fn main() {
    let scale = scaler[0];
    var next = scale;
    var tracker = scaler[2] + 1.0;
    if scaler[1] != 0.0 {
        next = max(scale * rule.backoff_factor, SMALLEST);
        tracker = 0.0;
    } else if tracker == rule.growth_interval {
        tracker = 0.0;
        if scale <= LARGEST / rule.growth_factor {
            next = scale * rule.growth_factor;
        }
    }
    scaler[0] = next;
    scaler[1] = 0.0;
    scaler[2] = tracker;
}
