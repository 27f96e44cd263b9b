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
