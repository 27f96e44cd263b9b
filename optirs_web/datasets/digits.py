"""The UCI handwritten digits: 1,797 real images, and the five folds that the project's figures refer to."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FOLDS", "Digits", "load_digits"]

FOLDS = 5
_FULL_INK = 16  # a pixel counts the set dots in a 4 x 4 square


class Digits(NamedTuple):
    """Images and labels, split into a training set and a test set.

    Attributes:
        train_images: float32 of shape (n, 64), from 0 (paper) to 1 (ink), row by row from the top left.
        train_labels: int32 of shape (n,), the digits 0 to 9.
        test_images: float32 of shape (1797 - n, 64).
        test_labels: int32 of shape (1797 - n,).
    """

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int32]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int32]

    def __repr__(self) -> str:
        return f"<Digits: {len(self.train_labels):,} training images, {len(self.test_labels):,} test images>"


def load_digits(fold: int = 0) -> Digits:
    """Load the UCI handwritten digits, one of five stratified folds as the test set.

    The folds are published with the data (`optirs_web/datasets/README.md` says how they were made), so that
    the accuracies of two runs can be compared. Images keep the order of the source.

    Args:
        fold: the fold to test on, 0 to 4. Folds 0 and 1 have 360 images, the others 359.

    Returns:
        New arrays, the caller's own.

    Raises:
        ValueError: there is no such fold.

    Example:
        >>> digits = load_digits(fold=0)
        >>> digits.train_images.shape, digits.test_images.shape
        ((1437, 64), (360, 64))
        >>> digits.train_labels[:5].tolist()
        [0, 1, 2, 3, 4]

    Reference:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
        1998, DOI 10.24432/C50P49, CC BY 4.0.
    """
    if fold not in range(FOLDS):
        raise ValueError(f"there is no fold {fold!r}: the folds of the digits are 0 to {FOLDS - 1}")
    with files(__package__).joinpath("digits.csv.gz").open("rb") as packed, gzip.open(packed, "rt") as text:
        table = np.loadtxt(text, dtype=np.int32, delimiter=",", skiprows=1)
    labels, folds = table[:, 0], table[:, 1]
    images = table[:, 2:].astype(np.float32) / np.float32(_FULL_INK)
    test = folds == fold
    return Digits(images[~test], labels[~test], images[test], labels[test])
