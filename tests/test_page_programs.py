"""The programs of the first two pages, run natively: on the device `cpu`, with a page that is scripted."""

import ast
import asyncio
import json
import math
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.datasets import load_digits
from optirs_web.demo_site.digits import digits_file
from optirs_web.nn.order import epoch_order
from optirs_web.training import OPTIMIZERS, recipes

PROGRAMS = Path(__file__).parent.parent / "demo_site" / "programs"


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")


def imported_by(monkeypatch):
    """Return a function that imports programs of the pages by name, as the site serves them."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.setitem(sys.modules, "recipes", recipes)
    return import_module


@pytest.fixture
def program(monkeypatch):
    """`program(name)`: a module of the pages, imported by its own name as in the worker."""
    return imported_by(monkeypatch)


class ScriptedPage:
    """A page whose visitor acts on reports: `act(kind, report)` gives the messages that follow one."""

    def __init__(self, act):
        self.act, self.messages, self.reports = act, [], []

    def emit(self, kind, report):
        value = json.loads(report)
        self.reports.append((kind, value))
        self.messages += self.act(kind, value)

    def emit_buffer(self, kind, report, content):
        self.emit(kind, report)
        self.reports[-1] += (np.frombuffer(content, np.float32),)

    def take(self):
        if not self.messages:
            return None
        kind, value = self.messages.pop(0)
        return json.dumps({"kind": kind, "value": value})

    async def pause(self):
        pass

    async def wait(self):
        assert self.messages, "the program waits for a message that never comes"

    def all(self, kind):
        return [report for name, report, *_ in self.reports if name == kind]


# The first page.


def test_the_program_on_the_first_page_learns_and_reports_what_a_step_costs(program, monkeypatch):
    home = program("home")
    ow.manual_seed(0)
    page = ScriptedPage(lambda kind, report: [])
    watch = home.watch
    monkeypatch.setattr(home, "watch", lambda *arguments: watch(*arguments, steps=300, page=page))
    path = PROGRAMS / "first_page" / "ten_lines.py"
    code = compile(path.read_text("utf-8"), path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    asyncio.run(eval(code, {"__name__": "__main__"}))
    last = page.all("map")[-1]
    assert last["step"] == last["steps"] == 300
    assert last["accuracy"] > 0.9
    assert (last["submits"], last["bytes_down"]) == (1, 0)
    assert last["shape"] == [home.GRID**2, 3]


def test_watching_stops_when_the_page_says_so(program):
    home = program("home")
    x, labels = home.spiral(points=30)
    w, b = home.dense(2, 3)
    page = ScriptedPage(lambda kind, report: [("stop", None)] if kind == "map" else [])
    step = ow.compile(lambda x, labels: ow.cross_entropy(x @ w + b, labels))
    asyncio.run(home.watch(step, lambda x: x @ w + b, x, labels, page=page))
    assert len(page.all("map")) == 1


def run_first_page(home, monkeypatch, page, **changes):
    """Run the program of the first page after a visitor has changed it: {what is there: what is put there}."""
    watch = home.watch
    monkeypatch.setattr(home, "watch", lambda *arguments: watch(*arguments, steps=300, page=page))
    source = (PROGRAMS / "first_page" / "ten_lines.py").read_text("utf-8")
    for before, after in changes.items():
        assert before in source
        source = source.replace(before, after)
    code = compile(source, "ten_lines.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    ow.manual_seed(0)
    asyncio.run(eval(code, {"__name__": "__main__"}))
    return page.all("map")[-1]


def test_more_arms_are_one_change_and_are_learned(program, monkeypatch):
    page = ScriptedPage(lambda kind, report: [])
    last = run_first_page(program("home"), monkeypatch, page, **{"arms = 3": "arms = 4"})
    assert last["shape"][1] == 4
    assert last["accuracy"] > 0.6


def test_a_class_that_the_model_lacks_is_said(program, monkeypatch):
    page = ScriptedPage(lambda kind, report: [])
    with pytest.raises(ValueError, match="labels go up to 3, so the model needs 4 outputs; it has 3"):
        run_first_page(program("home"), monkeypatch, page, **{"arms=arms": "arms=4"})


def test_watching_stops_where_the_loss_is_not_finite(program, monkeypatch):
    page = ScriptedPage(lambda kind, report: [])
    last = run_first_page(program("home"), monkeypatch, page, **{"lr=0.005": "lr=1e30"})
    assert last["loss"] is None
    assert last["step"] < 300


@pytest.mark.parametrize(("points", "arms"), [(10, 0), (10, -1), (2, 3), (0, 1)])
def test_a_spiral_without_arms_or_with_more_than_points_is_refused(program, points, arms):
    with pytest.raises(ValueError, match="arms must be from 1 to"):
        program("home").spiral(points=points, arms=arms)


def test_natively_figures_are_printed(program, capsys):
    home = program("home")
    x, labels = home.spiral(points=30)
    w, b = home.dense(2, 3)
    step = ow.compile(lambda x, labels: ow.cross_entropy(x @ w + b, labels))
    asyncio.run(home.watch(step, lambda x: x @ w + b, x, labels, steps=2))
    assert capsys.readouterr().out.splitlines()[-1].startswith("step     2  loss ")


@pytest.mark.parametrize("arms", [2, 3, 5])
def test_a_spiral_has_equally_many_points_on_each_arm(program, arms):
    x, labels = program("home").spiral(points=60 * arms, arms=arms)
    assert x.shape == (60 * arms, 2)
    assert np.bincount(labels).tolist() == [60] * arms
    assert np.abs(np.asarray(x)).max() < program("home").REACH


# The digits.


def run_session(program, act):
    """A session with a visitor; it ends with the message "close"."""
    page = ScriptedPage(act)
    session = program("digits").Session(page, digits_file().content.body)
    asyncio.run(session.run())
    return page, session


def test_images_and_their_order_are_those_of_the_native_run(program):
    images = program("digit_images")
    train, test, standard = images.load_images(digits_file().content.body, fold=0)
    native = load_digits(fold=0)
    expected = (native.test_images - native.train_images.mean(axis=0)) / native.train_images.std()
    np.testing.assert_allclose(np.frombuffer(b"".join(test.rows), np.float32).reshape(-1, 64), expected, atol=2e-6)
    assert train.labels == native.train_labels.tolist()
    assert test.ink == (16 * native.test_images).astype(int).tolist()
    assert images.epoch_order(100, 3, 7) == epoch_order(100, 3, 7)
    assert standard.apply([0.0] * 64)[0] == 0.0  # the corner is always paper


def test_digits_are_read_as_well_as_by_the_native_recipe(program):
    page, _ = run_session(program, lambda kind, report: [("close", None)] * (report.get("epoch") == 25))
    last = page.all("epoch")[-1]
    assert last["accuracy"] >= 0.975
    assert last["wrong_count"] == len(last["wrong"]) == round((1 - last["accuracy"]) * last["test_images"])
    assert all(entry["label"] != entry["predicted"] for entry in last["wrong"])
    assert len([loss for report in page.all("steps") for loss in report["losses"]]) == last["step"] == 25 * 23


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_every_optimizer_learns(program, part):
    every = [optimizer.name for optimizer in OPTIMIZERS.values()]
    names = ["AdamW", *every[part::3]]

    def visitor(kind, report):
        if kind == "choices":
            assert [entry["name"] for entry in report["optimizers"]] == every
        if kind != "epoch":
            return []
        return [("optimizer", names[report["epoch"]])] if report["epoch"] < len(names) else [("close", None)]

    page, _ = run_session(program, visitor)
    assert [entry["optimizer"] for entry in page.all("chosen")] == names[1:]
    accuracies = dict(zip(names, [entry["accuracy"] for entry in page.all("epoch")], strict=True))
    assert min(accuracies.values()) > 0.9, accuracies


def test_rate_and_schedule_change_while_it_runs(program):
    def visitor(kind, report):
        if kind != "epoch":
            return []
        return [("lr", 0.002), ("schedule", "constant")] if report["epoch"] == 1 else [("close", None)]

    page, _ = run_session(program, visitor)
    rates = [report["lr"] for report in page.all("steps")]
    assert rates[2] == pytest.approx(0.004 * 0.92 ** (22 / 23))
    assert rates[3:] == [0.002] * 3


@pytest.mark.parametrize(
    ("schedule", "start", "middle", "end"),
    [
        ("constant", 1, 1, 1),
        ("exponential decay", 1, 0.92**12.5, 0.92**25),
        ("cosine", 1, 0.5, 0),
        ("warm-up, then cosine", 0, 0.5 + 0.5 * math.cos(math.pi * 10.5 / 23), 0),
    ],
)
def test_schedules_begin_and_end_where_they_should(program, schedule, start, middle, end):
    digits = program("digits")
    made = digits.schedules(20)
    rates = [made[schedule](20 * epochs) for epochs in (0, digits.EPOCHS / 2, digits.EPOCHS)]
    assert rates == pytest.approx([start, middle, end])
    assert set(made) == {"constant", "exponential decay", "cosine", "warm-up, then cosine"}


def test_pause_waits_and_start_over_begins_with_other_weights(program):
    visits = []

    def visitor(kind, report):
        if kind != "epoch":
            return []
        visits.append(report["test_loss"])
        if len(visits) == 1:
            return [("pause", None), ("lr", 0.003), ("reset", None)]
        return [("close", None)]

    page, session = run_session(program, visitor)
    assert [entry["epoch"] for entry in page.all("epoch")] == [1, 1]
    assert visits[0] != visits[1]
    assert session.training.lr == 0.003


def test_training_goes_on_when_more_epochs_are_asked_for(program):
    def visitor(kind, report):
        if kind != "epoch" or report["epoch"] < report["epochs"]:
            return [("more", 1)] if kind == "choices" else []
        return [("more", 2)] if report["epoch"] == 1 else [("close", None)]

    page, _ = run_session(program, visitor)
    assert [(entry["epoch"], entry["epochs"]) for entry in page.all("epoch")] == [(1, 1), (2, 3), (3, 3)]


def test_a_diverged_training_says_so_and_stops(program):
    def visitor(kind, report):
        return {"choices": [("optimizer", "SGD"), ("lr", 1e30)], "diverged": [("close", None)]}.get(kind, [])

    page, session = run_session(program, visitor)
    assert page.all("diverged") == [{"epoch": 1, "lr": 1e30, "optimizer": "SGD"}]
    assert session.is_paused


# Drawing.


def arc(x, y, width, height, first, last, points=24):
    """Points of an ellipse, angles in degrees clockwise from the right."""
    angles = (math.radians(first + (last - first) * index / points) for index in range(points + 1))
    return [(x + width * math.cos(angle), y + height * math.sin(angle)) for angle in angles]


DRAWN = {
    0: [arc(50, 50, 28, 45, -90, 270)],
    2: [[*arc(50, 28, 26, 23, -170, 30), (25, 95), (80, 95)]],
    3: [arc(47, 27, 24, 22, -150, 90) + arc(47, 72, 27, 23, -90, 150)],
    4: [[(60, 5), (20, 62), (82, 62)], [(62, 35), (62, 95)]],
    5: [[(75, 6), (32, 6), (28, 45), *arc(48, 66, 27, 28, -120, 140)]],
    7: [[(22, 8), (78, 8), (45, 95)], [(35, 50), (70, 50)]],
    8: [arc(50, 28, 20, 22, 90, -270) + arc(50, 73, 25, 23, -90, 270)],
    9: [[*arc(50, 30, 22, 24, 0, -360), (72, 30), (62, 95)]],
}


@pytest.fixture(scope="module")
def trained():
    """A session after ten epochs, and the module `digits`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTIRS_DEVICE", "cpu")
        program = imported_by(patch)
        _, session = run_session(program, lambda kind, report: [("close", None)] * (report.get("epoch") == 10))
        yield session


@pytest.mark.parametrize("digit", DRAWN)
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (0.2, 70)])
def test_a_drawn_digit_is_recognised_at_any_size_and_place(program, trained, digit, scale, shift):
    strokes = [[(scale * x + shift, scale * y + shift) for x, y in stroke] for stroke in DRAWN[digit]]
    probabilities = asyncio.run(trained.training.recognise(program("digit_images").drawn_image(strokes)))
    assert max(range(10), key=probabilities.__getitem__) == digit
    assert sum(probabilities) == pytest.approx(1)


@pytest.mark.parametrize(
    ("strokes", "ink"),
    [([], None), ([[]], None), ([[(3, 3)]], 4 * 8), ([[(0, 5), (9, 5)]], 2 * (6 * 12 + 2 * 2))],
    ids=["nothing", "an empty stroke", "a dot", "a line"],
)
def test_what_is_no_digit_is_drawn_too(program, strokes, ink):
    drawn = program("digit_images").drawn_image(strokes)
    assert (drawn and sum(drawn)) == ink


def test_what_was_drawn_is_read_again_after_each_epoch(program):
    def visitor(kind, report):
        if kind == "choices":
            return [("draw", DRAWN[0])]
        return [("close", None)] if report.get("epoch") == 3 else []

    page, _ = run_session(program, visitor)
    assert len(page.all("recognised")) == 4
    assert np.argmax(page.all("recognised")[-1]["probabilities"]) == 0
