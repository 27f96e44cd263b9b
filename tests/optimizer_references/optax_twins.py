"""optax in float64, under our names of its options."""

import jax
import numpy as np
import optax

__all__ = ["lamb"]

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def run(transform, params, grads, maximize=False, slots=None):
    """Apply a gradient transformation; `slots` gives the state by our names from optax's, for each parameter."""
    params = [np.asarray(one, np.float64) for one in params]
    state = transform.init(params)
    update = jax.jit(transform.update)
    for step_grads in grads:
        signed = [(-1.0 if maximize else 1.0) * np.asarray(one, np.float64) for one in step_grads]
        updates, state = update(signed, state, params)
        params = [np.asarray(one + change) for one, change in zip(params, updates, strict=True)]
    found = slots(state) if slots else {}
    return params, [{name: np.asarray(values[i]) for name, values in found.items()} for i in range(len(params))]


def moments(state):
    """Adam's, of the first transformation of a chain."""
    return {"exp_avg": state[0].mu, "exp_avg_sq": state[0].nu}


def lamb(params, grads, *, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
    """`optax.lamb`."""
    return run(optax.lamb(lr, *betas, eps, 0.0, weight_decay), params, grads, slots=moments)
