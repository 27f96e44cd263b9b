"""The memory of a compiled step: buffers share bytes while that changes nothing."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
from hypothesis import given, strategies as st

import optirs_web as ow
from optirs_web import nn
from optirs_web.runtime import program
from optirs_web.runtime.backend import Capabilities
from optirs_web.runtime.buffer import Buffer, View
from optirs_web.runtime.planning import Location, Plan, plan

WEBGPU = Capabilities(1 << 28, 1 << 27, 8, 256, 65_535, frozenset())
POINTERS = replace(WEBGPU, parts="free")


def buffer(nbytes):
    return Buffer(None, None, nbytes, None)


def launch(reads, writes):
    return SimpleNamespace(reads=[*map(View.whole, reads)], writes=[*map(View.whole, writes)])


def planned(launches, capabilities=POINTERS, held=()):
    return plan(launches, lambda _: True, lambda buffer: buffer not in held, capabilities)


@st.composite
def programs(draw):
    """Launches over buffers, and the buffers that are read afterwards."""
    buffers = [buffer(4 * draw(st.integers(1, 600))) for _ in range(draw(st.integers(1, 12)))]
    some = st.lists(st.sampled_from(buffers), max_size=3, unique_by=id)
    launches = [launch(draw(some), draw(some)) for _ in range(draw(st.integers(1, 15)))]
    return launches, draw(some)


def needed(launches, held):
    """Return the first and the last launch that needs each buffer."""
    spans = {}
    for number, one in enumerate(launches):
        for view in (*one.reads, *one.writes):
            first, _ = spans.get(view.buffer, (number, number))
            spans[view.buffer] = first, len(launches) if view.buffer in held else number
    return spans


@given(programs(), st.sampled_from(["free", "apart", "none"]))
def test_buffers_that_are_needed_at_the_same_time_have_bytes_of_their_own(case, parts):
    launches, held = case
    sizes, locations = planned(launches, replace(WEBGPU, parts=parts), held)
    spans = needed(launches, held)
    assert locations.keys() == spans.keys()
    for (one, (first, last)), (other, (begin, end)) in combinations(spans.items(), 2):
        if first <= end and begin <= last and locations[one].piece == locations[other].piece:
            starts = locations[one].offset, locations[other].offset
            assert starts[0] + one.nbytes <= starts[1] or starts[1] + other.nbytes <= starts[0]
    for one, (piece, offset) in locations.items():
        assert offset % WEBGPU.offset_alignment == 0
        assert offset + one.nbytes <= sizes[piece]
        assert offset == 0 or one not in held


@given(programs())
def test_no_piece_is_read_and_written_by_a_launch_where_the_device_forbids_it(case):
    launches, held = case
    locations = planned(launches, WEBGPU, held).locations
    for one in launches:
        written = {view.buffer for view in one.writes}
        for target in written:
            for other in written | {view.buffer for view in one.reads}:
                assert other is target or locations[other].piece != locations[target].piece


def test_small_buffers_share_the_bytes_of_a_large_one_that_is_no_longer_needed():
    large, *small = map(buffer, (4096, 1024, 1024, 1024, 1024))
    source, last = buffer(256), buffer(256)
    launches = [launch([], [large]), launch([large], [source]), *(launch([source], [one]) for one in small)]
    launches.append(launch(small, [last]))
    assert planned(launches).sizes == planned(launches, WEBGPU).sizes == [4096, 256]


def test_a_launch_takes_what_it_reads_and_what_it_writes_from_a_piece_where_the_device_allows_it():
    large, one, other = map(buffer, (4096, 2048, 2048))
    launches = [launch([], [large]), launch([], [one]), launch([one], [other])]
    assert planned(launches).sizes == [4096]
    assert planned(launches, WEBGPU).sizes == [4096, 2048]


def test_a_piece_is_as_large_as_the_pool_makes_it_unless_no_buffer_can_be():
    assert planned([launch([], [buffer(1100)])]).sizes == [1280]
    assert planned([launch([], [buffer(1100)])], replace(POINTERS, max_buffer_bytes=1200)).sizes == [1100]


class Step(nn.Module):
    """Attention, normalization and a network, as in a transformer."""

    def __init__(self, device):
        super().__init__()
        self.norm = nn.LayerNorm(16, device=device)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, device=device)
        self.network = nn.Sequential(nn.Linear(16, 64, device=device), nn.GELU(), nn.Linear(64, 16, device=device))

    def forward(self, x):
        y = self.norm(x)
        return self.network(self.norm(x + self.attention(y, y, y, need_weights=False, is_causal=True)[0]))


def trained(device):
    """Return the losses and parameters of a compiled step, and the bytes of the step."""
    ow.manual_seed(0)
    model = Step(device)
    optimizer = ow.optim.AdamW(model.parameters(), lr=1e-2)

    @ow.compile
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2.0).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = ow.rand((8, 12, 16), device=device, seed=1)
    losses = [step(x).item() for _ in range(3)]
    return losses, [param.numpy().tobytes() for param in model.parameters()], step.program.nbytes


def test_a_step_gives_the_same_bits_in_shared_memory_as_where_each_buffer_has_its_own(device, monkeypatch):
    shared = trained(device)

    def apart(recorded, is_own, is_temporary, capabilities):
        buffers = plan(recorded, is_own, is_temporary, capabilities).locations
        return Plan(
            [buffer.nbytes for buffer in buffers], {buffer: Location(piece, 0) for piece, buffer in enumerate(buffers)}
        )

    monkeypatch.setattr(program, "plan", apart)
    alone = trained(device)
    assert shared[:2] == alone[:2]
    assert shared[2] < 0.5 * alone[2]
    assert np.isfinite(shared[0]).all()
