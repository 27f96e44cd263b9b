"""Optimizers: torch's names, arguments and state; one WGSL rule each in ``shaders/optimizers``.

A module is imported when one of its names is first asked for: in a browser each costs time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..parts import imported

if TYPE_CHECKING:
    from . import (
        averaging as averaging,
        lr_scheduler as lr_scheduler,
        projections as projections,
        schedules as schedules,
        transforms as transforms,
    )
    from .adabelief import AdaBelief as AdaBelief
    from .adabound import AdaBound as AdaBound
    from .adadelta import Adadelta as Adadelta
    from .adafactor import Adafactor as Adafactor
    from .adagrad import Adagrad as Adagrad
    from .adam import Adam as Adam, AdamW as AdamW
    from .adam_mini import AdamMini as AdamMini
    from .adamax import Adamax as Adamax
    from .adan import Adan as Adan
    from .ademamix import AdEMAMix as AdEMAMix
    from .adopt import ADOPT as ADOPT
    from .apollo import APOLLO as APOLLO
    from .asgd import ASGD as ASGD
    from .came import CAME as CAME
    from .cautious import CautiousAdamW as CautiousAdamW, CautiousLion as CautiousLion
    from .clip_grad import clip_grad_norm_ as clip_grad_norm_, clip_grad_value_ as clip_grad_value_
    from .custom import from_wgsl as from_wgsl
    from .dadapt import DAdaptAdaGrad as DAdaptAdaGrad, DAdaptAdam as DAdaptAdam, DAdaptSGD as DAdaptSGD
    from .diagonal_hessian import DiagonalNewton as DiagonalNewton, SophiaH as SophiaH
    from .dog import DoG as DoG, LDoG as LDoG
    from .fedprox import FedProx as FedProx
    from .ftrl import FTRL as FTRL
    from .galore import GaLore as GaLore
    from .hooks import (
        register_optimizer_step_post_hook as register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook as register_optimizer_step_pre_hook,
    )
    from .kfac import KFAC as KFAC
    from .lamb import LAMB as LAMB
    from .lars import LARS as LARS
    from .lbfgs import LBFGS as LBFGS
    from .lion import Lion as Lion, Signum as Signum
    from .lookahead import Lookahead as Lookahead, Ranger as Ranger
    from .mars import MARS as MARS
    from .metasgd import MetaSGD as MetaSGD
    from .muon import Muon as Muon
    from .nadam import NAdam as NAdam
    from .newton_cg import NewtonCG as NewtonCG
    from .novograd import NovoGrad as NovoGrad
    from .optimizer import Optimizer as Optimizer
    from .options import Options as Options
    from .prodigy import Prodigy as Prodigy
    from .radam import RAdam as RAdam
    from .reptile import Reptile as Reptile
    from .rmsprop import RMSprop as RMSprop
    from .rprop import Rprop as Rprop
    from .sam import SAM as SAM
    from .scaler import GradScaler as GradScaler
    from .schedule_free import AdamWScheduleFree as AdamWScheduleFree, SGDScheduleFree as SGDScheduleFree
    from .sgd import SGD as SGD
    from .shampoo import Shampoo as Shampoo
    from .sm3 import SM3 as SM3
    from .soap import SOAP as SOAP
    from .sparse_adam import SparseAdam as SparseAdam
    from .yogi import Yogi as Yogi

_SUBMODULES = ("averaging", "lr_scheduler", "projections", "schedules", "transforms")
_NAMES = {
    "adabelief": "AdaBelief",
    "adabound": "AdaBound",
    "adadelta": "Adadelta",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "adam": "Adam AdamW",
    "adam_mini": "AdamMini",
    "adamax": "Adamax",
    "adan": "Adan",
    "ademamix": "AdEMAMix",
    "adopt": "ADOPT",
    "apollo": "APOLLO",
    "asgd": "ASGD",
    "came": "CAME",
    "cautious": "CautiousAdamW CautiousLion",
    "clip_grad": "clip_grad_norm_ clip_grad_value_",
    "custom": "from_wgsl",
    "dadapt": "DAdaptAdaGrad DAdaptAdam DAdaptSGD",
    "diagonal_hessian": "DiagonalNewton SophiaH",
    "dog": "DoG LDoG",
    "fedprox": "FedProx",
    "ftrl": "FTRL",
    "galore": "GaLore",
    "hooks": "register_optimizer_step_post_hook register_optimizer_step_pre_hook",
    "kfac": "KFAC",
    "lamb": "LAMB",
    "lars": "LARS",
    "lbfgs": "LBFGS",
    "lion": "Lion Signum",
    "lookahead": "Lookahead Ranger",
    "mars": "MARS",
    "metasgd": "MetaSGD",
    "muon": "Muon",
    "nadam": "NAdam",
    "newton_cg": "NewtonCG",
    "novograd": "NovoGrad",
    "optimizer": "Optimizer",
    "options": "Options",
    "prodigy": "Prodigy",
    "radam": "RAdam",
    "reptile": "Reptile",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "sam": "SAM",
    "scaler": "GradScaler",
    "schedule_free": "AdamWScheduleFree SGDScheduleFree",
    "sgd": "SGD",
    "shampoo": "Shampoo",
    "sm3": "SM3",
    "soap": "SOAP",
    "sparse_adam": "SparseAdam",
    "yogi": "Yogi",
}
"""By module."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ADOPT",
    "APOLLO",
    "ASGD",
    "CAME",
    "FTRL",
    "KFAC",
    "LAMB",
    "LARS",
    "LBFGS",
    "MARS",
    "SAM",
    "SGD",
    "SM3",
    "SOAP",
    "AdEMAMix",
    "AdaBelief",
    "AdaBound",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamMini",
    "AdamW",
    "AdamWScheduleFree",
    "Adamax",
    "Adan",
    "CautiousAdamW",
    "CautiousLion",
    "DAdaptAdaGrad",
    "DAdaptAdam",
    "DAdaptSGD",
    "DiagonalNewton",
    "DoG",
    "FedProx",
    "GaLore",
    "GradScaler",
    "LDoG",
    "Lion",
    "Lookahead",
    "MetaSGD",
    "Muon",
    "NAdam",
    "NewtonCG",
    "NovoGrad",
    "Optimizer",
    "Options",
    "Prodigy",
    "RAdam",
    "RMSprop",
    "Ranger",
    "Reptile",
    "Rprop",
    "SGDScheduleFree",
    "Shampoo",
    "Signum",
    "SophiaH",
    "SparseAdam",
    "Yogi",
    "averaging",
    "clip_grad_norm_",
    "clip_grad_value_",
    "from_wgsl",
    "lr_scheduler",
    "projections",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "schedules",
    "transforms",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(imported(f"optim.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
