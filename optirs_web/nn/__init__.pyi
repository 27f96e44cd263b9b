from ..tensors import Parameter as Parameter
from . import functional as functional, init as init, utils as utils
from .activations import (
    GELU as GELU,
    LeakyReLU as LeakyReLU,
    LogSoftmax as LogSoftmax,
    ReLU as ReLU,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softmax as Softmax,
    Softplus as Softplus,
    Tanh as Tanh,
)
from .attention import MultiheadAttention as MultiheadAttention
from .buffers import Buffer as Buffer
from .containers import ModuleDict as ModuleDict, ModuleList as ModuleList, Sequential as Sequential
from .conv import Conv2d as Conv2d
from .data_loader import DataLoader as DataLoader
from .dropout import Dropout as Dropout
from .embedding import Embedding as Embedding
from .linear import Flatten as Flatten, Identity as Identity, Linear as Linear
from .losses import (
    BCELoss as BCELoss,
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    CrossEntropyLoss as CrossEntropyLoss,
    L1Loss as L1Loss,
    MSELoss as MSELoss,
    NLLLoss as NLLLoss,
)
from .module import Module as Module
from .normalization import BatchNorm1d as BatchNorm1d, BatchNorm2d as BatchNorm2d, LayerNorm as LayerNorm
from .pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d, AvgPool2d as AvgPool2d, MaxPool2d as MaxPool2d
from .samples import TensorDataset as TensorDataset
