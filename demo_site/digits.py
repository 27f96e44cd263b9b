"""The digits as a binary file of numbers, which pages read without a parser."""

from __future__ import annotations

import csv
import gzip
import sys
from array import array
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from .assets import Content

__all__ = ["DigitsFile", "digits_file"]

_FULL_INK = 16


class DigitsFile(NamedTuple):
    """Little-endian float32 images, row by row from 0 (paper) to 1 (ink), then int32 labels, then int32 folds."""

    content: Content
    note: dict[str, Any]


@cache
def digits_file() -> DigitsFile:
    """Return all images of the data set, in the order of the source."""
    with files("optirs_web.datasets").joinpath("digits.csv.gz").open("rb") as packed, gzip.open(packed, "rt") as text:
        _, *rows = csv.reader(text)
    images = array("f", (int(pixel) / _FULL_INK for row in rows for pixel in row[2:]))
    labels, folds = (array("i", (int(row[column]) for row in rows)) for column in (0, 1))
    if sys.byteorder == "big":
        for numbers in (images, labels, folds):
            numbers.byteswap()
    body = images.tobytes() + labels.tobytes() + folds.tobytes()
    note = {"n": len(rows), "pixels": 64, "classes": 10, "folds": 5, "url": "data/digits.bin"}
    return DigitsFile(Content(body, "application/octet-stream", packs=True), note)
