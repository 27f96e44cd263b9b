"""Functions of the program on the first page: points to classify, and `watch`, which trains and reports progress."""

from __future__ import annotations

import json
import math
import random
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

import optirs_web as ow

GRID = 64
REACH = 1.2
"""The map shows the plane from -REACH to REACH, at GRID x GRID points."""

TURNS = 0.9
"""The number of times that an arm winds around the middle."""

SHORTEST, LONGEST = 0.06, 0.25
"""Seconds between two reports: the number of steps between them adapts until it takes that long."""


class Page(Protocol):
    """The page: receives reports, and sends messages."""

    def emit_buffer(self, kind: str, report: str, content: Any) -> None:
        """Send numbers, with a note as JSON."""

    def take(self) -> str | None:
        """Return the next message as JSON, {"kind", "value"}; None if there is none."""

    async def pause(self) -> None:
        """Let messages arrive."""


class Terminal:
    """The page's counterpart in a terminal: prints the figures of each report."""

    def emit_buffer(self, kind: str, report: str, content: Any) -> None:
        """Print step, loss and accuracy."""
        if kind == "map":
            figures = json.loads(report)
            loss = math.nan if figures["loss"] is None else figures["loss"]
            print(f"step {figures['step']:5}  loss {loss:.4f}  accuracy {figures['accuracy']:.1%}", flush=True)

    def take(self) -> str | None:
        """Return None: a terminal sends no messages, and Ctrl-C stops the program."""
        return None

    async def pause(self) -> None:
        """Return at once: a terminal sends no messages."""


def _this_page() -> Page:
    if sys.platform != "emscripten" and sys.modules.get("page") is None:
        return Terminal()
    import page  # the module that the worker, or the recorder of runs, registers

    return page


def spiral(points: int = 900, arms: int = 3, noise: float = 0.025, seed: int = 0) -> tuple[memoryview, array[int]]:
    """Return points on the arms of a spiral, and the arm of each point.

    Returns:
        Coordinates, float32 of shape (points, 2) within about -1 to 1, and labels, int32 of shape (points,).

    Raises:
        ValueError: there is no arm, or there are more arms than points.
    """
    if not 1 <= arms <= points:
        raise ValueError(f"arms must be from 1 to {points:,}, the number of points, not {arms:,}")
    chance = random.Random(seed)
    coordinates, labels = array("f"), array("i")
    for number in range(points):
        arm, along = number % arms, number / points
        angle = math.tau * (arm / arms + TURNS * along)
        radius = 0.05 + 0.95 * along
        coordinates.append(radius * math.cos(angle) + chance.gauss(0, noise))
        coordinates.append(radius * math.sin(angle) + chance.gauss(0, noise))
        labels.append(arm)
    return memoryview(coordinates).cast("B").cast("f", (points, 2)), labels


def dense(inputs: int, outputs: int) -> tuple[ow.Parameter, ow.Parameter]:
    """Return the initial weights, (inputs, outputs), and biases, (outputs,), of a layer.

    The weights are normal, of He et al.'s variance (2015, arXiv:1502.01852); the biases are zero.
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
    """Train and report progress, until all steps are done, the page sends "stop", or the loss is not finite.

    Args:
        step: the compiled training step, of coordinates and labels.
        model: returns logits, (n, classes), of coordinates, (n, 2).
        x: the coordinates.
        labels: their classes.
        steps: the largest number of steps.
        page: receives the reports; None means the page in which this Python runs, and natively the terminal.

    Raises:
        ValueError: a label is not one of the model's classes.
    """
    page = page or _this_page()
    predict = ow.compile(_without_gradients(model))
    points, targets, grid = ow.tensor(x), ow.tensor(labels), ow.tensor(_grid())  # uploaded once, not at each step
    page.emit_buffer("points", json.dumps({"labels": list(labels)}), x)
    _check_classes(labels, predict(points).shape[-1])
    began = time.perf_counter()
    done, count = 0, 1
    while done < steps:
        count = min(count, steps - done)
        seconds, figures = await _advance(lambda: step(points, targets), count)
        done += count
        accuracy = _accuracy(await predict(points).tolist_async(), labels)
        logits = predict(grid)
        progress = {"step": done, "steps": steps, "seconds": time.perf_counter() - began, "shape": logits.shape}
        page.emit_buffer("map", json.dumps({**figures, **progress, "accuracy": accuracy}), await logits.read_async())
        if figures["loss"] is None:
            return
        await page.pause()
        if page.take() is not None:  # the only message is "stop"
            return
        if seconds < SHORTEST:
            count *= 2
        elif seconds > LONGEST:
            count = max(1, count // 2)


async def _advance(step: Callable[[], ow.Tensor], count: int) -> tuple[float, dict[str, float | None]]:
    """Run steps, then wait for the device.

    Returns:
        The seconds of all steps; and the last loss (None unless it is finite), with the counts of a step.
    """
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


def _check_classes(labels: array[int], classes: int) -> None:
    """Check that labels are classes of the model; `cross_entropy` does so with `ow.debug` only: it costs a read."""
    if max(labels, default=0) >= classes:
        raise ValueError(
            f"labels go up to {max(labels)}, so the model needs {max(labels) + 1} outputs; it has {classes}"
        )


def _without_gradients(model: Callable[[ow.Tensor], ow.Tensor]) -> Callable[[ow.Tensor], ow.Tensor]:
    def predict(x: ow.Tensor) -> ow.Tensor:
        with ow.no_grad():
            return model(x)

    return predict


def _grid() -> memoryview:
    """Return the points of the map, row by row from the top left."""
    along = [REACH * (2 * (index + 0.5) / GRID - 1) for index in range(GRID)]
    points = array("f", (value for y in reversed(along) for x in along for value in (x, y)))
    return memoryview(points).cast("B").cast("f", (GRID * GRID, 2))


def _accuracy(rows: list[list[float]], labels: array[int]) -> float:
    return sum(row.index(max(row)) == label for row, label in zip(rows, labels, strict=True)) / len(labels)
