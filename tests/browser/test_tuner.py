"""The tuner in a page: searched by awaiting, kept in IndexedDB, and used by the page that is loaded next."""

import json
import os
import textwrap

from chromium import SETUP
from training_page import WITHOUT_JSPI, fresh_page

SUM = """
    import json
    import optirs_web as ow

    device = await ow.device_async("webgpu")
    x = ow.ones((30, 12), device=device)
    step = ow.compile(lambda: x.sum(axis=1))
    report = await ow.tune_async(step)
    (work,) = report.works
    kernels = [one.kernel.constants for _, one in device.backend.parts(step.program.recorded)]
    result = await step().tolist_async()
    json.dumps([work.kernel, work.shape_class, sorted(work.seconds), work.chosen, kernels, result, str(report)])
    """

TILE = {"TILE_ROWS": 16, "TILE_COLUMNS": 16, "OWN_ROWS": 4, "OWN_COLUMNS": 4, "DEPTH": 4}

# As a search does, whatever is fastest here.
KEPT = """
    from optirs_web.runtime import kept
    from optirs_web.runtime.tuner.candidates import TUNABLE
    from optirs_web.runtime.tuner.records import Record, figure_of
    from optirs_web.runtime.tuner.switch import subject_of
    record = Record(TUNABLE["matmul"], "64x64x64 nn", (16, 16, 4, 4, 4))
    await kept.store_async(subject_of(device.info), {record.name: figure_of(record, {})})
    refused = []
    for call in (ow.tuning, lambda: ow.tune(step)):
        try:
            call()
        except ow.errors.UnsupportedError as error:
            refused.append(str(error))
    json.dumps(refused)
    """

USED = """
    import json
    import optirs_web as ow
    device = await ow.device_async("webgpu")
    assert device.backend.tuned is None
    await ow.tuning_async()
    found = sorted([*key[0].numbers, key[1], *choice] for key, choice in device.backend.tuned.searched.items())
    a, b = ow.ones((64, 33), device=device), ow.ones((33, 40), device=device)
    step = ow.compile(lambda: a @ b)
    result = (await step().tolist_async())[-1][-1]
    kernels = [one.kernel.constants for _, one in device.backend.parts(step.program.recorded)]
    json.dumps([found, kernels, result])
    """


def loaded_anew(python):
    """Reload the page: it keeps nothing but IndexedDB."""
    python.page.goto(python.exchange.url)
    python.page.evaluate(SETUP, [{"numpy": bool(os.environ.get("OPTIRS_PYODIDE_DIST"))}])


def test_a_search_is_awaited_and_kept_for_the_next_page(browser):
    with fresh_page(browser, WITHOUT_JSPI) as python:
        *work, chosen, kernels, result, text = json.loads(python.run(textwrap.dedent(SUM)))
        assert work == ["sum", "64 of 16", [[32], [64], [128], [256]]]
        assert kernels == [{} if chosen == [64] else {"WORKGROUP": chosen[0]}]
        assert result == [12.0] * 30
        assert "64 of 16" in text

        refused = json.loads(python.run(textwrap.dedent(KEPT)))
        assert [message.partition("await ")[2] for message in refused] == [
            "optirs_web.tuning_async()",
            "optirs_web.tune_async(step, ...)",
        ]
        loaded_anew(python)
        actual, kernels, result = json.loads(python.run(textwrap.dedent(USED)))
        assert actual == [[*TILE, "64x64x64 nn", *TILE.values()], ["WORKGROUP", "64 of 16", *chosen]]
        assert kernels == [TILE]
        assert result == 33.0


def test_where_python_can_wait_it_need_not_be_awaited(browser_python):
    program = """
        import optirs_web as ow
        x = ow.ones((3, 5), device="webgpu")
        first, again = (ow.tune(lambda: x.sum(axis=1)).works for _ in range(2))
        ow.tuning(False)
        [len(first[0].seconds), len(again[0].seconds), (x.sum(axis=1)).tolist()] == [4, 0, [5.0] * 3]
        """
    assert browser_python.run(textwrap.dedent(program)) is True
