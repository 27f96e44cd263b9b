"""Schedulers and schedules for the tests, by name. Natively and in a browser, so nothing but the library is imported.

A scheduler is made from a module, torch's or ours, and an optimizer of two groups: SGD with momentum, or AdamW.
"""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """`make(lr_scheduler, optimizer)`; whether the device computes it itself, at least at first."""

    name: str
    make: Any
    optimizer: str = "SGD"
    on_device: bool = True


def _sequence(m, o):
    parts = [m.LinearLR(o, 0.1, total_iters=20), m.CosineAnnealingLR(o, 200), m.ExponentialLR(o, 0.995)]
    return m.SequentialLR(o, parts, [20, 220])


def _nested(m, o):
    first = m.SequentialLR(o, [m.LinearLR(o, 0.1, total_iters=20), m.StepLR(o, 50)], [20])
    return m.ChainedScheduler([first, m.ExponentialLR(o, 0.99)])


TORCH = [
    Case("StepLR", lambda m, o: m.StepLR(o, 30, gamma=0.7)),
    Case("MultiStepLR", lambda m, o: m.MultiStepLR(o, [30, 80, 80, 400], gamma=0.3)),
    Case("MultiStepLR, the first at 0", lambda m, o: m.MultiStepLR(o, [0, 3])),
    Case("ConstantLR", lambda m, o: m.ConstantLR(o, 0.3, 40)),
    Case("LinearLR", lambda m, o: m.LinearLR(o, 0.01, 0.9, 400)),
    Case("ExponentialLR", lambda m, o: m.ExponentialLR(o, 0.99)),
    Case("PolynomialLR", lambda m, o: m.PolynomialLR(o, 900, 1.7)),
    Case("CosineAnnealingLR", lambda m, o: m.CosineAnnealingLR(o, 300)),
    Case("CosineAnnealingLR, eta_min", lambda m, o: m.CosineAnnealingLR(o, 300, eta_min=0.01)),
    Case("CosineAnnealingWarmRestarts", lambda m, o: m.CosineAnnealingWarmRestarts(o, 70, 1, 0.001)),
    Case("CosineAnnealingWarmRestarts, T_mult", lambda m, o: m.CosineAnnealingWarmRestarts(o, 10, 2, 0.001)),
    Case("CyclicLR", lambda m, o: m.CyclicLR(o, 0.01, 0.3, 57, 31), "AdamW"),
    Case("CyclicLR, triangular2", lambda m, o: m.CyclicLR(o, [0.01, 0.02], [0.3, 0.2], 57, mode="triangular2")),
    Case("CyclicLR, exp_range", lambda m, o: m.CyclicLR(o, 0.01, 0.3, 57, 31, mode="exp_range", gamma=0.995)),
    Case("CyclicLR, a function", lambda m, o: m.CyclicLR(o, 0.01, 0.3, 57, scale_fn=lambda x: 1 / x), on_device=False),
    Case("OneCycleLR", lambda m, o: m.OneCycleLR(o, 1.0, 1001), "AdamW"),
    Case(
        "OneCycleLR, linear, three phases",
        lambda m, o: m.OneCycleLR(o, [1.0, 0.5], 1001, anneal_strategy="linear", three_phase=True),
    ),
    Case("OneCycleLR, no momentum", lambda m, o: m.OneCycleLR(o, 1.0, epochs=7, steps_per_epoch=143, pct_start=0.35,
                                                              cycle_momentum=False, div_factor=10.0)),
    Case("LambdaLR", lambda m, o: m.LambdaLR(o, [lambda e: 0.99**e, lambda e: 1 / (1 + e)]), on_device=False),
    Case("MultiplicativeLR", lambda m, o: m.MultiplicativeLR(o, lambda e: 0.99 + 0.001 * (e % 7)), on_device=False),
    Case("SequentialLR", _sequence),
    Case(
        "SequentialLR, a function",
        lambda m, o: m.SequentialLR(o, [m.ConstantLR(o, 0.1, 20), m.MultiplicativeLR(o, lambda e: 0.99)], [25]),
        on_device=False,
    ),
    Case("ChainedScheduler", lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 20), m.ExponentialLR(o, 0.99)])),
    Case(
        "ChainedScheduler, past a cosine's end",
        lambda m, o: m.ChainedScheduler([m.LinearLR(o, 0.1, total_iters=20), m.CosineAnnealingLR(o, 100)]),
        on_device=False,
    ),
    Case(
        "ChainedScheduler, eta_min",
        lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 20), m.CosineAnnealingLR(o, 100, 0.01)]),
        on_device=False,
    ),
    Case("ChainedScheduler of a SequentialLR", _nested, on_device=False),
]  # fmt: skip
"""As torch has them."""


def _with_tensors(m, o):
    for group in o.param_groups:
        if m.__name__.startswith("torch"):
            import torch

            group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)
        else:
            import optirs_web as ow

            group["lr"] = ow.tensor(group["lr"], device=group["params"][0].device)


def _of_tensors(case):
    def make(m, o):
        _with_tensors(m, o)
        return case.make(m, o)

    return case._replace(name=f"{case.name}; lr is a tensor", make=make)


def _with_a_late_group(case):
    def make(m, o):
        late = o.param_groups.pop()
        scheduler = case.make(m, o)
        o.add_param_group(late)
        return scheduler

    return case._replace(name=f"{case.name}; a group is added", make=make)


def _only(m, o, make):
    return m.SequentialLR(o, [make(m, o)], [])


EDGES = [
    *(_with_a_late_group(case) for case in TORCH if case.name in (
        "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR", "ChainedScheduler",
    )),
    *(_of_tensors(case) for case in TORCH if case.name in (
        "StepLR", "CosineAnnealingLR, eta_min", "CyclicLR", "CyclicLR, a function", "OneCycleLR", "LambdaLR",
        "SequentialLR", "ChainedScheduler",
    )),
    Case("StepLR, 1", lambda m, o: m.StepLR(o, 1, gamma=0.99)),
    Case("StepLR, -3", lambda m, o: m.StepLR(o, -3, gamma=0.99)),
    Case("StepLR, 2.5", lambda m, o: m.StepLR(o, 2.5, gamma=0.99)),
    Case("StepLR, gamma 0", lambda m, o: m.StepLR(o, 3, gamma=0.0)),
    Case("MultiStepLR, none", lambda m, o: m.MultiStepLR(o, [])),
    Case("MultiStepLR, one before the first", lambda m, o: m.MultiStepLR(o, [-2, 3])),
    Case("ConstantLR, 0", lambda m, o: m.ConstantLR(o, 0.3, 0)),
    Case("ConstantLR, 1", lambda m, o: m.ConstantLR(o, 0.3, 1)),
    Case("LinearLR, 0", lambda m, o: m.LinearLR(o, 0.3, total_iters=0)),
    Case("LinearLR, 1", lambda m, o: m.LinearLR(o, 0.3, total_iters=1)),
    Case("LinearLR, to 0", lambda m, o: m.LinearLR(o, 1.0, 0.0, 4)),
    Case("PolynomialLR, 0", lambda m, o: m.PolynomialLR(o, 0)),
    Case("PolynomialLR, 1", lambda m, o: m.PolynomialLR(o, 1)),
    Case("ExponentialLR, 0", lambda m, o: m.ExponentialLR(o, 0.0)),
    Case("ExponentialLR, 1", lambda m, o: m.ExponentialLR(o, 1.0)),
    Case("CosineAnnealingLR, 1", lambda m, o: m.CosineAnnealingLR(o, 1, 0.01)),
    Case("CosineAnnealingLR, -7", lambda m, o: m.CosineAnnealingLR(o, -7, 0.01)),
    Case("CosineAnnealingWarmRestarts, 1", lambda m, o: m.CosineAnnealingWarmRestarts(o, 1)),
    Case("CosineAnnealingWarmRestarts, 1, T_mult", lambda m, o: m.CosineAnnealingWarmRestarts(o, 1, 3, 0.01)),
    Case("CyclicLR, 1", lambda m, o: m.CyclicLR(o, 0.01, 0.3, 1)),
    Case("CyclicLR, 1 and 3", lambda m, o: m.CyclicLR(o, 0.01, 0.3, 1, 3)),
    Case("OneCycleLR, upwards alone", lambda m, o: m.OneCycleLR(o, 1.0, 1001, pct_start=1.0)),
    Case("OneCycleLR, upwards alone, linear",
         lambda m, o: m.OneCycleLR(o, 1.0, 1001, pct_start=1.0, anneal_strategy="linear")),
    Case("OneCycleLR, downwards alone", lambda m, o: m.OneCycleLR(o, 1.0, 1001, pct_start=0.0)),
    Case("OneCycleLR, downwards alone, linear",
         lambda m, o: m.OneCycleLR(o, 1.0, 1001, pct_start=0.0, anneal_strategy="linear")),
    Case("SequentialLR, of one", lambda m, o: _only(m, o, lambda m, o: m.StepLR(o, 30, gamma=0.7))),
]  # fmt: skip
"""Where torch's rules have ends: each is one of the above."""

OPTAX = {
    "constant_schedule": [{"value": 0.3}],
    "linear_schedule": [
        {"init_value": 0.0, "end_value": 0.5, "transition_steps": 300, "transition_begin": 20},
        {"init_value": 0.2, "end_value": 0.5, "transition_steps": 0},
    ],
    "polynomial_schedule": [{"init_value": 1.0, "end_value": 0.01, "power": 2.5, "transition_steps": 500}],
    "exponential_decay": [
        {"init_value": 0.5, "transition_steps": 100, "decay_rate": 0.8, "transition_begin": 10, "end_value": 0.1},
        {"init_value": 0.5, "transition_steps": 30, "decay_rate": 0.8, "transition_begin": 10, "staircase": True},
        {"init_value": 0.5, "transition_steps": 7, "decay_rate": 1.01, "staircase": True, "end_value": 0.7},
    ],
    "cosine_decay_schedule": [
        {"init_value": 0.5, "decay_steps": 700},
        {"init_value": 0.5, "decay_steps": 700, "alpha": 0.1, "exponent": 1.7},
    ],
    "cosine_onecycle_schedule": [{"transition_steps": 900, "peak_value": 1.0}],
    "linear_onecycle_schedule": [{"transition_steps": 900, "peak_value": 1.0}],
    "piecewise_constant_schedule": [{"init_value": 1.0, "boundaries_and_scales": {100: 0.1, 400: 0.5}}],
    "piecewise_interpolate_schedule": [
        {"interpolate_type": kind, "init_value": 1.0, "boundaries_and_scales": {100: 0.1, 400: 0.5}}
        for kind in ("linear", "cosine")
    ],
    "warmup_constant_schedule": [{"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 50}],
    "warmup_cosine_decay_schedule": [
        {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 50, "decay_steps": 800, "end_value": 0.01}
    ],
    "warmup_exponential_decay_schedule": [
        {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 50, "transition_steps": 20, "decay_rate": 0.9,
         "transition_begin": 13, "end_value": 0.01}
    ],
    "sgdr_schedule": [
        {"cosine_kwargs": [
            {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 10, "decay_steps": 200},
            {"init_value": 0.1, "peak_value": 0.5, "warmup_steps": 10, "decay_steps": 400, "exponent": 2.0},
        ]}
    ],
}  # fmt: skip
"""By name the arguments; `join_schedules` is in the last four."""


def _base(s):
    return s.cosine_decay_schedule(0.5, 700, alpha=0.1)


OPTIRS = {
    "warmup linear": lambda s: s.warmup(_base(s), 30),
    "warmup cosine": lambda s: s.warmup(_base(s), 30, "cosine", 0.01),
    "warmup exponential": lambda s: s.warmup(_base(s), 30, "exponential", 0.001),
    "warmup constant": lambda s: s.warmup(_base(s), 30, "constant", 0.05),
    "noise uniform": lambda s: s.noisy(_base(s), "uniform", -0.02, 0.03, seed=3),
    "noise gaussian": lambda s: s.noisy(_base(s), "gaussian", 0.0, 0.02, lowest=0.01, seed=5),
    "noise cyclical": lambda s: s.noisy(_base(s), "cyclical", 0.02, steps=25),
    "noise decaying": lambda s: s.noisy(_base(s), "decaying", 0.04, 0.001, steps=300),
    "curriculum immediate": lambda s: s.curriculum([(0.1, 100), (0.3, 200), (0.05, 0)]),
    "curriculum smooth": lambda s: s.curriculum([(0.1, 100), (0.3, 200), (0.05, 0)], "smooth", 40),
}
"""Those of OptiRS, from our `schedules`."""


def scheduler(name, lr_scheduler, optimizer, schedules):
    """The scheduler of that name: one of torch's, or a `ScheduleLR`."""
    for case in (*TORCH, *EDGES):
        if case.name == name:
            return case.make(lr_scheduler, optimizer)
    return lr_scheduler.ScheduleLR(optimizer, schedule(name, schedules))


def schedule(name, schedules):
    """The schedule of that name: "NAME NUMBER" of optax's, or one of OptiRS's."""
    if name in OPTIRS:
        return OPTIRS[name](schedules)
    function, number = name.split()
    return getattr(schedules, function)(**OPTAX[function][int(number)])


OPTAX_NAMES = [f"{name} {number}" for name, rows in OPTAX.items() for number in range(len(rows))]
