"""Rules with matrix products."""

from .case import Case

__all__ = ["CASES"]

SHAPES = ((3, 5), (16, 16), (40, 24), (7, 60), (16, 16), (1, 1))
FEW = ((3, 5), (16, 16), (16, 16))
# Where L or R is singular, the basis of its null space is any, and so is what Adam makes of it: SOAP is compared where
# both have full rank, or where a side is too long to be turned.
SQUARE = ((3, 3), (6, 6), (6, 6), (4, 2, 2), (5,))
LONG = ((8, 24), (5, 5), (8, 24), (24,))
ANY = ((1,), (33,), (3, 5), (16, 16), (24, 40), (6, 2, 5), (24, 40))
# Each length of a side costs Shampoo 86 dispatches a step.
SIDES = ((5,), (6, 10), (10, 6))

CASES = [
    Case("muon", "Muon", {"lr": 0.02}, "matrices.muon", shapes=SHAPES),
    Case(
        "muon without nesterov",
        "Muon",
        {"lr": 0.02, "nesterov": False, "momentum": 0.9, "weight_decay": 0.0, "eps": 1e-3},
        "matrices.muon",
        shapes=FEW,
    ),
    Case(
        "muon maximize",
        "Muon",
        {"lr": 0.02, "maximize": True, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 1},
        "matrices.muon",
        shapes=FEW,
    ),
    Case(
        "muon other polynomial",
        "Muon",
        {"lr": 0.02, "ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 8, "adjust_lr_fn": "original"},
        "matrices.muon",
        shapes=FEW,
    ),
    Case("muon only normalised", "Muon", {"lr": 0.02, "ns_steps": 0}, "matrices.muon", shapes=FEW),
    Case("shampoo", "Shampoo", {"lr": 0.05, "eps": 1e-2}, "matrices.shampoo", shapes=SIDES),
    Case(
        "shampoo momentum",
        "Shampoo",
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "update_freq": 7, "eps": 1.0, "maximize": True},
        "matrices.shampoo",
        shapes=((3, 5), (6, 2, 5)),
    ),
    Case(
        "shampoo short sides",
        "Shampoo",
        {"lr": 0.05, "max_preconditioner_dim": 20, "eps": 0.0},
        "matrices.shampoo",
        shapes=((33,), (16, 40), (1,)),
    ),
    Case("soap", "SOAP", {"lr": 0.01}, "matrices.soap", shapes=SQUARE, state_tolerance=5e-5),
    Case(
        "soap of short sides",
        "SOAP",
        {"lr": 0.01, "max_precond_dim": 20, "maximize": True, "shampoo_beta": 0.8, "correct_bias": False},
        "matrices.soap",
        shapes=LONG,
    ),
    Case(
        "soap turned at every step",
        "SOAP",
        {
            "lr": 0.01,
            "betas": (0.9, 0.99),
            "eps": 1e-4,
            "weight_decay": 0.1,
            "precondition_frequency": 1,
            "precondition_1d": True,
        },
        "matrices.soap",
        shapes=((3, 3), (4, 4), (2,), (1,)),
        state_tolerance=2e-4,  # exp_avg_sq is that of the eigenvectors, which 100 refreshes turn
    ),
    Case("galore", "GaLore", {"lr": 0.01, "rank": 2, "update_proj_gap": 30}, "matrices.galore", shapes=ANY),
    Case(
        "galore maximize",
        "GaLore",
        {"lr": 0.01, "rank": 5, "maximize": True, "scale": 1.0, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1},
        "matrices.galore",
        shapes=((33,), (16, 16), (24, 40)),
    ),
]
