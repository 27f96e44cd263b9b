"""The public functions for a device's memory: trimming, and the timeline as events, JSON, table and picture."""

import gc
import json
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import OutOfDeviceMemoryError
from optirs_web.memory.timeline import MemoryEvent

MATRIX = 64 * 64 * 4  # bytes; a size class, so nothing is rounded


@pytest.fixture
def emptied(device):
    """A device with nothing in its pool and no garbage that could be let go meanwhile."""
    gc.collect()
    ow.empty_cache(device)
    return device


def chain(device):
    """Kernels over a matrix; the results in between are let go."""
    return (ow.full((64, 64), 0.5, device=device).exp() + 1.0).sum()


@contextmanager
def dispatched(device):
    """The names of the kernels that are dispatched in the block."""
    names = []

    def observe(kernel, views):
        names.append(kernel.name)

    device.observers.append(observe)
    yield names
    device.observers.remove(observe)


def kinds(timeline):
    return [event.kind for event in timeline.events]


def test_a_timeline_tells_what_was_taken_for_which_kernel_and_let_go(emptied):
    with dispatched(emptied) as kernels, ow.memory_timeline(emptied) as timeline:
        a = ow.full((64, 64), 0.5, device=emptied)
        b = a.exp()
        del a
        c = -b
    full, exp, negate = kernels
    assert [(event.kind, event.buffer, event.kernel, event.after, event.nbytes) for event in timeline.events] == [
        ("allocate", 0, full, "", MATRIX),
        ("allocate", 1, exp, full, MATRIX),
        ("release", 0, full, exp, MATRIX),
        ("reuse", 2, negate, exp, MATRIX),
    ]
    assert [event.live - timeline.first_live for event in timeline.events] == [MATRIX, 2 * MATRIX, MATRIX, 2 * MATRIX]
    assert [event.pooled for event in timeline.events] == [0, 0, MATRIX, 0]
    assert timeline.peak - timeline.first_live == 2 * MATRIX
    assert timeline.peak_held - timeline.first_live - timeline.first_pooled == 2 * MATRIX
    times = [event.time for event in timeline.events]
    assert times == sorted(times)
    assert times[0] >= 0
    del b, c


def test_what_is_let_go_in_the_block_is_seen_at_its_end(emptied):
    with ow.memory_timeline(emptied) as timeline:
        one = ow.tensor(np.zeros(4096, np.float32), device=emptied)
        del one
        assert kinds(timeline) == ["allocate"]
    assert kinds(timeline) == ["allocate", "release"]
    assert [event.kernel for event in timeline.events] == ["", ""]


def test_a_timeline_keeps_no_memory_that_was_let_go(emptied):
    with ow.memory_timeline(emptied):
        buffer = emptied.allocate(1000)
        memory, another = buffer.handle, object()
        buffer.release()
        del buffer
        ow.empty_cache(emptied)
        gc.collect()
        assert sys.getrefcount(memory) == sys.getrefcount(another)


def test_outside_of_its_block_a_timeline_hears_nothing(emptied):
    timeline = ow.memory_timeline(emptied)
    chain(emptied)
    with pytest.raises(KeyError), timeline:
        raise KeyError
    chain(emptied)
    assert timeline.events == []
    assert (emptied.memory_observers, emptied.observers) == ([], [])
    assert timeline.peak == timeline.first_live


def test_timelines_may_be_nested(emptied):
    with ow.memory_timeline(emptied) as outer:
        first = ow.full((64, 64), 1.0, device=emptied)
        with ow.memory_timeline(emptied) as inner:
            second = first.exp()
            del first
    assert (kinds(outer), kinds(inner)) == (["allocate", "allocate", "release"], ["allocate", "release"])
    assert inner.first_live == outer.first_live + MATRIX
    assert [event.buffer for event in inner.events] == [0, None]
    assert inner.live_at_peak() == {"(there before)": inner.first_live, outer.events[1].kernel: MATRIX}
    del second


def test_the_bytes_by_kernel_add_up_to_what_is_in_use_after_each_event(emptied):
    with ow.memory_timeline(emptied) as timeline:
        x = ow.Parameter(np.ones((64, 64), np.float32), device=emptied)
        for _ in range(2):
            ((x @ x).exp() * 0.5).sum().backward()
    sums = [live.total() for live in timeline.live_by_kernel()]
    assert sums == [timeline.first_live, *(event.live for event in timeline.events)]
    assert all(min(live.values()) >= 0 for live in timeline.live_by_kernel())
    at_peak = timeline.live_at_peak()
    assert at_peak.total() == timeline.peak
    assert at_peak["matmul"] >= MATRIX


def test_a_compiled_steps_own_memory_is_in_use_as_long_as_the_step_is_kept(emptied):
    x = ow.full((64, 64), 0.5, device=emptied)
    with ow.memory_timeline(emptied) as timeline:
        step = ow.compile(lambda x: (x.exp() @ x).exp().sum(), device=emptied)
        for _ in range(3):
            step(x).item()
        replays = [event for event in timeline.events if event.kind == "replay"]
        del step
        gc.collect()
    assert len(replays) == 3
    own = replays[-1].nbytes
    assert own >= 2 * MATRIX
    kept = [event for event in timeline.events if event.kernel == "(compiled steps)"]
    assert sum(event.nbytes for event in kept if event.kind != "release") == own
    assert sum(event.nbytes for event in kept if event.kind == "release") == own
    assert all(event.live >= timeline.first_live + own for event in timeline.events if event.kind == "replay")


def test_a_want_of_memory_is_in_the_timeline_with_what_was_done_about_it(emptied, limited):
    limited(1 << 20)
    with ow.memory_timeline(emptied) as timeline:
        emptied.allocate(600_000).release()
        kept = emptied.allocate(700_000)
        with pytest.raises(OutOfDeviceMemoryError):
            emptied.allocate(700_000)
    assert kinds(timeline) == ["allocate", "release", "exhausted", "trim", "allocate", "exhausted"]
    assert [event.nbytes for event in timeline.events if event.kind == "exhausted"] == [700_000, 700_000]
    assert timeline.events[3].pooled == 0
    del kept


def test_the_json_has_every_event_with_the_attributes_that_are_documented(emptied, tmp_path):
    with ow.memory_timeline(emptied) as timeline:
        chain(emptied)
    text = timeline.to_json(tmp_path / "timeline.json")
    assert (tmp_path / "timeline.json").read_text("utf-8").strip() == text
    actual = json.loads(text)
    assert (actual.pop("format"), actual.pop("version")) == ("optirs_web.memory_timeline", 1)
    events = [MemoryEvent(**event) for event in actual.pop("events")]
    assert events == timeline.events
    assert actual == {
        "device": emptied.name,
        "limit": None,
        "first_live": timeline.first_live,
        "first_pooled": timeline.first_pooled,
        "peak": timeline.peak,
        "peak_held": timeline.peak_held,
    }
    for field in fields(MemoryEvent):
        assert f"{field.name}: " in MemoryEvent.__doc__


def test_the_summary_has_the_figures_of_the_events_and_of_the_peak(emptied):
    with dispatched(emptied) as kernels, ow.memory_timeline(emptied) as timeline:
        kept = [ow.full((64, 64), 0.5, device=emptied).exp() for _ in range(3)]
    full, exp = kernels[:2]
    rows = {line[:32].strip(): line[32:].split() for line in timeline.summary().splitlines()[2:] if line}
    assert timeline.summary().startswith(f"memory of '{emptied.name}': {len(timeline.events)} events in ")
    assert rows["allocate"] == ["4", "64.0", "KiB"]
    assert rows["reuse"] == ["2", "32.0", "KiB"]
    assert rows["release"] == ["3", "48.0", "KiB"]
    assert rows[exp] == ["48.0", "KiB"]
    assert rows[full] == ["16.0", "KiB"]
    del kept


def test_a_timeline_in_which_nothing_happened_can_be_shown(emptied):
    with ow.memory_timeline(emptied) as timeline:
        pass
    assert timeline.live_at_peak().total() == timeline.peak == timeline.first_live
    assert timeline.summary().startswith(f"memory of '{emptied.name}': 0 events in 0.0 ms")
    assert len(timeline.plot().axes) == 1


@pytest.mark.parametrize("against", ["events", "time"])
def test_the_picture_names_what_used_the_memory_and_where_the_peak_was(emptied, limited, tmp_path, against):
    x = ow.full((64, 64), 0.5, device=emptied)
    limited(1 << 16)
    with ow.memory_timeline(emptied) as timeline:
        chain(emptied)
        ow.empty_cache(emptied)
        with dispatched(emptied) as kernels:
            kept = x.exp()
        step = ow.compile(lambda x: x.exp().sum(), device=emptied)
        step(x)
    del kept
    figure = timeline.plot(tmp_path / "timeline.png", against=against)
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    named = {text.get_text() for text in axes.get_legend().get_texts()}
    assert {kernels[0], "(compiled steps)", "(pool)", "trim", "replay"} <= named
    assert any(name.startswith("peak ") for name in named)
    assert any(name.startswith("limit ") for name in named)
    assert axes.get_xlabel() == {"events": "events", "time": "milliseconds"}[against]
    (peak,) = [line for line in axes.lines if str(line.get_label()).startswith("peak ")]
    unit = {"KiB": 1024, "MiB": 1 << 20}[axes.get_ylabel()]
    assert peak.get_ydata()[0] == pytest.approx(timeline.peak / unit)
    with pytest.raises(ValueError, match="'events' or 'time', not 'place'"):
        timeline.plot(against="place")


def test_without_matplotlib_the_error_says_what_to_install(emptied, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with ow.memory_timeline(emptied) as timeline:
        chain(emptied)
    with pytest.raises(ImportError, match=r"a picture needs matplotlib.*pip install matplotlib"):
        timeline.plot()


def test_empty_cache_gives_back_the_pool_of_the_device_that_is_named_or_of_all(open_device):
    devices = [open_device(name) for name in ("cpu", "vulkan")]

    def pooled():
        return [device.memory_stats().pooled_bytes > 0 for device in devices]

    def fill():
        for device in devices:
            device.allocate(100_000).release()

    fill()
    assert pooled() == [True, True]
    ow.empty_cache("cpu")
    assert pooled() == [False, True]
    fill()
    ow.empty_cache()
    assert pooled() == [False, False]


def test_a_page_has_the_timeline_too(browser_python):
    program = """
        import gc, json
        import optirs_web as ow
        device = ow.device("webgpu")
        x = None  # programs in this page share their names: a test before may have left one
        gc.collect()
        ow.empty_cache()
        with ow.memory_timeline() as timeline:
            x = ow.full((64, 64), 0.5).exp()
            ow.empty_cache()
        trimmed = ow.memory_stats().pooled_bytes
        json.dumps([timeline.device.name, json.loads(timeline.to_json())["events"], timeline.summary(), trimmed])
        """
    device, events, summary, pooled = json.loads(browser_python.run(textwrap.dedent(program)))
    assert [event["kind"] for event in events] == ["allocate", "allocate", "release", "trim"]
    assert events[0]["kernel"] == events[2]["kernel"] == events[1]["after"]
    assert events[2]["live"] - events[0]["live"] == 0
    assert summary.startswith("memory of 'webgpu': 4 events in ")
    assert (device, pooled) == ("webgpu", 0)
