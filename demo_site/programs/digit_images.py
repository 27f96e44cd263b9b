"""Load the digits in a page, standardise them and make batches; convert drawings to such images. Without NumPy."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

SIDE = 8
PIXELS = SIDE * SIDE
CLASSES = 10

_SQUARE = 4  # a pixel counts the set dots in a square of a bitmap
_BITMAP = SIDE * _SQUARE
_FULL_INK = _SQUARE * _SQUARE
_PEN = 6.0  # the width of a stroke on the bitmap, with which drawn digits are recognised best
_WIDEST = 26.0  # the columns at either side of the data set are nearly always paper

Point = tuple[float, float]


class Images(NamedTuple):
    """Standardised images with their labels and the pixels that people see.

    Attributes:
        rows: each image as 256 bytes of float32, ready to be joined into a batch.
        labels: the digits.
        ink: each image as 64 numbers from 0 (paper) to 16 (ink).
    """

    rows: list[bytes]
    labels: list[int]
    ink: list[list[int]]

    def batch(self, chosen: Iterable[int]) -> tuple[memoryview, array[int]]:
        """Return images, (n, 64) float32, and labels, (n,) int32, for the device."""
        chosen = list(chosen)
        pixels = memoryview(b"".join(self.rows[index] for index in chosen))
        return pixels.cast("f", (len(chosen), PIXELS)), array("i", [self.labels[index] for index in chosen])


class Standard(NamedTuple):
    """The mean of each pixel, which is subtracted, and the standard deviation of all, by which pixels are divided."""

    means: list[float]
    deviation: float

    @classmethod
    def of(cls, images: Sequence[Sequence[float]]) -> Standard:
        """Return the means and the standard deviation of images."""
        means = [math.fsum(column) / len(images) for column in zip(*images, strict=True)]
        mean = math.fsum(means) / PIXELS
        variance = math.fsum((value - mean) ** 2 for row in images for value in row) / (PIXELS * len(images))
        return cls(means, math.sqrt(variance))

    def apply(self, image: Sequence[float]) -> array[float]:
        """Return a standardised image as float32."""
        return array("f", ((value - mean) / self.deviation for value, mean in zip(image, self.means, strict=True)))


def load_images(data: bytes | memoryview, fold: int = 0) -> tuple[Images, Images, Standard]:
    """Return the training images, the test images, and the means and deviation by which they were standardised.

    Args:
        data: n images as float32 from 0 to 1, then n labels and n folds as int32.
        fold: the fold to test on.
    """
    view = memoryview(data).cast("B")
    count = len(view) // (4 * (PIXELS + 2))
    end = 4 * count * PIXELS
    pixels = view[:end].cast("f").tolist()
    labels, folds = (view[end + 4 * count * part :][: 4 * count].cast("i").tolist() for part in range(2))
    images = [pixels[start : start + PIXELS] for start in range(0, len(pixels), PIXELS)]
    train = [number for number in range(count) if folds[number] != fold]
    test = [number for number in range(count) if folds[number] == fold]
    standard = Standard.of([images[number] for number in train])

    def chosen(numbers: list[int]) -> Images:
        return Images(
            [standard.apply(images[number]).tobytes() for number in numbers],
            [labels[number] for number in numbers],
            [[round(_FULL_INK * value) for value in images[number]] for number in numbers],
        )

    return chosen(train), chosen(test), standard


def epoch_order(count: int, seed: int, epoch: int) -> list[int]:
    """Return the numbers 0 to count - 1, shuffled as `optirs_web.training` shuffles them."""
    uniform = random.Random(epoch << 64 | seed).random
    return sorted(range(count), key=lambda _: uniform())


def softmax(logits: Sequence[float]) -> list[float]:
    """Return the probabilities of logits."""
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    return [power / sum(powers) for power in powers]


def drawn_image(strokes: Sequence[Sequence[Point]]) -> list[int] | None:
    """Return a drawing as an image of the data set: centred and scaled to 32 x 32 dots, counted in 4 x 4 squares.

    Args:
        strokes: the points of each stroke, in any unit; y points down.

    Returns:
        64 numbers from 0 to 16, row by row, or None if nothing was drawn.
    """
    segments = [pair for stroke in strokes for pair in pairwise(stroke if len(stroke) > 1 else [*stroke, *stroke])]
    if not segments:
        return None
    (left, right), (top, bottom) = (
        (min(axis), max(axis)) for axis in zip(*(point for segment in segments for point in segment), strict=True)
    )
    width, height = right - left, bottom - top
    # A line has no extent along one axis, and a dot along neither.
    scale = min((_WIDEST - _PEN) / max(width, 1e-9), (_BITMAP - _PEN) / max(height, 1e-9)) if width or height else 0.0
    # As in the data set, the ink is centred horizontally and fills the bitmap vertically.
    lengths = [math.dist(*segment) + 1e-9 for segment in segments]
    middle = sum(size * (start[0] + end[0]) / 2 for size, (start, end) in zip(lengths, segments, strict=True)) / sum(
        lengths
    )

    def placed(point: Point) -> Point:
        return (point[0] - middle) * scale + _BITMAP / 2, (point[1] - (top + bottom) / 2) * scale + _BITMAP / 2

    bitmap = bytearray(_BITMAP * _BITMAP)
    for start, end in segments:
        _draw_line(bitmap, placed(start), placed(end))
    return [
        sum(sum(bitmap[row * _BITMAP + column :][:_SQUARE]) for row in range(top, top + _SQUARE))
        for top in range(0, _BITMAP, _SQUARE)
        for column in range(0, _BITMAP, _SQUARE)
    ]


def _draw_line(bitmap: bytearray, start: Point, end: Point) -> None:
    """Set the dots whose centres are within half a pen's width of the line."""
    radius = _PEN / 2
    (x0, y0), (x1, y1) = start, end
    dx, dy = x1 - x0, y1 - y0
    length = dx * dx + dy * dy
    for row in _dots(y0, y1, radius):
        for column in _dots(x0, x1, radius):
            x, y = column + 0.5 - x0, row + 0.5 - y0
            along = min(1.0, max(0.0, (x * dx + y * dy) / length)) if length else 0.0
            if math.hypot(x - along * dx, y - along * dy) <= radius:
                bitmap[row * _BITMAP + column] = 1


def _dots(start: float, end: float, radius: float) -> range:
    """Return the dots along one axis that a line from `start` to `end` can reach."""
    first, last = min(start, end) - radius, max(start, end) + radius
    return range(max(0, math.floor(first)), min(_BITMAP, math.ceil(last) + 1))
