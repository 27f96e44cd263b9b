"""``optirs-web hardware``: takes all measurements of a GPU, part by part, and writes them to one JSON file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

import optirs_web as ow

from ..benchmarks.machine import description
from ..benchmarks.report import amount_text
from ..files import write_whole
from .check import checked, measurable, tile_text
from .outputs import need_writable

__all__ = ["PARTS", "hardware"]

FORMAT = 1
ROOT = Path(__file__).resolve().parents[2]
"""The repository in a clone, whose tests are run; where the package is installed, a folder without tests."""

_SMALL = ("products/128", "train/mlp", "reduce/softmax")
_SUMMARY = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


class Part(NamedTuple):
    """A part of the measurements of a device.

    Attributes:
        limit: seconds after which it is stopped and recorded as timed out.
        run: measures, in a process of its own, a device given by its name, briefly if so asked, and returns the facts
            for the JSON file.
    """

    limit: int
    run: Callable[[str, bool], dict[str, Any]]


def _command(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run this Python, in the clone if there is one, and capture its output."""
    cwd = ROOT if (ROOT / "tests").is_dir() else None
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(environment or {})})


def _check(name: str, brief: bool) -> dict[str, Any]:
    return checked(ow.device(name))


def _parity(name: str, brief: bool) -> dict[str, Any]:
    names = ["exp", "matmul"] if brief else []
    done = _command("-m", "optirs_web", "parity", *names, "--device", "cpu", "--device", name, "--json")
    if not done.stdout:
        raise RuntimeError(done.stderr[-2000:])
    rows = json.loads(done.stdout)["rows"]
    ulps = {row["name"]: row["ulps"].get(name) for row in rows}
    above = [row["name"] for row in rows if row["above"] or row["failed"]]
    return {"rows": len(rows), "above": above, "ulps": ulps}


def _tests(name: str, paths: Sequence[str], expression: str) -> dict[str, Any]:
    """Run the clone's tests that match an expression of pytest's -k; return the counts and the names of failed tests.

    Raises:
        RuntimeError: there is no clone, or no test ran.
    """
    if not (ROOT / "tests").is_dir():
        raise RuntimeError("the tests are in a clone of the repository only")
    environment = {"OPTIRS_TEST_DEVICES": name, "OPTIRS_REQUIRE": name.partition(":")[0]}
    options = "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", expression
    done = _command(*options, *paths, environment=environment)
    counts = {kind: int(count) for count, kind in _SUMMARY.findall(done.stdout.strip().rpartition("\n")[2])}
    if not counts:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return {"passed": counts.get("passed", 0), "failed": failed, "skipped": counts.get("skipped", 0)}


def _cases(name: str, brief: bool) -> dict[str, Any]:
    files = sorted(path.name for path in (ROOT / "tests").glob("test_*.py") if "numerics" in path.read_text("utf-8"))
    paths = [f"tests/{file}" for file in (["test_operations.py"] if brief else files)]
    expression = f"{name.partition(':')[0]} and not webgpu"
    return _tests(name, paths, f"{expression} and nan_and" if brief else expression)


def _suite(name: str, brief: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        cases = [argument for case in _SMALL for argument in ("--case", case)] if brief else []
        rounds = "2" if brief else "5"
        options = "--device", name, "--against", "torch", "--rounds", rounds, "--json", str(file)
        done = _command("-m", "optirs_web", "bench", *options, *cases)
        if not file.exists():
            raise RuntimeError(done.stderr[-2000:])
        facts: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if done.returncode:  # after each case the file is written anew, so it has those before a driver's failure
            facts["notes"]["optirs-web bench"] = f"exit status {done.returncode}: {done.stderr.strip()[-2000:]}"
        return facts


def _tuning(name: str, brief: bool) -> dict[str, Any]:
    from ..benchmarks.cases import CASES
    from ..benchmarks.libraries.ours import Ours

    device = ow.device(name)
    cases = ["products/128"] if brief else ["products/512", "products/1024", "train/mlp", "train/gpt", "train/resnet"]
    works = []
    for case in cases:
        call = CASES[case].make(Ours(device))
        call()
        for work in ow.tune(call, device=device).works:
            seconds = {"x".join(map(str, choice)): value for choice, value in work.seconds.items()}
            works.append({**work._asdict(), "seconds": seconds})
    return {"works": works}


def _sharing(name: str, brief: bool) -> dict[str, Any]:
    return _tests(name, ["tests/test_dlpack.py", "tests/test_torch_cuda.py"], name.partition(":")[0])


PARTS = {
    "check": Part(180, _check),
    "parity": Part(420, _parity),
    "cases": Part(780, _cases),
    "suite": Part(600, _suite),
    "tuning": Part(240, _tuning),
    "sharing": Part(180, _sharing),
}
"""The parts by name, the most important first. Their limits add up to 40 minutes for each device."""


@click.command()
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("hardware.json"),
    show_default=True,
    help="Where each part's result is kept; parts that are there are not run again.",
)
@click.option("--device", "devices", multiple=True, help="Device to measure; may be repeated.  [default: all GPUs]")
@click.option("--software", is_flag=True, help="Measure software adapters too.")
@click.option("--again", "repeated", multiple=True, type=click.Choice(list(PARTS)), help="Run this part again.")
@click.option("--part", "chosen", multiple=True, type=click.Choice(list(PARTS)), help="Only this part; repeatable.")
@click.option("--brief", is_flag=True, help="A few rows and cases of each part, to try the command itself.")
@click.option("--markdown", is_flag=True, help="Print the table of what FILE has, and measure nothing.")
@click.option("--run", "only", nargs=2, hidden=True, metavar="PART DEVICE")
def hardware(
    file: Path, devices: tuple[str, ...], software: bool, repeated: tuple[str, ...], chosen: tuple[str, ...],
    brief: bool, markdown: bool, only: tuple[str, str] | None,
) -> None:  # fmt: skip
    """Measure a GPU within 40 minutes: parity, numerical cases, the suite against torch, tuning, shared memory.

    Each part runs in a process of its own, so that a driver that fails or hangs stops no other, and is written to FILE
    as it ends: after an interruption the same command continues. Run it in a clone, which has the numerical cases.
    """
    if only:
        threading.Thread(target=_end_when_orphaned, args=(os.getppid(),), daemon=True).start()
        click.echo("\n" + json.dumps(PARTS[only[0]].run(only[1], brief)))
        return
    facts = _read(file)
    if markdown:
        click.echo(_markdown(facts))
        return
    need_writable(file, "--json")
    names = measurable(software, devices)
    for part in chosen or PARTS:
        for name in names:
            done = facts["devices"].setdefault(name, {"parts": {}})["parts"]
            if part in done and part not in repeated:
                click.echo(f"{part} on {name}: {done[part]['status']}, from before")
                continue
            done[part] = _finished(part, name, brief)
            click.echo(f"{part} on {name}: {done[part]['status']} in {done[part]['seconds']:.0f} s")
            write_whole(file, [(json.dumps(facts, indent=1) + "\n").encode()])
    click.echo(f"\n{_markdown(facts)}")


def _read(file: Path) -> dict[str, Any]:
    """Return the content of the file, or an empty record if it does not exist.

    Raises:
        BadParameter: the file is not one that this command wrote.
    """
    if not file.exists():
        date = datetime.now(UTC).date().isoformat()
        return {"format": FORMAT, "date": date, "machine": description(), "devices": {}}
    try:
        facts = json.loads(file.read_text("utf-8"))
    except ValueError:  # no JSON, or no text
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or "devices" not in facts:
        raise click.BadParameter(f"{file} was not written by this version of optirs-web hardware", param_hint="--json")
    return facts


def _finished(part: str, device: str, brief: bool) -> dict[str, Any]:
    """Run a part in a process of its own, and return its status, the seconds it took, and its facts or the error."""
    command = [sys.executable, "-m", "optirs_web", "hardware", "--run", part, device, *(["--brief"] if brief else [])]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=sys.platform != "win32"
    )
    try:
        output, errors = process.communicate(timeout=PARTS[part].limit)
        status = "done" if process.returncode == 0 else "failed"
    except subprocess.TimeoutExpired:
        status, output, errors = "timed out", "", f"no result after {PARTS[part].limit} s"
    finally:
        _end(process)
    result: dict[str, Any] = {"status": status, "seconds": round(time.perf_counter() - started, 1)}
    if status == "done":
        return {**result, "facts": json.loads(output.strip().rpartition("\n")[2])}
    return {**result, "error": errors.strip()[-2000:]}


def _end_when_orphaned(parent: int) -> None:
    """End this part's processes once its parent was killed, so that they do not slow down the next run."""
    if sys.platform == "win32":
        return
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _end(process: subprocess.Popen[str]) -> None:
    """End the processes of a part that is still running."""
    if process.poll() is None:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()  # closes its pipes


def _markdown(facts: dict[str, Any]) -> str:
    """Return the table for docs/verified.md, with a row for each device."""
    head = ("device", "parity", "numerical cases", "copy", "product", "of arithmetic", "tile", "DLPack")
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    rows += [f"| {' | '.join(_row(name, device['parts']))} |" for name, device in facts["devices"].items()]
    return "\n".join(rows)


def _row(name: str, parts: dict[str, Any]) -> list[str]:
    def text(part: str, cell: Callable[[dict[str, Any]], str]) -> str:
        if part not in parts:
            return "not yet"
        return cell(parts[part]["facts"]) if parts[part]["status"] == "done" else str(parts[part]["status"])

    def tests(facts: dict[str, Any]) -> str:
        return f"{facts['passed']} passed, {len(facts['failed'])} failed"

    return [
        f"{name}: {text('check', lambda facts: facts['description'])}",
        text("parity", lambda facts: f"{facts['rows'] - len(facts['above'])} of {facts['rows']} rows"),
        text("cases", tests),
        text("check", lambda facts: amount_text(facts["bandwidth"], "B/s")),
        text("check", lambda facts: amount_text(facts["product"]["rate"], "FLOP/s")),
        text("check", lambda facts: f"{facts['product']['of_arithmetic']:.0%}"),
        text("check", lambda facts: tile_text(facts["tile"])),
        text("sharing", tests),
    ]
