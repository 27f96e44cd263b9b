"""The profiler in a page: kernels of a replayed step by the browser's timestamps, awaited where nothing can wait."""

import json

import pytest
from trace_events import check_trace, spans_of
from training_page import WITHOUT_JSPI, fresh_page, with_training

TOLD = """
    counted = ow.stats() - before
    json.dumps({
        "clock": p.clock,
        "kernels": [[one.name, one.start, one.end, one.operations] for one in p.kernels],
        "counted": counted.dispatches + counted.copies,
        "total": p.total,
        "host": sum(one.seconds for one in p.host),
        "kinds": sorted({one.kind for one in p.host}),
        "steps": len(p.steps),
        "table": str(p.table()),
        "trace": open(path).read() if p.to_chrome_trace(path := "/tmp/trace.json") is None else "",
    })
    """

AWAITED = """
    await ow.device_async("webgpu")
    params, optimizer, step = make()
    await step(*batch(0)).item_async()
    before = ow.stats()
    async with ow.profile() as p:
        for number in range(3):
            await step(*batch(number)).item_async()
            await p.step_async()
    """


def check(told, replays=3):
    """A profile of three steps."""
    assert told["steps"] == 3
    assert told["host"] == pytest.approx(told["total"])
    assert {"replay", "read", "wait", "python"} <= set(told["kinds"])
    assert "bottleneck: " in told["table"]
    trace = json.loads(told["trace"])
    check_trace(trace)
    assert len(spans_of(trace, "kernel")) == len(told["kernels"])
    assert len(spans_of(trace, "submit")) >= replays


def check_kernels(told):
    """Each kernel by itself."""
    assert len(told["kernels"]) == told["counted"]
    products = [run for run in told["kernels"] if run[0].startswith("matmul")]
    assert len(products) == 3 * 5  # two forward, three backward
    assert {product[3] for product in products} >= {2 * 16 * 64 * 32, 2 * 16 * 32 * 10}
    assert all(run[1] <= run[2] for run in told["kernels"])
    assert 0 < sum(run[2] - run[1] for run in told["kernels"]) < told["total"]


def test_a_replayed_step_is_taken_apart_in_a_page(browser_python):
    program = """
        params, optimizer, step = make()
        step(*batch(0)).item()
        before = ow.stats()
        with ow.profile() as p:
            for number in range(3):
                step(*batch(number)).item()
                p.step()
        """
    reported = json.loads(browser_python.run(with_training(program, TOLD)))
    assert reported["clock"].startswith("gpu timestamps")
    check(reported)
    check_kernels(reported)


def test_without_jspi_a_profile_is_awaited(browser):
    with fresh_page(browser, WITHOUT_JSPI) as python:
        reported = json.loads(python.run(with_training(AWAITED, TOLD)))
        assert reported["clock"].startswith("gpu timestamps")
        check(reported)
        check_kernels(reported)

        plain = """
            try:
                with ow.profile():
                    refused = ""
            except ow.errors.UnsupportedError as error:
                refused = str(error)
            refused
            """
        assert "async with optirs_web.profile() as p" in python.run(with_training(plain))

        # As where the browser has no timestamps: the kernels of a submit cannot be told apart.
        clock = """
            device = await ow.device_async("webgpu")
            device.backend.clock = "wall time per submit"
            """
        reported = json.loads(python.run(with_training(clock, AWAITED, TOLD)))
        assert reported["clock"] == "wall time per submit"
        check(reported)
        assert sum(int(run[0].split()[0]) for run in reported["kernels"] if run[0].endswith("kernels")) > 12
