"""Schedulers: torch's fifteen names, arguments and numbers, for any option, evaluated on the device.

`scheduler.step()` moves a count on the device, which writes the option where the optimizer's kernels read it; in a
compiled step it is one more dispatch, with nothing up or down. `ScheduleLR` follows any of `optim.schedules`.
"""

from .composed import ChainedScheduler, SequentialLR
from .cycles import CyclicLR, OneCycleLR
from .plateau import ReduceLROnPlateau
from .scheduler import LRScheduler, ScheduleLR
from .simple import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CurriculumLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CurriculumLR",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "ScheduleLR",
    "SequentialLR",
    "StepLR",
]
