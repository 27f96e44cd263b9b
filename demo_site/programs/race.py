"""A race of optimizers down a surface. Each racer has its own optimizer; one compiled program steps them all.

The page runs this file once, and then calls `described`, `heights` and the methods of `Race`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import optirs_web as ow
from optirs_web.ops import concat, where

FRAME = 16
"""The largest number of steps between two reads: their positions are gathered on the device and read at once."""

GRID = 240
"""The surface is drawn from its heights at GRID x GRID points."""

STAY = 25
"""Steps for which a racer must stay at or below the goal's height to have arrived; to pass it once is not enough."""

Axis = tuple[float, float]
Height = Callable[[Any, Any], Any]


class Surface(NamedTuple):
    """A surface that the racers run down: its height, the part of the plane shown, the start, the height of the goal.

    `noise` is the standard deviation of the noise in the gradients; `rates` are the initial learning rates.
    """

    label: str
    formula: str
    height: Height
    x: Axis
    y: Axis
    start: tuple[float, float]
    minima: tuple[tuple[float, float], ...]
    noise: float = 0.0
    goal: float = 0.01
    rates: dict[str, float] = {}  # noqa: RUF012  (never written)


def _square(a: Any) -> Any:
    return a * a


def rosenbrock(x: Any, y: Any) -> Any:
    """A curved valley whose floor is nearly flat (Rosenbrock 1960)."""
    return _square(1 - x) + 100 * _square(y - x * x)


def beale(x: Any, y: Any) -> Any:
    """Steep walls around flat ground (Beale 1958)."""
    return _square(1.5 - x + x * y) + _square(2.25 - x + x * y * y) + _square(2.625 - x + x * y * y * y)


def himmelblau(x: Any, y: Any) -> Any:
    """Four minima, all equally deep (Himmelblau 1972)."""
    return _square(x * x + y - 11) + _square(x + y * y - 7)


def valley(x: Any, y: Any) -> Any:
    """A narrow valley, forty times as steep across as along."""
    return 0.05 * _square(x + y) + 2 * _square(x - y)


def _rates(sgd: float, momentum: float, adam: float) -> dict[str, float]:
    """Return the initial learning rate of each kind."""
    like_adam = dict.fromkeys(("adam", "adamw", "amsgrad", "adabelief", "adan"), adam)
    return {"sgd": sgd, "momentum": momentum, "nesterov": momentum, **like_adam, "rmsprop": adam / 5, "lion": adam / 5}


SURFACES = {
    "rosenbrock": Surface(
        "Rosenbrock", "(1 − x)² + 100 (y − x²)²", rosenbrock, (-2, 2), (-1, 3), (-1.5, 2.5), ((1, 1),),
        rates=_rates(5e-4, 3e-4, 0.05),
    ),
    "beale": Surface(
        "Beale", "(1.5 − x + xy)² + (2.25 − x + xy²)² + (2.625 − x + xy³)²", beale, (-4.5, 4.5), (-4.5, 4.5),
        (1.0, 1.8), ((3, 0.5),),
        rates=_rates(0.01, 3e-3, 0.05),
    ),
    "himmelblau": Surface(
        "Himmelblau", "(x² + y − 11)² + (x + y² − 7)²", himmelblau, (-5.5, 5.5), (-5.5, 5.5), (-0.5, -1.0),
        ((3, 2), (-2.805118, 3.131313), (-3.77931, -3.283186), (3.584428, -1.848127)),
        rates=_rates(0.01, 2e-3, 0.1),
    ),
    "valley": Surface(
        "Noisy valley", "(x + y)² / 20 + 2 (x − y)², gradients with noise", valley, (-4, 4), (-4, 4), (-3.5, -1.5),
        ((0, 0),), noise=2.0, goal=0.1,
        rates=_rates(0.1, 0.03, 0.05),
    ),
}  # fmt: skip


class Kind(NamedTuple):
    """A kind of racer: an optimizer of the library with options."""

    label: str
    optimizer: str
    options: dict[str, Any]


@dataclass
class Result:
    """The end of the race for a racer, if it has ended.

    Attributes:
        arrived: the first of the `STAY` steps for which it stayed at the goal.
        out: the step at which its position was not finite, or was outside of the map by more than its width.
    """

    arrived: int | None = None
    out: int | None = None
    _since: int | None = None

    def follow(self, step: int, point: list[float], surface: Surface) -> None:
        """Record the position of the racer before a step, (x, y, height); without effect after its end."""
        *position, height = point
        if self.arrived is not None or self.out is not None:
            return
        if not (math.isfinite(height) and all(map(_is_near, position, (surface.x, surface.y)))):
            self.out = step
        elif height > surface.goal:
            self._since = None
        else:
            self._since = step if self._since is None else self._since
            if step - self._since + 1 >= STAY:
                self.arrived = self._since


def _is_near(value: float, axis: Axis) -> bool:
    """Return True if a coordinate is on the map, or outside of it by no more than its width; False for NaN."""
    low, high = axis
    return 2 * low - high <= value <= 2 * high - low


KINDS = {
    "sgd": Kind("SGD", "SGD", {}),
    "momentum": Kind("Momentum SGD", "SGD", {"momentum": 0.9}),
    "nesterov": Kind("Nesterov SGD", "SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": Kind("Adam", "Adam", {}),
    "adamw": Kind("AdamW", "AdamW", {"weight_decay": 0.01}),
    "amsgrad": Kind("AMSGrad", "Adam", {"amsgrad": True}),
    "rmsprop": Kind("RMSprop", "RMSprop", {}),
    "lion": Kind("Lion", "Lion", {}),
    "adabelief": Kind("AdaBelief", "AdaBelief", {}),
    "adan": Kind("Adan", "Adan", {}),
}
"""The kinds of racers. A viewer can follow about a dozen lines, so these are not all of the library's optimizers."""


class Race:
    """Racers on a surface.

    Args:
        device: where they run.
        surface: a key of `SURFACES`.
        racers: for each a dict with "kind" (a key of `KINDS`) and "lr".
        start: the position from which all begin.
        noise: the standard deviation of the noise that is added to the gradients.
        seed: of that noise.

    Attributes:
        steps: the number of steps taken.
        results: the result of each racer.
    """

    def __init__(
        self,
        device: ow.Device,
        surface: str,
        racers: list[dict[str, Any]],
        start: tuple[float, float],
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.surface = SURFACES[surface]
        self.steps = 0
        self.results = [Result() for _ in racers]
        self._noise, self._random = noise, random.Random(seed)
        self._positions = [ow.Parameter([list(map(float, start))], device=device) for _ in racers]
        self._optimizers = [_optimizer(racer, at) for racer, at in zip(racers, self._positions, strict=True)]
        self._slots = [ow.tensor([[[slot == index]] for slot in range(FRAME)], device=device) for index in range(FRAME)]
        self._track = ow.zeros((FRAME, len(racers), 3), device=device)
        self._step = ow.compile(self._step_all, device=device)

    def _step_all(self, noise: ow.Tensor, slot: ow.Tensor, track: ow.Tensor) -> ow.Tensor:
        """Step every racer, and return the track with their earlier positions in a slot.

        Racers are rows. Rows are added only in the sum whose gradient is taken, so a NaN does not affect other racers.
        """
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        at = concat(self._positions)
        heights = self.surface.height(at[:, :1], at[:, 1:])
        (heights.sum() + (noise * at).sum()).backward()  # the gradient of noise * at is the noise
        for optimizer in self._optimizers:
            optimizer.step()
        return where(slot, concat([at, heights], axis=1).detach(), track)

    async def frame(self, steps: int) -> list[list[list[float]]]:
        """Take up to `FRAME` steps; return for each x, y and height of every racer before the step. Reads once."""
        track = self._track
        for slot in self._slots[:steps]:
            track = self._step(self._draw_noise(), slot, track)
        points = (await track.tolist_async())[:steps]
        for step, row in enumerate(points, self.steps):
            for result, point in zip(self.results, row, strict=True):
                result.follow(step, point, self.surface)
        self.steps += len(points)
        return points

    def _draw_noise(self) -> list[list[float]]:
        return [[self._random.gauss(0.0, self._noise) for _ in "xy"] for _ in self._positions]


def _optimizer(racer: dict[str, Any], position: ow.Parameter) -> ow.optim.Optimizer:
    kind = KINDS[racer["kind"]]
    make: Any = getattr(ow.optim, kind.optimizer)
    optimizer: ow.optim.Optimizer = make([position], lr=float(racer["lr"]), **kind.options)
    return optimizer


async def advance(race: Race, steps: int) -> dict[str, Any]:
    """Run a frame for the page; return the points of each step, and the results after the last."""
    points = await race.frame(steps)
    return {"points": points, "results": [{"arrived": result.arrived, "out": result.out} for result in race.results]}


async def heights(device: ow.Device, name: str) -> memoryview:
    """Return the heights of a surface on a grid, row by row from the lowest y, by the function of the race."""

    def grid(limits: Axis) -> list[float]:
        return [limits[0] + (limits[1] - limits[0]) * index / (GRID - 1) for index in range(GRID)]

    surface = SURFACES[name]
    x = ow.tensor([grid(surface.x)], device=device)
    y = ow.tensor([[value] for value in grid(surface.y)], device=device)
    return await surface.height(x, y).read_async()


def described() -> dict[str, Any]:
    """Return the surfaces and kinds of racers that the page offers."""
    surfaces: dict[str, Any] = {
        name: {**surface._asdict(), "about": surface.height.__doc__} for name, surface in SURFACES.items()
    }
    for surface in surfaces.values():
        del surface["height"]  # a function
    kinds = {name: kind._asdict() for name, kind in KINDS.items()}
    return {"surfaces": surfaces, "kinds": kinds, "grid": GRID, "stay": STAY}
