// Reduce an option when a metric has stopped improving, as torch's ReduceLROnPlateau.
import package::schedules::option::{Option, option_of};

struct Row { at: f32, one_minus_at: f32, log_at: f32, lowest: f32, best: f32, bad_epochs: f32, cooldown_left: f32 }
struct Followed { row: Row, option: Option }
struct Watched { best: f32, bad_epochs: f32, cooldown_left: f32, is_due: bool }

// The progress after a metric, and whether the option is to be reduced.
// `better`: +1 if larger is better, -1 if smaller; a change counts from best * scale + margin on.
fn watch(
    metric: f32, best: f32, bad_epochs: f32, cooldown_left: f32,
    better: f32, scale: f32, margin: f32, patience: f32, cooldown: f32,
) -> Watched {
    let is_better = better * metric > better * (best * scale + margin);
    let is_cooling = cooldown_left > 0.0;
    let bad = select(bad_epochs + 1.0, 0.0, is_better || is_cooling);
    let left = select(cooldown_left, cooldown_left - 1.0, is_cooling);
    let is_due = bad > patience;
    return Watched(select(best, metric, is_better), select(bad, 0.0, is_due), select(left, cooldown, is_due), is_due);
}

fn reduced(current: f32, factor: f32, lowest: f32, eps: f32, is_due: bool) -> Option {
    let value = max(current * factor, lowest);
    return option_of(value, is_due && current - value > eps);
}

fn follow(
    row: Row, current: f32, metric: f32,
    better: f32, scale: f32, margin: f32, patience: f32, cooldown: f32, factor: f32, eps: f32,
) -> Followed {
    let now = watch(
        metric, row.best, row.bad_epochs, row.cooldown_left, better, scale, margin, patience, cooldown
    );
    let kept = Row(row.at, row.one_minus_at, row.log_at, row.lowest, now.best, now.bad_epochs, now.cooldown_left);
    return Followed(kept, reduced(current, factor, row.lowest, eps, now.is_due));
}
