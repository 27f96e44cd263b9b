// Reduce a hyper-parameter when a metric has stopped improving, as torch's ReduceLROnPlateau: the metric stays here.
import package::lib::math::precise_log;

struct Row { lowest: f32, at: u32, one_minus_at: u32, log_at: u32 }
struct Progress { best: f32, bad_epochs: f32, cooldown: f32 }
// `better`: +1 if larger is better, -1 if smaller; a change counts from best * scale + margin on.
struct PlateauParameters {
    better: f32, scale: f32, margin: f32, factor: f32, patience: f32, cooldown: f32, eps: f32,
}

@group(0) @binding(0) var<storage, read> metric: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<Row>;
@group(0) @binding(2) var<storage, read_write> progress: array<Progress>;
@group(0) @binding(3) var<storage, read_write> hyper: array<f32>;
@group(0) @binding(4) var<uniform> parameters: PlateauParameters;

const NOWHERE: u32 = 0xffffffffu;

fn reduce(row: Row) {
    let value = max(hyper[row.at] * parameters.factor, row.lowest);
    if hyper[row.at] - value <= parameters.eps {
        return;
    }
    hyper[row.at] = value;
    if row.one_minus_at != NOWHERE {
        hyper[row.one_minus_at] = 1.0 - value;
    }
    if row.log_at != NOWHERE {
        hyper[row.log_at] = select(precise_log(value), -100.0, value <= 0.0);
    }
}

@compute @workgroup_size(1)
fn main() {
    var now = progress[0];
    now.bad_epochs += 1.0;
    if parameters.better * metric[0] > parameters.better * (now.best * parameters.scale + parameters.margin) {
        now.best = metric[0];
        now.bad_epochs = 0.0;
    }
    if now.cooldown > 0.0 {
        now.cooldown -= 1.0;
        now.bad_epochs = 0.0;
    }
    if now.bad_epochs > parameters.patience {
        now.cooldown = parameters.cooldown;
        now.bad_epochs = 0.0;
        for (var number = 0u; number < arrayLength(&rows); number++) {
            reduce(rows[number]);
        }
    }
    progress[0] = now;
}
