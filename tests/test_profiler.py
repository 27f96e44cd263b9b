"""The profiler: each kernel with its time, bytes and operations; host spans without gaps; a trace that viewers open."""

import asyncio
import json
import struct
import time
from itertools import pairwise

import numpy as np
import pytest
from trace_events import check_trace, nanoseconds, spans_of

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.profiling.analysis import bottleneck_of, covered, kernel_runs, tick_of
from optirs_web.profiling.costs import operations_of_function
from optirs_web.profiling.peaks import Peaks, peaks_of
from optirs_web.profiling.records import HostSpan, KernelRun
from optirs_web.profiling.tap import Submit, Tap
from optirs_web.runtime.backend import Backend
from optirs_web.runtime.timing import WALL_TIME, Timed, Work
from optirs_web.wgsl import link, parse

CLOCKS = {"cpu": "host clock around each kernel", **dict.fromkeys(("vulkan", "opencl", "cuda"), "gpu timestamps")}


def training_step(device, width=32):
    """A compiled step, and what to call it with."""
    ow.manual_seed(0)
    w0, w1 = (ow.Parameter(ow.randn(shape, device=device) * 0.1) for shape in ((64, width), (width, 10)))
    optimizer = ow.optim.AdamW([w0, w1], lr=0.01)

    def train_step(x, labels):
        optimizer.zero_grad()
        loss = ow.cross_entropy((x @ w0).relu() @ w1, labels)
        loss.backward()
        optimizer.step()
        return loss

    x, labels = np.linspace(0, 1, 16 * 64, dtype=np.float32).reshape(16, 64), np.arange(16, dtype=np.int32) % 10
    return ow.compile(train_step, device=device), (x, labels)


@pytest.fixture
def training(device):
    """A profile of five steps, after one that was recorded, with the seconds of each by the test's own clock."""
    step, batch = training_step(device)
    step(*batch).item()
    before, seconds = ow.stats(), []
    with ow.profile(device) as p:
        for _ in range(5):
            start = time.perf_counter()
            step(*batch).item()
            p.step()
            seconds.append(time.perf_counter() - start)
    return p, ow.stats() - before, seconds


# What runs.


def test_kernels_have_their_bytes_and_operations(device):
    x, y = ow.ones((24, 32), device=device), ow.ones((32, 8), device=device)
    with ow.profile(device) as p:
        z = (x @ y).relu()
        z.sum()
    actual = {kernel.name: (kernel.bytes_read, kernel.bytes_written, kernel.operations) for kernel in p.kernels}
    assert actual == {
        "matmul": (4 * (24 * 32 + 32 * 8), 4 * 24 * 8, 2 * 24 * 32 * 8),
        "relu": (4 * 24 * 8, 4 * 24 * 8, 24 * 8),
        "sum": (4 * 24 * 8, 4, 24 * 8),
    }
    assert p.clock == CLOCKS[device.name]
    assert p.kernels[0].parameters["inner"] == 32


def test_what_is_updated_in_place_is_read_and_written(device):
    w = ow.Parameter(ow.ones((256,), device=device))
    optimizer = ow.optim.SGD([w], lr=0.1)
    optimizer.step(grads=[ow.ones((256,), device=device)])
    with ow.profile(device) as p:
        optimizer.step(grads=[ow.ones((256,), device=device)])
    update = next(kernel for kernel in p.kernels if kernel.name == "sgd update")
    assert update.bytes_written == 4 * 256
    assert update.bytes_read >= 2 * 4 * 256
    assert update.operations >= 2 * 256


def test_a_copy_is_one_of_the_kernels(device):
    source, target = ow.ones((1000,), device=device), ow.zeros((1000,), device=device)
    with ow.profile(device) as p:
        device.copy(source.view, target.view)
    assert [(kernel.name, kernel.bytes_read, kernel.bytes_written) for kernel in p.kernels] == [("copy", 4000, 4000)]


def test_a_replayed_step_is_taken_apart_into_its_kernels(training):
    p, counted, _ = training
    assert counted.replays == 5
    assert len(p.kernels) == counted.dispatches + counted.copies
    assert sum(kernel.name.startswith("matmul") for kernel in p.kernels) == 5 * 5  # two forward, three backward
    assert sum(span.kind == "replay" for span in p.host) == 5


def test_a_program_of_more_kernels_than_a_query_set_has_room_for(open_device):
    device = open_device("vulkan")
    x = ow.ones((4,), device=device)
    with device.record(fuses=False) as program:
        for _ in range(2100):
            x = x + 1.0
    with ow.profile(device) as p:
        device.replay(program)
        assert x.tolist() == [2101.0] * 4
    assert sum(kernel.name == "add" for kernel in p.kernels) == 2100
    assert [kernel.start for kernel in p.kernels] == sorted(kernel.start for kernel in p.kernels)


def test_the_values_are_those_without_a_profile(device):
    losses = []
    for profiled in (False, True):
        step, batch = training_step(device)
        if profiled:
            with ow.profile(device):
                losses.append([step(*batch).item() for _ in range(4)])
        else:
            losses.append([step(*batch).item() for _ in range(4)])
    assert losses[0] == losses[1]


# Times.


def assert_most_equal(found, wanted):
    """Within 5%: at the median, since the system may stop a process between two looks at the clock."""
    assert np.median(np.divide(found, wanted)) == pytest.approx(1, abs=0.05)


def test_host_spans_add_up_to_each_steps_time(training):
    p, _, seconds = training
    assert len(p.steps) == 5
    for step in p.steps:
        within = [span for span in p.host if step.start <= span.start and span.end <= step.end]
        assert sum(span.seconds for span in within) == pytest.approx(step.seconds)
        assert {"replay", "read", "wait"} <= {span.kind for span in within}
    assert_most_equal([step.seconds for step in p.steps], seconds)


def test_kernels_of_a_device_lie_in_their_steps_in_order_and_apart(training):
    p, _, _ = training
    for run, following in pairwise(p.kernels):
        assert run.start <= run.end <= following.start
    sent = {span.details["submit"]: span.start for span in p.host if "submit" in span.details}
    known = [span.end for span in p.host if span.kind in ("read", "wait")]
    for run in p.kernels:
        assert sent[run.submit] <= run.start
        assert run.end <= min(end for end in known if end > sent[run.submit])


def test_long_kernels_make_up_the_time_of_the_calls_that_wait_for_them(device):
    x = ow.ones((768, 768), device=device)
    (x @ x).sum().item()
    shares = []
    for _ in range(3):  # the system may stop a process in between
        with ow.profile(device) as p:
            for _ in range(4):
                x @ x
            p.step()
        calls = [span for span in p.host if span.kind in ("submit", "wait")]
        kernels = sum(kernel.seconds for kernel in p.kernels)
        assert kernels <= calls[-1].end - calls[0].start
        shares.append(kernels / sum(span.seconds for span in calls))
    assert max(shares) > 0.7


def test_without_timestamps_each_kernel_is_submitted_by_itself_and_the_clock_says_so(device, monkeypatch):
    monkeypatch.setattr(device.backend, "clock", WALL_TIME)
    for name in ("submit_timed", "times"):
        monkeypatch.setattr(device.backend, name, getattr(Backend, name).__get__(device.backend))
    step, batch = training_step(device)
    step(*batch).item()
    with ow.profile(device) as p:
        loss = step(*batch).item()
    assert np.isfinite(loss)
    assert p.clock == "wall time per submit"
    assert sum(kernel.name.startswith("matmul") for kernel in p.kernels) == 5
    assert all(kernel.seconds > 0 for kernel in p.kernels)


def timed(start, end):
    return Timed((Work(None, (4,)),), start, end)


def submit(start, sent, done, *times):
    made = Submit(start, sent, None)
    made.done, made.times = done, [timed(*interval) for interval in times]
    return made


@pytest.mark.parametrize(
    ("submits", "starts"),
    [
        ([submit(10, 11, 20, (500, 503))], [11]),  # an idle device begins when it is sent
        ([submit(10, 11, 12, (500, 501.5))], [10.5]),  # but had ended before the host knew
        ([submit(10, 11, 30, (500, 508)), submit(12, 12, 30, (508, 510))], [11, 19]),  # a busy one later
        ([submit(0, 0, 9, (100, 101)), submit(50, 50, 52, (149, 150.5))], [1, 50]),
        ([submit(0, 0, 2, (100, 101)), submit(50, 50, 52, (151.5, 152.5))], [0, 51]),  # clocks that run apart
    ],
)
def test_a_devices_clock_is_set_by_when_submits_were_sent_and_known_to_be_done(submits, starts):
    assert [run.start for run in kernel_runs(submits, "x", 0.0, own_clock=True)] == starts


def test_a_coarse_clock_is_noticed():
    random = np.random.default_rng(0)
    fine = [submit(0, 0, 0, *((start, start + 1) for start in random.random(8)))]
    coarse = [submit(0, 0, 0, *((integer * 1e-4, integer * 1e-4 + 1e-4) for integer in random.integers(0, 99, 8)))]
    assert tick_of(fine) == 0
    assert tick_of(coarse) == pytest.approx(1e-4)


def test_what_is_awaited_counts_where_nothing_else_is_done():
    spans = [HostSpan("submit", 1, 2), HostSpan("read", 4, 5)]
    awaited = [HostSpan("wait", 1.5, 4.5), HostSpan("wait", 3, 6)]
    actual = [(span.kind, span.start, span.end) for span in covered(spans, awaited, [0, 0.5, 7])]
    assert actual == [
        ("python", 0, 0.5), ("python", 0.5, 1), ("submit", 1, 2), ("wait", 2, 4), ("read", 4, 5), ("wait", 5, 6),
        ("python", 6, 7),
    ]  # fmt: skip


def test_an_awaited_read_is_a_part_of_its_step(device):
    async def run():
        x = ow.ones((64, 64), device=device)
        async with ow.profile(device) as p:
            for _ in range(2):
                await (x @ x).numpy_async()
                await p.step_async()
        return p

    p = asyncio.run(run())
    assert [kernel.name for kernel in p.kernels] == ["matmul", "matmul"]
    assert sum(span.seconds for span in p.host) == pytest.approx(p.total)
    assert sum(span.details.get("bytes", 0) for span in p.host if span.kind == "read") >= 2 * 4 * 64 * 64


# Costs.


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("fn f(x: f32) -> f32 { return x * x + 1.0; }", 2),
        ("fn f(x: f32) -> f32 { return fma(x, x, -x); }", 3),
        ("fn f(x: f32) -> f32 { return max(abs(x), 1.0); }", 2),
        ("fn f(x: f32) -> f32 { return select(x + 1.0, x * 2.0, x > 0.0); }", 2),
        ("fn f(x: f32) -> f32 { if x > 0.0 { return x * 2.0; } return x * x * x; }", 3),
        ("fn f(x: f32) -> f32 { var y = x; for (var i = 0; i < 5; i++) { y = y * x; } return y; }", 5),
        ("fn g(x: f32) -> f32 { return x * x; } fn f(x: f32) -> f32 { return g(x) + g(x + 1.0); }", 4),
        ("fn f(x: u32) -> u32 { return (x ^ 3u) << 2u; }", 2),
        ("fn f(x: f32) -> f32 { return f32(u32(x)); }", 0),
    ],
)
def test_operations_of_a_map_function(text, count):
    assert operations_of_function(link(parse(text, "f.wgsl")), "f") == count


def test_a_strided_operand_counts_once(device):
    table, row = ow.ones((16, 8), device=device), ow.ones((8,), device=device)
    with ow.profile(device) as p:
        table + row
    assert (p.kernels[0].bytes_read, p.kernels[0].bytes_written) == (4 * (16 * 8 + 8), 4 * 16 * 8)


# What it says.


PEAKS = {"gpu": Peaks(bandwidth=1e9, arithmetic=1e10, launch=1e-5)}


def run(start, end, nbytes=0, operations=0):
    return KernelRun("k", start, end, nbytes, 0, operations, (1, 1, 1), {}, "gpu", 0)


@pytest.mark.parametrize(
    ("kernels", "host", "name", "words"),
    [
        ([run(0, 0.9, nbytes=8e8, operations=1e9)], [], "bandwidth", "889 MB/s in these kernels, where 1.00 GB/s"),
        ([run(0, 0.9, nbytes=1e8, operations=8e9)], [], "arithmetic", "8.89 Gop/s in these kernels, where 10.0 Gop/s"),
        ([run(0, 0.1, nbytes=1e8)], [], "launch", "90.0% of 1.00 s; the 1 kernels ran for 100 ms"),
        ([run(n / 1e5, n / 1e5 + 1e-5, nbytes=4) for n in range(60_000)], [], "launch", "10.0 µs even for a single"),
        (
            [run(0, 0.2, nbytes=2e8)],
            [HostSpan("read", 0.1, 0.9, "gpu", {"bytes": 3_000_000})],
            "transfer",
            "70.0% of 1.00 s; 3.00 MB to the host in 1 calls and 0 B to the device in 0 calls",
        ),
    ],
)
def test_the_bottleneck_is_named_with_its_figures(kernels, host, name, words):
    actual = bottleneck_of(kernels, host, PEAKS, 1.0)
    assert actual.name == name
    assert words in actual.reason
    assert sum(actual.seconds.values()) == pytest.approx(1.0)


def test_what_the_profiler_took_is_not_part_of_the_bottleneck():
    actual = bottleneck_of([run(0, 0.4, nbytes=4e8)], [HostSpan("profiler", 0.4, 0.9)], PEAKS, 1.0)
    assert actual.name == "bandwidth"
    assert sum(actual.seconds.values()) == pytest.approx(0.5)


def test_many_small_kernels_are_bound_by_their_launch(device):
    x = ow.ones((4,), device=device)
    with ow.profile(device) as p:
        for _ in range(200):
            x = x + 1.0
    assert p.bottleneck.name == "launch"


def test_peaks_are_measured_once_and_are_more_than_a_kernel_reaches(device):
    peaks = peaks_of(device)
    assert peaks_of(device) is peaks
    x = ow.ones((128, 128), device=device)
    with ow.profile(device) as p:
        x @ x
    assert p.peaks == {device.name: peaks}
    assert 0 < p.summaries[0].of_arithmetic < 1.5
    assert 0 < peaks.launch < 0.01


def test_the_table_has_a_row_for_each_kernel_and_names_clock_and_bottleneck(training):
    p, _, _ = training
    table = p.table()
    assert str(p) == str(table)
    names = {kernel.name for kernel in p.kernels}
    for text in (str(table), table.plain()):
        assert all(name in text for name in names)
        assert p.clock in text
        assert f"bottleneck: {p.bottleneck.name}" in text
        assert "steps: 5" in text
    assert [row[0] for row in table.rows] == [summary.name for summary in p.summaries]
    assert sum(summary.share for summary in p.summaries) == pytest.approx(1)
    assert sum(summary.launches for summary in p.summaries) == len(p.kernels)


def test_a_table_without_rows_is_its_title():
    report = ow.tune(lambda x: x + 1, ow.ones((2,), device="cpu"))
    assert str(report) == report.plain() == report.title


def test_the_plot_is_a_picture_with_bars(training, tmp_path):
    from matplotlib.image import imread

    p, _, _ = training
    figure = p.plot(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", (tmp_path / "profile.png").read_bytes()[16:24])
    assert width > 1000
    assert height > 300
    assert (imread(tmp_path / "profile.png")[..., :3] < 0.9).any(axis=2).mean() > 0.01
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        summary.name for summary in p.summaries
    ][:20]


def test_the_trace_has_every_span_where_viewers_look_for_it(training, tmp_path):
    p, _, seconds = training
    p.to_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    check_trace(trace)
    assert len(spans_of(trace, "kernel")) == len(p.kernels)
    assert len(spans_of(trace, "host")) == len(p.host)
    steps = spans_of(trace, "step")
    assert [step["name"] for step in steps] == [f"step {number}" for number in range(5)]
    sums = []
    for step in steps:
        start, end = nanoseconds(step)
        inside = [
            interval
            for interval in map(nanoseconds, spans_of(trace, "host"))
            if start <= interval[0] and interval[1] <= end
        ]
        sums.append(1e-9 * sum(last - first for first, last in inside))
    assert_most_equal(sums, seconds)
    submits = spans_of(trace, "submit")
    for kernel in spans_of(trace, "kernel"):
        start, end = nanoseconds(kernel)
        assert any(interval[0] <= start and end <= interval[1] for interval in map(nanoseconds, submits))


# When it is used.


def test_outside_of_the_block_nothing_is_measured(device):
    backend = device.backend
    x = ow.ones((8,), device=device)
    with ow.profile(device) as p:
        assert isinstance(device.backend, Tap)
        x + 1.0
    assert device.backend is backend
    count = len(p.kernels)
    (x + 1.0).tolist()
    assert len(p.kernels) == count == 1


def test_an_error_in_the_block_ends_the_profile(device):
    backend = device.backend
    with pytest.raises(ZeroDivisionError), ow.profile(device) as p:
        1 / 0  # noqa: B018
    assert device.backend is backend
    assert p.kernels == []


def test_all_open_devices_are_watched_where_none_is_named(open_device):
    devices = [open_device("cpu"), open_device("vulkan")]
    with ow.profile() as p:
        for device in devices:
            ow.ones((4,), device=device) + 1.0
    assert {kernel.device for kernel in p.kernels} >= {"cpu", "vulkan"}
    assert "cpu: host clock around each kernel" in p.clock


def test_misuse_is_refused_with_what_to_do(device):
    with ow.profile(device) as p:
        with pytest.raises(UnsupportedError, match="do not nest"), ow.profile(device):
            pass
        with pytest.raises(UnsupportedError, match="still running"):
            p.table()
    with pytest.raises(UnsupportedError, match="used only once"), p:
        pass

    def step(x):
        with ow.profile(device):
            return x + 1.0

    with pytest.raises(UnsupportedError, match="profile the calls"):
        ow.compile(step)(ow.ones((2,), device=device))
