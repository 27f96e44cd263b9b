"""Benchmarks of the library in a page. Each times rounds of enqueued steps with one wait at their end.

The page runs `measure` for one name after the other, so that it can draw results and stop in between.
"""

from __future__ import annotations

import math
import statistics
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import optirs_web as ow

ROUND_SECONDS = 0.15
"""A round has enough steps to fill this time, so that the clock's resolution does not matter."""

PATIENCE = 6.0
"""Seconds for all rounds of a benchmark, of which there are at least two."""

BYTES_PER_PARAMETER = 28
"""A step of AdamW reads parameter, gradient and two moments, and writes all but the gradient."""

Enqueue = Callable[[], Any]
Wait = Callable[[], Awaitable[Any]]


class Work(NamedTuple):
    """The steps that a benchmark times.

    Attributes:
        enqueue: enqueues one step without waiting.
        wait: waits until all steps are done.
        amount: bytes or floating-point operations of a step, in the unit of the rate.
    """

    enqueue: Enqueue
    wait: Wait
    amount: float = 0.0


class Benchmark(NamedTuple):
    """A benchmark: `prepare(device)` makes its `Work`. The rate's unit is empty where time alone counts."""

    group: str
    label: str
    prepare: Callable[[ow.Device], Work]
    rate: str = ""
    most_steps: int = 200


def _adamw(sizes: list[int]) -> Callable[[ow.Device], Work]:
    def prepare(device: ow.Device) -> Work:
        parameters = [ow.Parameter(ow.ones((size,), device=device)) for size in sizes]
        optimizer = ow.optim.AdamW(parameters)
        for param in parameters:
            param.grad = ow.ones(param.shape, device=device)
        step = ow.compile(lambda: optimizer.step(), device=device)
        return Work(step, device.synchronize_async, BYTES_PER_PARAMETER * sum(sizes))

    return prepare


def _copy(size: int) -> Callable[[ow.Device], Work]:
    def prepare(device: ow.Device) -> Work:
        target, source = ow.Parameter(ow.zeros((size,), device=device)), ow.ones((size,), device=device)
        step = ow.compile(lambda: target.assign(source), device=device)
        return Work(step, device.synchronize_async, 8 * size)

    return prepare


def _matmul(size: int) -> Callable[[ow.Device], Work]:
    def prepare(device: ow.Device) -> Work:
        a, b = (ow.rand((size, size), device=device, seed=seed) for seed in range(2))
        return Work(lambda: a @ b, device.synchronize_async, 2.0 * size**3)

    return prepare


def _upload(megabytes: int) -> Callable[[ow.Device], Work]:
    def prepare(device: ow.Device) -> Work:
        values = array("f", bytes(megabytes << 20))
        target = ow.Parameter(ow.zeros((len(values),), device=device))
        return Work(lambda: target.assign(values), device.synchronize_async, float(megabytes << 20))

    return prepare


def _download(elements: int) -> Callable[[ow.Device], Work]:
    def prepare(device: ow.Device) -> Work:
        value = ow.ones((elements,), device=device)
        return Work(lambda: None, value.read_async, 4.0 * elements)

    return prepare


BENCHMARKS = {
    "copy": Benchmark("memory", "copy of 16 MB within the device", _copy(1 << 22), "GB/s"),
    "adamw-20x1024": Benchmark("adamw", "AdamW, 20 × 1,024", _adamw([1 << 10] * 20), "GB/s"),
    "adamw-20x65536": Benchmark("adamw", "AdamW, 20 × 65,536", _adamw([1 << 16] * 20), "GB/s"),
    "adamw-1x4m": Benchmark("adamw", "AdamW, 1 × 4,194,304", _adamw([1 << 22]), "GB/s"),
    "matmul-128": Benchmark("matmul", "128 × 128", _matmul(128), "GFLOP/s"),
    "matmul-512": Benchmark("matmul", "512 × 512", _matmul(512), "GFLOP/s"),
    "matmul-1024": Benchmark("matmul", "1,024 × 1,024", _matmul(1024), "GFLOP/s"),
    "upload": Benchmark("transfer", "upload of 16 MB", _upload(16), "GB/s", most_steps=8),
    "download": Benchmark("transfer", "readback of 16 MB", _download(1 << 22), "GB/s", most_steps=1),
    "latency": Benchmark("latency", "readback of one number", _download(1), most_steps=1),
}


class Spread(NamedTuple):
    """Median, extremes and quartiles."""

    median: float
    min: float
    max: float
    q1: float
    q3: float

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        """Return the spread of two or more samples."""
        q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, min(samples), max(samples), q1, q3)


async def measure(device: ow.Device, name: str, rounds: int = 7) -> dict[str, Any]:
    """Run one benchmark.

    One step warms up (pipelines are built, memory is allocated), a second one determines the steps of a round.

    Args:
        device: where it runs.
        name: a key of `BENCHMARKS`.
        rounds: timed rounds, 2 at least; fewer where they would take too long.

    Returns:
        Milliseconds per step and the rate as a `Spread`, the milliseconds of each round, the steps of a round, the
        host's milliseconds per step, and the device's counts of one step.
    """
    benchmark = BENCHMARKS[name]
    work = benchmark.prepare(device)
    await _round(work, 1)
    before = device.stats.copy()
    once, _ = await _round(work, 1)
    counts = asdict(device.stats - before)
    steps = max(1, min(benchmark.most_steps, math.ceil(ROUND_SECONDS / max(once, 1e-6))))
    rounds = max(2, min(rounds, math.floor(PATIENCE / max(steps * once, 1e-6))))
    timed = [await _round(work, steps) for _ in range(rounds)]
    seconds = [total / steps for total, _ in timed]
    rates = [work.amount / 1e9 / duration for duration in seconds] if benchmark.rate else []
    return {
        "name": name,
        "group": benchmark.group,
        "label": benchmark.label,
        "steps": steps,
        "milliseconds": Spread.of([1e3 * duration for duration in seconds])._asdict(),
        "rate": {"unit": benchmark.rate, **Spread.of(rates)._asdict()} if rates else None,
        "samples": [1e3 * duration for duration in seconds],
        "host_milliseconds": statistics.median(1e3 * host / steps for _, host in timed),
        "counts": counts,
    }


async def _round(work: Work, steps: int) -> tuple[float, float]:
    """Return the seconds until the last step was done, and until it was enqueued."""
    began = time.perf_counter()
    for _ in range(steps):
        work.enqueue()
    enqueued = time.perf_counter()
    await work.wait()
    # A coarse clock may show no time at all.
    return max(time.perf_counter() - began, 1e-6), enqueued - began


def described() -> list[dict[str, str]]:
    """Return the benchmarks in the order in which they run."""
    return [
        {"name": name, "group": benchmark.group, "label": benchmark.label} for name, benchmark in BENCHMARKS.items()
    ]
