"""The recorded runs of the pages are what their programs report today, as far as they are run again here."""

import base64
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from optirs_web.training import recipes

CLONE = Path(__file__).parent.parent
RECORDED = CLONE / "demo_site" / "frontend" / "src" / "recorded"


@pytest.fixture
def record_runs(monkeypatch):
    """The script, with programs of the pages that are imported for this test alone."""
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")
    monkeypatch.syspath_prepend(str(CLONE / "examples"))
    monkeypatch.syspath_prepend(str(CLONE / "demo_site" / "programs"))
    monkeypatch.setitem(sys.modules, "recipes", recipes)
    for path in (CLONE / "demo_site" / "programs").glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    monkeypatch.setitem(sys.modules, "page", None)  # and back to what it was, which is nothing
    spec = importlib.util.spec_from_file_location("record_runs", CLONE / "scripts" / "record_runs.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def record(record_runs):
    """`record("home", HOME_STEPS=1)`: a recording as it would be written, with other constants of the script."""

    def run(name, **constants):
        for constant, value in constants.items():
            setattr(record_runs, constant, value)
        return json.loads(json.dumps(record_runs.record(name)))

    return run


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text("utf-8"))


def events(recording, kind):
    return [event[2:] for event in recording["events"] if event[1] == kind]


def unpacked(packed):
    """The numbers, as lib/recording.js unpacks them."""
    whole = np.frombuffer(base64.b64decode(packed["data"]), "i1" if packed["bits"] <= 8 else "<i2")
    return (whole * packed["scale"]) ** packed["power"]


def test_every_recording_has_a_recorder_and_none_is_large(record_runs):
    files = {path.stem: path.stat().st_size for path in RECORDED.glob("*.json")}
    assert set(files) == set(record_runs.RECORDERS)
    assert max(files.values()) < 150_000


def test_the_points_and_the_first_map_of_the_first_page(record):
    again, kept = record("home", HOME_STEPS=1), recorded("home")
    assert events(again, "points") == events(kept, "points")
    (figures, numbers), (kept_figures, kept_numbers) = events(again, "map")[0], events(kept, "map")[0]
    assert figures["loss"] == pytest.approx(kept_figures["loss"], rel=1e-3)
    np.testing.assert_allclose(unpacked(numbers), unpacked(kept_numbers), atol=2 * kept_numbers["scale"])
    assert events(kept, "map")[-1][0]["accuracy"] > 0.95


def test_the_first_epoch_of_the_digits(record):
    again, kept = record("digits", DIGITS_EPOCHS=1), recorded("digits")
    assert events(again, "choices") == events(kept, "choices")
    (steps,), (kept_steps,) = events(again, "steps")[0], events(kept, "steps")[0]
    assert steps["losses"] == pytest.approx(kept_steps["losses"], rel=0.02)
    assert events(kept, "epoch")[-1][0]["accuracy"] > 0.97


def test_the_first_steps_of_the_writer(record):
    again, kept = record("gpt", GPT_STEPS=1), recorded("gpt")
    assert events(again, "choices") == events(kept, "choices")
    assert events(again, "steps")[0][0]["losses"] == pytest.approx(events(kept, "steps")[0][0]["losses"], rel=1e-2)


def test_the_playground_has_what_every_example_printed():
    examples = {path.stem for path in (CLONE / "demo_site" / "programs" / "examples").glob("*.py")}
    outputs = {payload["example"]: payload["text"] for (payload,) in events(recorded("playground"), "output")}
    assert set(outputs) == examples
    assert all(text.strip() for text in outputs.values())
