"""Training of an MLP on the handwritten digits, written with the public API. Needs NumPy."""

from .config import Config
from .digits import DigitsTraining, train_digits
from .plots import plot_curves
from .recipes import COMMON, OPTIMIZERS
from .result import Epoch, Result

__all__ = ["COMMON", "OPTIMIZERS", "Config", "DigitsTraining", "Epoch", "Result", "plot_curves", "train_digits"]
