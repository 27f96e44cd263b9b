"""optax in float64, under our names of its options."""

import jax
import numpy as np
import optax

__all__ = ["dadapt_adam", "dog", "lamb", "lars", "ldog", "novograd", "prodigy"]

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def run(transform, params, grads, maximize=False, slots=None):
    """Apply a gradient transformation; `slots` gives the state by our names from optax's, for each parameter."""
    params = [np.asarray(param, np.float64) for param in params]
    state = transform.init(params)
    update = jax.jit(transform.update)
    for step_grads in grads:
        signed = [(-1.0 if maximize else 1.0) * np.asarray(grad, np.float64) for grad in step_grads]
        updates, state = update(signed, state, params)
        params = [np.asarray(param + change) for param, change in zip(params, updates, strict=True)]
    result = slots(state) if slots else {}
    return params, [{name: np.asarray(values[i]) for name, values in result.items()} for i in range(len(params))]


def moments(state):
    """Adam's, of the first transformation of a chain."""
    return {"exp_avg": state[0].mu, "exp_avg_sq": state[0].nu}


def lamb(params, grads, *, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
    """`optax.lamb`."""
    return run(optax.lamb(lr, *betas, eps, 0.0, weight_decay), params, grads, slots=moments)


def lion(params, grads, *, lr, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
    """`optax.lion`."""
    return run(
        optax.lion(lr, *betas, weight_decay=weight_decay), params, grads, maximize, lambda s: {"exp_avg": s[0].mu}
    )


def signum(params, grads, *, lr, momentum=0.9, maximize=False):
    """`optax.signum`."""
    return run(optax.signum(lr, momentum), params, grads, maximize, lambda s: {"exp_avg": s[0].ema})


def adabelief(
    params, grads, *, lr, betas=(0.9, 0.999), eps=1e-16, weight_decay=0.0, decoupled_weight_decay=True, maximize=False
):
    """`optax.adabelief`, with weight decay before or after."""
    decay = optax.add_decayed_weights(weight_decay)
    scale = optax.scale_by_belief(*betas, eps, eps)
    first, second = (scale, decay) if decoupled_weight_decay else (decay, scale)
    place = 0 if decoupled_weight_decay else 1
    transform = optax.chain(first, second, optax.scale_by_learning_rate(lr))
    return run(transform, params, grads, maximize, lambda s: {"exp_avg": s[place].mu, "exp_avg_var": s[place].nu})


def yogi(
    params,
    grads,
    *,
    lr,
    betas=(0.9, 0.999),
    eps=1e-3,
    initial_accumulator=1e-6,
    weight_decay=0.0,
    maximize=False,
):
    """`optax.yogi`, with an L2 penalty."""
    scale = optax.scale_by_yogi(*betas, eps, initial_accumulator_value=initial_accumulator)
    transform = optax.chain(optax.add_decayed_weights(weight_decay), scale, optax.scale_by_learning_rate(lr))
    return run(transform, params, grads, maximize, lambda s: {"exp_avg": s[1].mu, "exp_avg_sq": s[1].nu})


def adopt(params, grads, *, lr, betas=(0.9, 0.9999), eps=1e-6, weight_decay=0.0, clipping=True, maximize=False):
    """`optax.contrib.adopt`, with an L2 penalty."""
    scale = optax.contrib.adopt(lr, *betas, eps, use_clipping=clipping)
    transform = optax.chain(optax.add_decayed_weights(weight_decay), scale)
    return run(transform, params, grads, maximize, lambda s: {"exp_avg": s[1][0].mu, "exp_avg_sq": s[1][0].nu})


def ademamix(
    params,
    grads,
    *,
    lr,
    betas=(0.9, 0.999, 0.9999),
    alpha=2.0,
    beta3_warmup=None,
    alpha_warmup=None,
    eps=1e-8,
    weight_decay=0.0,
    maximize=False,
):
    """`optax.contrib.ademamix`, with the paper's schedules: alpha grows linearly, and so does beta3's half-life."""
    beta1, beta2, beta3 = betas
    half_lives = [np.log(0.5) / np.log(beta) for beta in (beta1, beta3)]

    def done(steps_before, steps):
        return jax.numpy.minimum((steps_before + 1) / (steps or 1), 1.0)

    def scheduled_beta3(steps_before):
        mix = done(steps_before, beta3_warmup)
        return 0.5 ** (1 / ((1 - mix) * half_lives[0] + mix * half_lives[1]))

    transform = optax.contrib.ademamix(
        lr,
        beta1,
        beta2,
        scheduled_beta3,
        lambda steps_before: alpha * done(steps_before, alpha_warmup),
        eps,
        weight_decay=weight_decay,
    )
    return run(
        transform,
        params,
        grads,
        maximize,
        lambda s: {"exp_avg_fast": s[0].m1, "exp_avg_slow": s[0].m2, "exp_avg_sq": s[0].nu},
    )


def sgd_schedule_free(params, grads, *, lr, momentum=0.9, weight_decay=0.0, weight_lr_power=2.0, maximize=False):
    """`optax.contrib.schedule_free_sgd`, at y."""
    base = optax.chain(optax.add_decayed_weights(weight_decay), optax.sgd(lr))
    transform = optax.contrib.schedule_free(base, lr, momentum, weight_lr_power)
    return run(transform, params, grads, maximize, lambda s: {"z": s.z})


def adamw_schedule_free(
    params, grads, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, weight_lr_power=2.0, maximize=False
):
    """`optax.contrib.schedule_free_adamw`, at y."""
    transform = optax.contrib.schedule_free_adamw(
        lr, b1=betas[0], b2=betas[1], eps=eps, weight_decay=weight_decay, weight_lr_power=weight_lr_power
    )
    return run(transform, params, grads, maximize, lambda s: {"z": s.z, "exp_avg_sq": s.base_optimizer_state[0].nu})


def lars(params, grads, *, lr, momentum=0.9, trust_coefficient=1e-3, eps=0.0, nesterov=False):
    """`optax.lars`; its trace is our buffer with the sign of the change."""
    return run(
        optax.lars(lr, 0.0, trust_coefficient=trust_coefficient, eps=eps, momentum=momentum, nesterov=nesterov),
        params,
        grads,
        slots=lambda state: {"momentum_buffer": [-trace for trace in state[-1].trace]},
    )


def novograd(params, grads, *, lr, betas=(0.95, 0.98), eps=1e-8, weight_decay=0.0, maximize=False):
    """`optax.novograd`."""
    return run(
        optax.novograd(lr, *betas, eps, 0.0, weight_decay),
        params,
        grads,
        maximize,
        slots=lambda state: {"exp_avg": state[0].mu, "exp_avg_sq": state[0].nu},
    )


def _estimate(state):
    """The state of Prodigy and D-Adaptation, with a copy of each number for every parameter."""
    count = len(state.exp_avg)
    return {
        "exp_avg": state.exp_avg,
        "exp_avg_sq": state.exp_avg_sq,
        "s": state.grad_sum,
        "d": [state.estim_lr] * count,
    }


def prodigy(params, grads, *, lr=1.0, betas=(0.9, 0.999), beta3=None, eps=1e-8, d0=1e-6, d_coef=1.0, **options):
    """`optax.contrib.prodigy`, which corrects the bias and decouples the decay."""
    assert options.pop("use_bias_correction")
    return run(optax.contrib.prodigy(lr, betas, beta3, eps, d0, d_coef, **options), params, grads, slots=_estimate)


def dadapt_adam(params, grads, *, lr=1.0, betas=(0.9, 0.999), eps=1e-8, d0=1e-6, weight_decay=0.0, **options):
    """`optax.contrib.dadapt_adamw`, which corrects the bias and decouples the decay."""
    assert options == {"use_bias_correction": True, "decouple": True}
    return run(optax.contrib.dadapt_adamw(lr, betas, eps, d0, weight_decay), params, grads, slots=_estimate)


def dog(params, grads, *, lr=1.0, reps_rel=1e-6, eps=1e-8, weight_decay=0.0, maximize=False):
    """`optax.contrib.dog` with the distance that the authors begin with."""

    def slots(state):
        state_ = state[1]
        numbers = {"max_dist": state_.max_dist, "sum_sq_norm_grads": state_.sum_sq_norm_grads}
        return {
            "x0": state_.init_params,
            **{name: [number] * len(state_.init_params) for name, number in numbers.items()},
        }

    transform = optax.contrib.dog(lr, ("heuristic", reps_rel), eps, weight_decay)
    return run(transform, params, grads, maximize, slots)


def ldog(params, grads, **options):
    """`optax.contrib.dog` of each parameter by itself."""
    alone = [dog([param], [[step_grads[i]] for step_grads in grads], **options) for i, param in enumerate(params)]
    return [values[0] for values, _ in alone], [states[0] for _, states in alone]


def sm3(params, grads, *, lr, momentum=0.9):
    """`optax.sm3`."""
    return run(optax.sm3(lr, momentum), params, grads, slots=lambda s: {"momentum_buffer": s[0].nu})
