"""The trace of a training step, natively and in a page, in the real Perfetto: it opens, and its spans add up."""

import json
import time

import pytest
from perfetto import open_in_perfetto, within
from test_profiler import assert_most_equal, training_step
from training_page import with_training

import optirs_web as ow

STEPS = 5
IN_A_PAGE = """
    import time
    params, optimizer, step = make()
    step(*batch(0)).item()
    seconds = []
    with ow.profile() as p:
        for number in range(5):
            start = time.perf_counter()
            step(*batch(number)).item()
            p.step()
            seconds.append(time.perf_counter() - start)
    p.to_chrome_trace("/tmp/trace.json")
    trace = open("/tmp/trace.json").read()
    json.dumps({"seconds": seconds, "kernels": len(p.kernels), "host": len(p.host), "trace": trace})
    """


def check(slices, kernels, host, seconds):
    """Every span is there, on named threads, and those of the host make up each step: its time by another clock."""
    of = {
        kind: [slice_ for slice_ in slices if slice_.category == kind] for kind in ("step", "host", "submit", "kernel")
    }
    assert sum(map(len, of.values())) == len(slices)
    assert (len(of["kernel"]), len(of["host"])) == (kernels, host)
    assert [span.name for span in of["step"]] == [f"step {number}" for number in range(STEPS)]
    assert {(span.process, span.thread) for span in of["step"] + of["host"]} == {("host", "steps"), ("host", "calls")}
    assert {span.process for span in of["submit"] + of["kernel"]} == {"devices"}
    for kernel in of["kernel"]:
        assert any(within([kernel], submit) for submit in of["submit"])
    sums = [sum(span.dur for span in within(of["host"], step)) for step in of["step"]]
    assert sums == pytest.approx([span.dur for span in of["step"]], rel=0.05)
    assert_most_equal([1e-9 * sum_ for sum_ in sums], seconds)


def test_a_native_trace_opens_in_perfetto_and_adds_up(device, browser, tmp_path):
    step, batch = training_step(device)
    step(*batch).item()
    seconds = []
    with ow.profile(device) as p:
        for _ in range(STEPS):
            start = time.perf_counter()
            step(*batch).item()
            p.step()
            seconds.append(time.perf_counter() - start)
    path = tmp_path / "trace.json"
    p.to_chrome_trace(path)
    check(open_in_perfetto(browser, path.read_text("utf-8")), len(p.kernels), len(p.host), seconds)


def test_a_pages_trace_opens_in_perfetto_and_adds_up(browser_python, browser):
    reported = json.loads(browser_python.run(with_training(IN_A_PAGE)))
    slices = open_in_perfetto(browser, reported["trace"])
    check(slices, reported["kernels"], reported["host"], reported["seconds"])


def test_perfetto_counts_spans_that_cross(browser):
    """So that the tests above say something."""
    common = {"ph": "X", "pid": 1, "tid": 1, "cat": "host"}
    events = [{**common, "name": "first", "ts": 1.0, "dur": 3.0}, {**common, "name": "across", "ts": 2.0, "dur": 3.0}]
    with pytest.raises(AssertionError, match="overlap"):
        open_in_perfetto(browser, json.dumps({"traceEvents": events}))
