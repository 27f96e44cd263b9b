"""Element-wise rules of today.

Those that take signs (Lion, Signum, the cautious ones, Yogi's second moment) would differ by whole steps where float32
and float64 disagree about one. The gradients are random, so no sum that a sign is taken of comes that near to 0.
"""

from .case import VECTORS, Case

__all__ = ["CASES", "doubled", "rising"]

_SCHEDULES = {"alpha_warmup": 70, "beta3_warmup": 60}


def doubled(vectors):
    """Products with the Hessian of the sum of squares."""
    return [2.0 * vector for vector in vectors]


def rising():
    """A diagonal for each of the parameters."""
    return [_rising(shape, 0) for shape in VECTORS]


def _rising(shape, first):
    if not shape:
        return 1.0 + first % 7 if first % 3 else -1.0 - first % 7
    inner = 1
    for length in shape[1:]:
        inner *= length
    return [_rising(shape[1:], first + index * inner) for index in range(shape[0])]


CASES = [
    Case("lion", "Lion", {"lr": 0.01}, "optax_twins.lion"),
    Case("lion decay maximize", "Lion", {"lr": 0.003, "betas": (0.95, 0.98), "weight_decay": 0.6, "maximize": True},
         "optax_twins.lion"),
    Case("signum", "Signum", {"lr": 0.01}, "optax_twins.signum"),
    Case("signum maximize", "Signum", {"lr": 0.01, "momentum": 0.7, "maximize": True}, "optax_twins.signum"),
    Case("signum weight decay", "Signum", {"lr": 0.01, "weight_decay": 0.1}, "modern.signum"),
    Case("signsgd", "Signum", {"lr": 0.01, "momentum": 0.0}, "modern.signum"),
    Case("cautious adamw", "CautiousAdamW", {"lr": 0.01}, "modern.cautious_adamw"),
    Case("cautious adamw maximize", "CautiousAdamW",
         {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "maximize": True},
         "modern.cautious_adamw"),
    Case("cautious lion", "CautiousLion", {"lr": 0.01}, "modern.cautious_lion"),
    Case("cautious lion maximize", "CautiousLion",
         {"lr": 0.003, "betas": (0.95, 0.98), "weight_decay": 0.3, "maximize": True}, "modern.cautious_lion"),
    Case("adabelief", "AdaBelief", {"lr": 0.01}, "optax_twins.adabelief"),
    Case("adabelief decay maximize", "AdaBelief",
         {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-8, "weight_decay": 0.3, "maximize": True},
         "optax_twins.adabelief"),
    Case("adabelief l2", "AdaBelief", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": False},
         "optax_twins.adabelief"),
    Case("yogi", "Yogi", {"lr": 0.01}, "optax_twins.yogi"),
    Case("yogi decay maximize", "Yogi",
         {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "maximize": True}, "optax_twins.yogi"),
    Case("yogi initial", "Yogi", {"lr": 0.01, "initial_accumulator": 0.5}, "optax_twins.yogi"),
    Case("adan", "Adan", {"lr": 0.01}, "modern.adan"),
    Case("adan decay maximize", "Adan",
         {"lr": 0.01, "betas": (0.9, 0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "maximize": True}, "modern.adan"),
    Case("adan no prox", "Adan", {"lr": 0.01, "weight_decay": 0.1, "no_prox": True}, "modern.adan"),
    Case("adopt", "ADOPT", {"lr": 0.01}, "optax_twins.adopt"),
    Case("adopt unclipped maximize", "ADOPT",
         {"lr": 0.01, "betas": (0.8, 0.95), "eps": 0.1, "clipping": False, "maximize": True}, "optax_twins.adopt"),
    Case("adopt decoupled", "ADOPT", {"lr": 0.01, "weight_decay": 0.1, "decouple": True}, "modern.adopt"),
    Case("adopt l2", "ADOPT", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.9, 0.99)}, "modern.adopt"),
    Case("ademamix", "AdEMAMix", {"lr": 0.01}, "optax_twins.ademamix"),
    Case("ademamix schedules", "AdEMAMix", {"lr": 0.01, "alpha": 5.0, **_SCHEDULES}, "optax_twins.ademamix"),
    Case("ademamix decay maximize", "AdEMAMix",
         {"lr": 0.01, "betas": (0.8, 0.95, 0.99), "eps": 1e-6, "weight_decay": 0.3, "maximize": True, **_SCHEDULES},
         "optax_twins.ademamix"),
    Case("adabound", "AdaBound", {"lr": 0.01}, "modern.adabound"),
    Case("adabound closing", "AdaBound", {"lr": 0.01, "final_lr": 0.02, "gamma": 0.1, "betas": (0.8, 0.95)},
         "modern.adabound"),
    Case("amsbound maximize", "AdaBound",
         {"lr": 0.01, "amsbound": True, "eps": 1e-6, "gamma": 0.05, "weight_decay": 0.1, "maximize": True},
         "modern.adabound"),
    Case("mars", "MARS", {"lr": 0.01}, "modern.mars"),
    Case("mars decay maximize", "MARS",
         {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-6, "gamma": 0.1, "weight_decay": 0.1, "maximize": True},
         "modern.mars"),
    Case("mars amsgrad", "MARS", {"lr": 0.01, "amsgrad": True}, "modern.mars"),
    Case("ftrl", "FTRL", {"lr": 0.1}, "modern.ftrl"),
    Case("ftrl maximize", "FTRL", {"lr": 0.05, "beta": 0.3, "lambda1": 0.5, "lambda2": 0.2, "maximize": True},
         "modern.ftrl"),
    Case("ftrl without beta", "FTRL", {"lr": 0.1, "beta": 0.0, "lambda1": 2.0}, "modern.ftrl"),
    Case("sgd schedule-free", "SGDScheduleFree", {"lr": 0.1}, "optax_twins.sgd_schedule_free"),
    Case("sgd schedule-free warm-up", "SGDScheduleFree",
         {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.01, "warmup_steps": 30, "r": 1.0, "weight_lr_power": 1.0,
          "maximize": True},
         "modern.sgd_schedule_free"),
    Case("adamw schedule-free", "AdamWScheduleFree", {"lr": 0.01, "weight_decay": 0.1},
         "optax_twins.adamw_schedule_free"),
    Case("adamw schedule-free warm-up", "AdamWScheduleFree",
         {"lr": 0.01, "betas": (0.95, 0.99), "eps": 1e-6, "warmup_steps": 30, "r": 0.5, "weight_lr_power": 1.5,
          "maximize": True},
         "modern.adamw_schedule_free"),
    Case("sophia-h", "SophiaH", {"lr": 0.01, "hvp": doubled, "distribution": "rademacher"}, "modern.sophia",
         {"diagonals": lambda estimate, index: 2.0}),
    Case("sophia-h maximize", "SophiaH",
         {"lr": 0.01, "betas": (0.9, 0.95), "eps": 0.01, "weight_decay": 0.1, "gamma": 5.0, "clip_threshold": 0.5,
          "update_interval": 3, "maximize": True, "hvp": lambda vectors: [-2.0 * vector for vector in vectors],
          "distribution": "rademacher"},
         "modern.sophia", {"diagonals": lambda estimate, index: -2.0}),
    Case("diagonal newton", "DiagonalNewton", {"lr": 0.01, "diagonal": rising}, "modern.diagonal_newton"),
    Case("diagonal newton maximize", "DiagonalNewton",
         {"lr": 0.01, "damping": 0.5, "diagonal": rising, "maximize": True}, "modern.diagonal_newton"),
]  # fmt: skip
