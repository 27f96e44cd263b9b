"""The Python programs of the demo site's pages do natively what they do in a browser."""

import ast
import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import sys
import types
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.demo_site.digits import digits_file
from optirs_web.training import OPTIMIZERS, Config, DigitsTraining, recipes

PROGRAMS = Path(__file__).parent.parent / "demo_site" / "programs"
FIRST = ("adamw", "adam", "sgd")
EXAMPLES = sorted(PROGRAMS.glob("examples/*.py"))


@pytest.fixture(autouse=True)
def programs_can_be_imported(monkeypatch):
    """As in the page, where each program is a module of its own."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.setitem(sys.modules, "recipes", recipes)


@pytest.fixture
def plots(monkeypatch):
    """Return the list that receives the plots sent to the page."""
    result = []
    page = types.ModuleType("page")
    page.emit = lambda kind, text: result.append((kind, json.loads(text)))
    monkeypatch.setitem(sys.modules, "page", page)
    return result


# Examples of the playground.


def run_program(path):
    """Run a file with `await` allowed at its top, as the page does."""
    code = compile(path.read_text(encoding="utf-8"), path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaitable = eval(code, {"__name__": "__main__"})
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(awaitable)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_prints(path, plots, capsys, monkeypatch, open_device):
    open_device("cpu")
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")
    run_program(path)
    assert capsys.readouterr().out.strip()
    assert bool(plots) == ("import plot" in path.read_text(encoding="utf-8"))


def test_there_are_a_dozen_examples_with_titles_of_their_own():
    titles = [ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in EXAMPLES]
    assert len(titles) >= 12
    assert len(set(titles)) == len(titles)
    assert all(titles)
    assert all("\n" not in title for title in titles)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (([1, 2.5],), {"x": [0, 1], "y": [1, 2.5]}),
        (([3, 4], (1, 2)), {"x": [3, 4], "y": [1, 2]}),
        ((iter([math.nan, math.inf, 1]),), {"x": [0, 1, 2], "y": [None, None, 1]}),
    ],
    ids=["heights", "positions and heights", "not finite"],
)
def test_plot_emits_positions_and_heights(values, expected, plots):
    importlib.import_module("playground").plot(*values, label="loss")
    assert plots == [("plot", {**expected, "label": "loss"})]


@pytest.mark.parametrize(
    ("values", "error"),
    [((), TypeError), (([1], [2], [3]), TypeError), (([1, 2], [1]), ValueError), ((["a"],), ValueError)],
)
def test_plot_refuses_what_it_cannot_draw(values, error, plots):
    with pytest.raises(error):
        importlib.import_module("playground").plot(*values)
    assert plots == []


# The race.


@pytest.fixture
def race():
    return importlib.import_module("race")


def racers_of(race, surface):
    return [{"kind": kind, "lr": race.SURFACES[surface].rates[kind]} for kind in race.SURFACES[surface].rates]


async def run_down(race, device, surface, frames, *, with_results=False, **options):
    """The track of a whole race, (steps, racers, 3), and if asked for how it ended for each racer."""
    settings = {"racers": racers_of(race, surface), "start": race.SURFACES[surface].start} | options
    running = race.Race(device, surface, **settings)
    track = np.array([step for _ in range(frames) for step in await running.frame(race.FRAME)])
    return (track, running.results) if with_results else track


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["rosenbrock", "beale", "himmelblau", "valley"])
def test_every_racer_gets_down(race, device, surface):
    track = asyncio.run(run_down(race, device, surface, 10))
    assert (track[-1, :, 2] < 0.6 * track[0, :, 2]).all()


def test_racers_run_as_each_would_alone(race, device):
    together = asyncio.run(run_down(race, device, "himmelblau", 2))
    for number, racer in enumerate(racers_of(race, "himmelblau")):
        alone = asyncio.run(run_down(race, device, "himmelblau", 2, racers=[racer]))
        np.testing.assert_allclose(together[:, number], alone[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "lr"), [("sgd", 1.0), ("sgd", 1e9), ("sgd", 1e30), ("momentum", 1e9), ("adam", 1e9), ("lion", 1e9)]
)
def test_a_racer_that_diverges_is_out_and_spoils_no_other(race, device, kind, lr):
    wild, tame = {"kind": kind, "lr": lr}, {"kind": "adam", "lr": 0.05}
    track, (diverged, racing) = asyncio.run(
        run_down(race, device, "rosenbrock", 4, racers=[wild, tame], with_results=True)
    )
    assert diverged.arrived is None
    assert 0 < diverged.out < 10
    assert (racing.arrived, racing.out) == (None, None)
    np.testing.assert_allclose(
        track[:, 1], asyncio.run(run_down(race, device, "rosenbrock", 4, racers=[tame]))[:, 0], rtol=1e-4, atol=1e-5
    )


LOW, HIGH, FAR, LOST = [3.0, 0.5, 0.001], [3.0, 0.5, 1.0], [99.0, 0.5, 0.0], [math.nan, 0.5, math.nan]


@pytest.mark.parametrize(
    ("points", "arrived", "out"),
    [
        ([HIGH] * 5 + [LOW] * 25, 5, None),
        ([HIGH] * 5 + [LOW] * 24, None, None),
        ([LOW] * 24 + [HIGH] + [LOW] * 25, 25, None),
        ([LOW, HIGH] * 100, None, None),
        ([FAR] * 50, None, 0),
        ([LOW] * 3 + [LOST] * 50, None, 3),
        ([LOW] * 25 + [FAR], 0, None),
        ([FAR] + [LOW] * 50, None, 0),
    ],
    ids=["stays", "not long enough", "leaves and comes back", "passes", "far", "NaN", "far after it", "back from far"],
)
def test_a_racer_has_arrived_when_it_stays_at_the_goal_and_is_out_when_it_is_far_off(race, points, arrived, out):
    assert race.STAY == 25
    result = race.Result()
    for step, point in enumerate(points):
        result.follow(step, point, race.SURFACES["beale"])
    assert (result.arrived, result.out) == (arrived, out)


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["rosenbrock", "beale", "himmelblau", "valley"])
def test_on_every_surface_some_racer_arrives(race, open_device, surface):
    _, results = asyncio.run(run_down(race, open_device("cpu"), surface, 50, with_results=True))
    assert any(result.arrived is not None for result in results)
    assert all(result.out is None for result in results)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_noise_comes_from_the_seed(race, open_device, noise):
    def run(seed):
        return asyncio.run(run_down(race, open_device("cpu"), "valley", 1, noise=noise, seed=seed))

    assert (run(1) == run(1)).all()
    assert (run(1) == run(2)).all() == (noise == 0.0)


def test_a_frame_is_one_submit_for_each_step_and_one_reading(race, device):
    async def counted():
        running = race.Race(device, "beale", racers_of(race, "beale"), (1.0, 1.8))
        await running.frame(2)
        before = device.stats.copy()
        await running.frame(5)
        return device.stats - before

    counts = asyncio.run(counted())
    assert (counts.replays, counts.bind_groups, counts.pipelines) == (5, 0, 0)
    assert counts.bytes_down == race.FRAME * len(race.KINDS) * 3 * 4


@pytest.mark.parametrize("surface", ["rosenbrock", "beale", "himmelblau", "valley"])
def test_a_map_shows_its_minima_and_its_start(race, open_device, surface):
    shown = race.SURFACES[surface]
    values = np.array(asyncio.run(race.heights(open_device("cpu"), surface)))
    assert values.shape == (race.GRID, race.GRID)
    for x, y in (*shown.minima, shown.start):
        assert shown.x[0] < x < shown.x[1]
        assert shown.y[0] < y < shown.y[1]
    assert all(shown.height(x, y) < 1e-3 for x, y in shown.minima)
    lowest = np.unravel_index(values.argmin(), values.shape)
    xs, ys = (np.linspace(*axis, race.GRID) for axis in (shown.x, shown.y))
    nearest = min(math.hypot(xs[lowest[1]] - x, ys[lowest[0]] - y) for x, y in shown.minima)
    assert nearest < 0.1 * (shown.x[1] - shown.x[0])


def test_the_page_is_told_of_the_racers(race):
    offered = race.described()["kinds"]
    assert all(hasattr(getattr(ow.optim, entry["optimizer"]), "rule") for entry in offered.values())
    assert all(set(surface.rates) == set(offered) for surface in race.SURFACES.values())
    json.dumps(race.described())


# Benchmarks.


@pytest.fixture
def bench():
    return importlib.import_module("bench")


SMALL = {
    "copy": lambda bench: bench._copy(1 << 8),
    "adamw": lambda bench: bench._adamw([16] * 3),
    "matmul": lambda bench: bench._matmul(8),
    "upload": lambda bench: bench._upload(1),
    "download": lambda bench: bench._download(16),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_reports_its_spread(bench, device, monkeypatch, name):
    monkeypatch.setattr(bench, "ROUND_SECONDS", 0.0)
    monkeypatch.setitem(bench.BENCHMARKS, name, bench.Benchmark("group", name, SMALL[name](bench), "GB/s"))
    result = asyncio.run(bench.measure(device, name, rounds=3))
    json.dumps(result)
    for spread in (result["milliseconds"], result["rate"]):
        assert 0 < spread["min"] <= spread["q1"] <= spread["median"] <= spread["q3"] <= spread["max"]
    assert len(result["samples"]) == 3
    assert result["counts"]["pipelines"] == 0


def test_a_measured_adamw_step_is_two_dispatches_and_one_submit(bench, device, monkeypatch):
    monkeypatch.setattr(bench, "ROUND_SECONDS", 0.0)
    counts = asyncio.run(bench.measure(device, "adamw-20x1024", rounds=2))["counts"]
    assert (counts["dispatches"], counts["submits"], counts["bind_groups"], counts["bytes_down"]) == (2, 1, 0, 0)


# Checkpoints: the page's run is that of the native command.


@pytest.fixture
def checkpoints():
    return importlib.import_module("checkpoints")


@pytest.fixture(scope="module")
def digits_bytes():
    """The file that the page fetches: images, labels, folds."""
    return digits_file().content.body


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_pages_config_is_the_native_one(checkpoints, optimizer):
    native = json.loads(json.dumps(asdict(Config(optimizer=optimizer).checked())))
    assert checkpoints.first_config(optimizer=optimizer) == native
    assert checkpoints.first_config(optimizer=OPTIMIZERS[optimizer].name) == native


def test_a_run_is_offered_by_the_name_that_its_checkpoint_has(checkpoints):
    offered = checkpoints.offered()
    assert [entry["value"] for entry in offered] == list(OPTIMIZERS)
    for entry in offered:
        assert checkpoints.first_config(optimizer=entry["value"])["lr"] == entry["lr"]
    assert {entry["name"] for entry in offered if entry["common"]} >= {"AdamW", "Adam", "SGD"}


def test_the_pages_config_refuses_what_it_does_not_know(checkpoints):
    with pytest.raises(ValueError, match="no setting momentum"):
        checkpoints.first_config(momentum=0.9)


def curves(history):
    return [(train, test) for _, _, train, test, _ in history]


def assert_same_curve(history, other):
    """The bound that a run which moves has to keep."""
    for mine, theirs in zip(curves(history), curves(other), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert abs(a - b) <= 1e-3 * max(b, 0.05)


def assert_a_run_moves(checkpoints, digits_bytes, device, optimizer, path):
    """From page to native and back."""
    config = Config(device=device.name, optimizer=optimizer, hidden=(32,), epochs=6)
    whole = DigitsTraining(config)
    list(whole.run())

    async def in_the_page(run, epochs):
        for _ in range(epochs):
            await run.train_epoch()
        return await run.save()

    started = checkpoints.first_config(optimizer=optimizer, hidden=[32])
    path.write_bytes(asyncio.run(in_the_page(checkpoints.Run(device, digits_bytes, started), 2)))
    native = DigitsTraining(replace(config, epochs=4))
    native.load(path)
    list(native.run())
    native.save(path)
    last = checkpoints.Run.load(device, digits_bytes, path.read_bytes())
    asyncio.run(in_the_page(last, 2))
    assert_same_curve(last.history, whole.history)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", FIRST)
def test_a_run_moves_from_page_to_native_and_back(checkpoints, digits_bytes, device, optimizer, tmp_path):
    assert_a_run_moves(checkpoints, digits_bytes, device, optimizer, tmp_path / "checkpoint.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [optimizer for optimizer in OPTIMIZERS if optimizer not in FIRST])
def test_a_run_moves_with_the_other_optimizers_too(checkpoints, digits_bytes, open_device, optimizer, tmp_path):
    assert_a_run_moves(checkpoints, digits_bytes, open_device("cpu"), optimizer, tmp_path / "checkpoint.safetensors")


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"history": []},
        *({"config": config, "history": []} for config in ({"momentum": 1}, {"optimizer": "lbfgs"}, {"optimizer": 1})),
    ],
)
def test_the_page_refuses_a_checkpoint_of_something_else(checkpoints, digits_bytes, open_device, extra):
    device = open_device("cpu")
    content = ow.dump_checkpoint({"w": ow.Parameter([1.0], device=device)}, None, extra)
    with pytest.raises(ow.errors.CheckpointError, match="not a checkpoint of a run on the digits"):
        checkpoints.Run.load(device, digits_bytes, content)
