"""What the program on the first page uses: points to tell apart, and a stage on which the training is watched."""

from __future__ import annotations

import json
import math
import random
import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

import optirs_web as ow

GRID = 64
REACH = 1.2
"""The map shows the plane from -REACH to REACH, at GRID x GRID points."""

TURNS = 0.9
"""How often an arm winds around the middle."""

SHORTEST, LONGEST = 0.06, 0.25
"""Seconds between two reports: the steps between them become more, or fewer, until it takes that long."""


class Page(Protocol):
    """The other side: takes reports, gives messages."""

    def emit_buffer(self, kind: str, report: str, content: Any) -> None:
        """Report numbers, with a note as JSON."""

    def take(self) -> str | None:
        """The next message as JSON, {"kind", "value"}."""

    async def pause(self) -> None:
        """Let messages arrive."""


def spiral(points: int = 900, arms: int = 3, noise: float = 0.025, seed: int = 0) -> tuple[memoryview, array[int]]:
    """Points on the arms of a spiral, and the arm of each.

    Returns:
        Places, float32 of shape (points, 2) within about -1 to 1, and labels, int32 of shape (points,).
    """
    chance = random.Random(seed)
    places, labels = array("f"), array("i")
    for number in range(points):
        arm, along = number % arms, number / points
        angle = math.tau * (arm / arms + TURNS * along)
        radius = 0.05 + 0.95 * along
        places.append(radius * math.cos(angle) + chance.gauss(0, noise))
        places.append(radius * math.sin(angle) + chance.gauss(0, noise))
        labels.append(arm)
    return memoryview(places).cast("B").cast("f", (points, 2)), labels


def dense(inputs: int, outputs: int) -> tuple[ow.Parameter, ow.Parameter]:
    """The weights, (inputs, outputs), and the biases, (outputs,), of a layer, to begin with.

    Normal weights of He et al.'s variance (2015, arXiv:1502.01852), and no biases.
    """
    weights = ow.randn((inputs, outputs)) * math.sqrt(2 / inputs)
    return ow.Parameter(weights), ow.Parameter(ow.zeros((outputs,)))


async def watch(
    step: Callable[..., ow.Tensor],
    model: Callable[[ow.Tensor], ow.Tensor],
    x: memoryview,
    labels: array[int],
    steps: int = 2000,
    page: Page | None = None,
) -> None:
    """Train before the visitor's eyes, until all steps are done or the page says stop.

    Args:
        step: the compiled training step, of places and labels.
        model: logits, (n, classes), of places, (n, 2).
        x: the places.
        labels: their classes.
        steps: how many at most.
        page: who watches; None means the page that this Python lives in.
    """
    if page is None:
        import page as here

        page = here
    assert page is not None
    predict = ow.compile(_without_gradients(model))
    places, targets, grid = ow.tensor(x), ow.tensor(labels), ow.tensor(_grid())  # uploaded once, not at each step
    page.emit_buffer("points", json.dumps({"labels": list(labels)}), x)
    began = time.perf_counter()
    done, count = 0, 1
    while done < steps:
        count = min(count, steps - done)
        seconds, figures = await _advance(lambda: step(places, targets), count)
        done += count
        accuracy = _accuracy(await predict(places).tolist_async(), labels)
        logits = predict(grid)
        progress = {"step": done, "steps": steps, "seconds": time.perf_counter() - began, "shape": logits.shape}
        page.emit_buffer("map", json.dumps({**figures, **progress, "accuracy": accuracy}), await logits.read_async())
        await page.pause()
        if page.take() is not None:  # the one message there is: stop
            return
        if seconds < SHORTEST:
            count *= 2
        elif seconds > LONGEST:
            count = max(1, count // 2)


async def _advance(step: Callable[[], ow.Tensor], count: int) -> tuple[float, dict[str, float | None]]:
    """Make steps, then wait for the device. How long that took, the last loss, and what a step cost."""
    device = ow.device()
    before, started = device.stats.copy(), time.perf_counter()
    for _ in range(count):
        loss = step()
    work = device.stats - before
    value = await loss.item_async()
    seconds = max(time.perf_counter() - started, 1e-9)
    return seconds, {
        "loss": value if math.isfinite(value) else None,
        "steps_per_second": count / seconds,
        "submits": work.submits / count,
        "dispatches": work.dispatches / count,
        "bytes_down": work.bytes_down / count,
    }


def _without_gradients(model: Callable[[ow.Tensor], ow.Tensor]) -> Callable[[ow.Tensor], ow.Tensor]:
    def predict(x: ow.Tensor) -> ow.Tensor:
        with ow.no_grad():
            return model(x)

    return predict


def _grid() -> memoryview:
    """The points of the map, row by row from the top left."""
    along = [REACH * (2 * (one + 0.5) / GRID - 1) for one in range(GRID)]
    places = array("f", (value for y in reversed(along) for x in along for value in (x, y)))
    return memoryview(places).cast("B").cast("f", (GRID * GRID, 2))


def _accuracy(rows: list[list[float]], labels: array[int]) -> float:
    return sum(row.index(max(row)) == label for row, label in zip(rows, labels, strict=True)) / len(labels)
