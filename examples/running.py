"""Shared by the examples' command lines: options, and losses as lines of text and as a plot."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import optirs_web as ow


def options(description: str, steps: int) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--device", help="cpu, vulkan, metal, ...; default: the best one")
    parser.add_argument("--steps", type=_positive, default=steps, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches; default: %(default)s")
    parser.add_argument("--out", type=Path, help="folder for the plot of the losses, if matplotlib is installed")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def followed(losses: Iterator[ow.Tensor], read: list[float], every: int = 50) -> Iterator[int]:
    """Read losses into a list and print their mean, `every` steps at a time, so that the device waits no more often.

    The first and the last step are printed as well. Yields the number of losses after each line.
    """
    started, waiting = perf_counter(), []

    def report() -> int:
        read.extend(loss.item() for loss in waiting)
        recent = sum(read[-len(waiting) :]) / len(waiting)
        print(f"step {len(read):5}   loss {recent:.4f}   {perf_counter() - started:6.1f} s", flush=True)
        waiting.clear()
        return len(read)

    for number, loss in enumerate(losses, 1):
        waiting.append(loss)
        if number == 1 or number % every == 0:
            yield report()
    if waiting:
        yield report()


def draw(losses: list[float], path: Path) -> None:
    """Write the losses as a PNG, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(7, 4), dpi=160, layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses, color="#1f5fa8", linewidth=1)
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")
