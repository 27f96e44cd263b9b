// Reptile (Nichol et al. 2018, arXiv:1803.02999, algorithms 1 and 2): after the inner steps of each task the parameters
// return to where they began; after the last one they move towards the mean of where the tasks led.
struct Hyper { epsilon: f32, tasks: f32 }

struct Scalars { step: f32, task: f32, is_last: f32 }

struct State { meta_param: f32, total: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let task = s.task + 1.0;
    let is_last = task >= h.tasks;
    return Scalars(s.step + 1.0, select(task, 0.0, is_last), select(0.0, 1.0, is_last));
}

fn update(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let total = state.total + (param - state.meta_param);
    let is_last = s.is_last == 1.0;
    let moved = state.meta_param + h.epsilon / h.tasks * total;
    let next = select(state.meta_param, moved, is_last);
    return Updated(next, State(next, select(total, 0.0, is_last)));
}
