"""Record what the pages' programs report, natively: what a page plays until its own Python trains, or without one.

    python scripts/record_runs.py [NAME ...]

Writes `demo_site/frontend/src/recorded/NAME.json` for each page, which `lib/recording.js` plays: the events that the
page would have been sent, and when. They are thinned out and spread over a few seconds, so that the times are not those
of the run; figures that depend on the machine are left out.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import base64
import contextlib
import io
import json
import math
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import optirs_web as ow
from optirs_web.datasets import load_book
from optirs_web.demo_site.digits import digits_file
from optirs_web.training import recipes

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "demo_site" / "programs"
RECORDED = ROOT / "demo_site" / "frontend" / "src" / "recorded"

Event = list[Any]
"""Milliseconds, kind, payload, and what `packed` returns where there is a buffer."""


class Recorder(types.ModuleType):
    """The module `page` of a program: keeps what is reported, and has a visitor who answers with messages."""

    def __init__(
        self, visitor: Callable[[str, dict[str, Any]], list[tuple[str, Any]]] = lambda kind, report: []
    ) -> None:
        super().__init__("page")
        self.reports: list[tuple[str, dict[str, Any], np.ndarray | None]] = []
        self._visitor = visitor
        self._messages: list[tuple[str, Any]] = []

    def emit(self, kind: str, report: str) -> None:
        """Keep a report."""
        self.emit_buffer(kind, report, None)

    def emit_buffer(self, kind: str, report: str, content: Any) -> None:
        """Keep a report with a copy of its numbers."""
        payload = json.loads(report)
        self.reports.append((kind, payload, None if content is None else np.array(content, np.float32)))
        self._messages += self._visitor(kind, payload)

    def take(self) -> str | None:
        """The next message of the visitor."""
        if not self._messages:
            return None
        kind, value = self._messages.pop(0)
        return json.dumps({"kind": kind, "value": value})

    async def pause(self) -> None:
        """Nothing arrives meanwhile."""

    async def wait(self) -> None:
        """A visitor who is waited for has to have said something."""
        if not self._messages:
            raise RuntimeError("the program waits for a message that never comes")


def run_program(path: Path) -> None:
    """Run a file with `await` allowed at its top, as a page does."""
    code = compile(path.read_text("utf-8"), path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if (awaitable := eval(code, {"__name__": "__main__"})) is not None:
        asyncio.run(awaitable)


def packed(values: np.ndarray, bits: int, power: int = 1) -> dict[str, Any]:
    """Numbers as a power of whole numbers of at most 8 or 16 bits times a scale, in base64.

    Fewer bits compress better; a power, of numbers that are not negative, keeps small ones apart.
    """
    values = values.astype(np.float64).ravel() ** (1 / power)
    scale = float(np.abs(values).max() or 1.0) / (2 ** (bits - 1) - 1)
    whole = np.rint(values / scale).astype("<i1" if bits <= 8 else "<i2")
    return {"bits": bits, "scale": scale, "power": power, "data": base64.b64encode(whole.tobytes()).decode()}


def rounded(value: Any, digits: int = 4) -> Any:
    """Floats with so many significant digits, in whatever holds them."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return value


def without(payload: dict[str, Any], *names: str) -> dict[str, Any]:
    """The payload with None for what depends on the machine."""
    return {**payload, **dict.fromkeys(names)}


def frames(last: int, count: int) -> list[int]:
    """Numbers of `count` steps from 1 to the last: close to each other first, when most changes."""
    return sorted({round(last ** (number / (count - 1))) for number in range(count)})


# What is recorded, by page.

HOME_STEPS, HOME_FRAMES, HOME_GRID = 1000, 25, 32
HOME_FRAME = 200
"""Milliseconds of a frame."""


def record_home() -> list[Event]:
    """The first page's program: its points, and its map after some of the steps."""
    import home

    home.GRID = HOME_GRID
    home.SHORTEST, home.LONGEST = 0.0, math.inf  # a report after each step
    shown = frames(HOME_STEPS, HOME_FRAMES)
    page = Recorder(lambda kind, report: [("stop", None)] if report.get("step") == HOME_STEPS else [])
    sys.modules["page"] = page
    ow.manual_seed(0)
    run_program(PROGRAMS / "first_page" / "ten_lines.py")
    events = []
    for kind, payload, values in page.reports:
        assert values is not None
        if kind == "points":
            events.append([0, kind, payload, packed(values, 16)])
        elif payload["step"] in shown:
            # Probabilities depend on differences only, and what is below e^-12 is not seen.
            differences = np.maximum(values - values.max(-1, keepdims=True), -12.0)
            kept = rounded(without(payload, "steps_per_second", "seconds"))
            events.append([HOME_FRAME * (1 + shown.index(payload["step"])), kind, kept, packed(differences, 7)])
    return events


DIGITS_EPOCHS, DIGITS_EPOCH, WRONG_SHOWN = 25, 400, 12
"""The epochs, the milliseconds of each, and how many misread images each has at most."""


def record_digits() -> list[Event]:
    """The digits: what can be chosen, and each epoch with the steps before it."""
    import digits

    def visitor(kind: str, report: dict[str, Any]) -> list[tuple[str, Any]]:
        return [("close", None)] if kind == "epoch" and report["epoch"] == DIGITS_EPOCHS else []

    page = Recorder(visitor)
    asyncio.run(digits.Session(page, digits_file().content.body).run())
    events: list[Event] = []
    epoch, steps, losses = 0, 0, []
    for kind, payload, _ in page.reports:
        if kind == "choices":
            events.append([0, kind, payload])
        elif kind == "steps":
            steps, losses, rate = payload["step"], losses + payload["losses"], payload["lr"]
        elif kind == "epoch":
            epoch = payload["epoch"]
            report = {"step": steps, "losses": losses, "lr": rate, "steps_per_second": None}
            events.append([DIGITS_EPOCH * epoch, "steps", rounded(report)])
            events.append([DIGITS_EPOCH * epoch, kind, rounded({**payload, "wrong": payload["wrong"][:WRONG_SHOWN]})])
            losses = []
    return events


GPT_SIZE, GPT_STEPS, GPT_STEP = "small", 800, 12
"""The steps, and the milliseconds of each."""


def record_gpt() -> list[Event]:
    """The writer: its losses, and what it wrote, whole samples only."""
    import writer

    def visitor(kind: str, report: dict[str, Any]) -> list[tuple[str, Any]]:
        if kind == "choices" and report["size"] != GPT_SIZE:
            return [("size", GPT_SIZE)]
        return [("close", None)] if kind == "steps" and report["step"] >= GPT_STEPS else []

    writer.AT_THE_PEN = math.inf  # a sample is written at once
    page = Recorder(visitor)
    asyncio.run(writer.Session(page, load_book()).run())
    (*_, start) = (number for number, (kind, _, _) in enumerate(page.reports) if kind == "choices")
    events: list[Event] = []
    step = 0
    for kind, payload, _ in page.reports[start:]:
        step = payload.get("step", step)
        if kind == "steps":
            payload = without(payload, "speed", "characters")
        if kind != "written" or payload["done"]:
            events.append([GPT_STEP * step, kind, rounded(payload)])
    return events


RACE_SURFACE, RACE_RACERS = "rosenbrock", ("sgd", "momentum", "adam", "amsgrad")
RACE_STEPS, RACE_STEP, RACE_GRID = 640, 15, 120


def record_race() -> list[Event]:
    """The race: what can be chosen, the landscape, who runs, and their tracks, a frame at a time."""
    import race

    race.GRID = RACE_GRID
    device = ow.device()
    described = race.described()
    surface = described["surfaces"][RACE_SURFACE]
    racers = [{"kind": kind, "lr": surface["rates"][kind]} for kind in RACE_RACERS]
    heights = np.array(asyncio.run(race.heights(device, RACE_SURFACE)), np.float32)
    run = race.Race(device, RACE_SURFACE, racers, surface["start"], surface["noise"])
    events: list[Event] = [
        [0, "described", rounded(described)],
        [0, "heights", {"surface": RACE_SURFACE, "grid": RACE_GRID}, packed(heights, 16, power=4)],
        [0, "race", {"surface": RACE_SURFACE, "racers": racers, "start": surface["start"]}],
    ]
    for step in range(0, RACE_STEPS, race.FRAME):
        track = asyncio.run(run.frame(race.FRAME))
        events.append([RACE_STEP * (step + race.FRAME), "track", {"positions": rounded(track)}])
    return events


def record_playground() -> list[Event]:
    """The examples of the playground: what each prints and plots."""
    events: list[Event] = []
    for path in sorted((PROGRAMS / "examples").glob("*.py")):
        page = Recorder()
        sys.modules["page"] = page
        ow.manual_seed(0)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            run_program(path)
        events.append([0, "output", {"example": path.stem, "text": output.getvalue()}])
        events += ([0, kind, rounded({"example": path.stem, **payload})] for kind, payload, _ in page.reports)
    return events


RECORDERS = {
    "home": record_home,
    "digits": record_digits,
    "gpt": record_gpt,
    "race": record_race,
    "playground": record_playground,
}


def record(name: str) -> dict[str, Any]:
    """The recorded run of a page."""
    device = ow.device()
    events = RECORDERS[name]()
    return {
        "made": {"version": ow.__version__, "device": f"{device.name} ({device.info.description})"},
        "events": events,
    }


def main(arguments: Iterable[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECORDERS)}; all of them by default")
    names = parser.parse_args(arguments).names or list(RECORDERS)
    sys.path[:0] = [str(PROGRAMS), str(ROOT / "examples")]
    sys.modules["recipes"] = recipes
    RECORDED.mkdir(exist_ok=True)
    for name in names:
        path = RECORDED / f"{name}.json"
        path.write_text(json.dumps(record(name), separators=(",", ":"), allow_nan=False) + "\n", "utf-8")
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
