"""The main job: an MLP on the handwritten digits, as library code on the public API. Needs NumPy."""

from .config import OPTIMIZERS, Config
from .digits import DigitsTraining, train_digits
from .plots import plot_curves
from .result import Epoch, Result

__all__ = ["OPTIMIZERS", "Config", "DigitsTraining", "Epoch", "Result", "plot_curves", "train_digits"]
