"""Rules with norms of whole tensors, and those that estimate the distance to the solution."""

from .case import Case

__all__ = ["CASES"]

# Few elements, by which the noise of the gradients lets d grow; what it begins with is large enough beside the
# parameters for float32 to tell param from where it began.
FEW = ((3,), (2, 2), (1,))
GROWS = {"d0": 0.02, "lr": 0.5}

CASES = [
    Case("lamb", "LAMB", {"lr": 0.01, "eps": 1e-6}, "optax_twins.lamb"),
    Case("lamb weight decay", "LAMB", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.9)}, "optax_twins.lamb"),
    Case("lamb uncorrected", "LAMB", {"lr": 0.01, "bias_correction": False}, "norms.lamb"),
    Case("lamb maximize", "LAMB", {"lr": 0.01, "maximize": True}, "norms.lamb"),
    Case("lars", "LARS", {"lr": 0.5, "trust_coefficient": 0.02, "eps": 1e-3}, "optax_twins.lars"),
    Case(
        "lars nesterov",
        "LARS",
        {"lr": 0.5, "trust_coefficient": 0.02, "momentum": 0.8, "nesterov": True},
        "optax_twins.lars",
    ),
    Case("lars weight decay", "LARS", {"lr": 1.0, "trust_coefficient": 0.01, "weight_decay": 0.1}, "norms.lars"),
    Case("lars without momentum", "LARS", {"lr": 10.0, "momentum": 0.0, "maximize": True}, "norms.lars"),
    Case("novograd", "NovoGrad", {"lr": 0.01}, "optax_twins.novograd"),
    Case(
        "novograd weight decay",
        "NovoGrad",
        {"lr": 0.01, "betas": (0.9, 0.25), "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
        "optax_twins.novograd",
    ),
    Case("adam-mini", "AdamMini", {"lr": 0.01}, "norms.adam_mini"),
    Case(
        "adam-mini weight decay",
        "AdamMini",
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1, "maximize": True},
        "norms.adam_mini",
    ),
    Case("prodigy", "Prodigy", {"use_bias_correction": True}, "optax_twins.prodigy"),
    Case("prodigy grows", "Prodigy", {**GROWS, "beta3": 0.98}, "norms.prodigy", shapes=FEW),
    Case(
        "prodigy options",
        "Prodigy",
        {
            **GROWS,
            "betas": (0.8, 0.95),
            "eps": 1e-4,
            "weight_decay": 0.01,
            "d_coef": 2.0,
            "use_bias_correction": True,
            "safeguard_warmup": True,
        },
        "optax_twins.prodigy",
        shapes=FEW,
    ),
    Case(
        "prodigy coupled decay",
        "Prodigy",
        {"lr": 0.5, "d0": 0.1, "weight_decay": 0.1, "decouple": False, "growth_rate": 1.02, "maximize": True},
        "norms.prodigy",
        shapes=((4,), (3,)),
    ),
    Case("d-adapt sgd", "DAdaptSGD", {"lr": 1.0}, "norms.dadapt_sgd"),
    Case("d-adapt sgd grows", "DAdaptSGD", {"lr": 3.0, "d0": 0.05}, "norms.dadapt_sgd", shapes=FEW),
    Case(
        "d-adapt sgd options",
        "DAdaptSGD",
        {"lr": 3.0, "d0": 0.05, "momentum": 0.9, "weight_decay": 0.1, "growth_rate": 1.02, "maximize": True},
        "norms.dadapt_sgd",
        shapes=FEW,
    ),
    Case("d-adapt adagrad", "DAdaptAdaGrad", {"lr": 1.0}, "norms.dadapt_adagrad"),
    Case("d-adapt adagrad grows", "DAdaptAdaGrad", {**GROWS, "weight_decay": 1.0}, "norms.dadapt_adagrad", shapes=FEW),
    Case(
        "d-adapt adagrad options",
        "DAdaptAdaGrad",
        {
            "lr": 3.0,
            "d0": 0.05,
            "eps": 1e-3,
            "momentum": 0.9,
            "weight_decay": 0.1,
            "growth_rate": 1.02,
            "maximize": True,
        },
        "norms.dadapt_adagrad",
        shapes=FEW,
    ),
    Case("d-adapt adam", "DAdaptAdam", {"use_bias_correction": True, "decouple": True}, "optax_twins.dadapt_adam"),
    Case("d-adapt adam grows", "DAdaptAdam", {**GROWS, "weight_decay": 0.1}, "norms.dadapt_adam", shapes=FEW),
    Case(
        "d-adapt adam options",
        "DAdaptAdam",
        {
            **GROWS,
            "betas": (0.8, 0.95),
            "eps": 1e-3,
            "weight_decay": 0.01,
            "decouple": True,
            "growth_rate": 1.02,
            "maximize": True,
        },
        "norms.dadapt_adam",
        shapes=FEW,
    ),
    Case("dog", "DoG", {"lr": 1.0, "reps_rel": 1e-2}, "optax_twins.dog"),
    Case(
        "dog weight decay",
        "DoG",
        {"lr": 0.5, "reps_rel": 1e-2, "eps": 1e-2, "weight_decay": 0.1, "maximize": True},
        "optax_twins.dog",
    ),
    Case("ldog", "LDoG", {"lr": 1.0, "reps_rel": 1e-2, "eps": 1e-4}, "optax_twins.ldog"),
    Case(
        "ldog weight decay",
        "LDoG",
        {"lr": 1.0, "reps_rel": 1e-2, "weight_decay": 0.1, "maximize": True},
        "optax_twins.ldog",
    ),
]
