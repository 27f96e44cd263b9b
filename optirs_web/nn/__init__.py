"""Modules in torch's words: layers, losses, containers; first values; functions; data sets in batches.

What is written for torch.nn runs unchanged but for the import, and torch's weights load as they are.
"""

import importlib
from types import ModuleType

from ..tensors import Parameter
from . import functional, init
from .activations import GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .attention import MultiheadAttention
from .buffers import Buffer
from .containers import ModuleDict, ModuleList, Sequential
from .conv import Conv2d
from .data_loader import DataLoader
from .dropout import Dropout
from .embedding import Embedding
from .linear import Flatten, Identity, Linear
from .losses import BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from .module import Module
from .normalization import BatchNorm1d, BatchNorm2d, LayerNorm
from .pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from .samples import TensorDataset

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Buffer",
    "Conv2d",
    "CrossEntropyLoss",
    "DataLoader",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "TensorDataset",
    "functional",
    "init",
    "utils",
]


def __getattr__(name: str) -> ModuleType:
    """`utils`, which needs the optimizers, when it is first used."""
    if name == "utils":
        return importlib.import_module(".utils", __name__)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
