"""Steps under a GradScaler, some with gradients that are not finite, and what torch computes for them in float64."""

import numpy as np

__all__ = ["BAD", "INIT_SCALE", "LR", "RULE", "SHAPES", "TRANSFORMS", "make_problem", "torchs"]

SHAPES = [(3,), (300,), (16, 65)]
BAD = {4: np.inf, 5: np.nan, 11: -np.inf}
LR, INIT_SCALE = 0.01, 1024.0
RULE = {"growth_interval": 3, "growth_factor": 4.0, "backoff_factor": 0.25}
TRANSFORMS = {"plain": [], "clipped": [["clip_by_global_norm", {"max_norm": 1.0}]]}


def make_problem(steps=16):
    """Parameters, and gradients for each step."""
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    grads = [[rng.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(steps)]
    for number, bad in BAD.items():
        grads[number][1][299] = bad
    return params, grads


def torchs(name):
    """The parameters after all steps, and the scale after each."""
    import torch

    params, grads = make_problem()
    params = [torch.nn.Parameter(torch.tensor(param.astype(float))) for param in params]
    optimizer = torch.optim.AdamW(params, lr=LR)
    scaler = torch.amp.GradScaler("cpu", init_scale=INIT_SCALE, **RULE)
    scales = []
    for step_grads in grads:
        for param, grad in zip(params, step_grads, strict=True):
            param.grad = scaler.scale(torch.tensor(grad.astype(float)))
        scaler.unscale_(optimizer)
        if TRANSFORMS[name]:
            torch.nn.utils.clip_grad_norm_(params, TRANSFORMS[name][0][1]["max_norm"])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return [param.detach().numpy() for param in params], scales
