"""When kernels ran on a wgpu device: while a profiler asks, each is a compute pass between two timestamps."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from wgpu import BufferUsage

from ...runtime.backend import Command
from ...runtime.timing import Timed, Work

__all__ = ["Timestamps"]

_PAIRS = 2048
"""A query set holds at most 4096 timestamps."""

Batch = tuple[Any, list[Work]]
"""A buffer that the timestamps arrive in, and the work between each pair of them."""


class Timestamps:
    """Measures kernels and copies of a device with timestamp queries."""

    def __init__(self, device: Any, seconds_per_tick: float) -> None:
        """Make the query set, which all submits share: they run one after the other."""
        self._device = device
        self._queries = device.create_query_set(type="timestamp", count=2 * _PAIRS)
        self._seconds = seconds_per_tick
        self._origin: int | None = None  # a float has no room for all the nanoseconds since 1970

    def submit(self, work: Sequence[tuple[Command, Work]]) -> list[Batch]:
        """Run kernels and copies in order; a ticket for `times`."""
        return [self._submit(work[first : first + _PAIRS]) for first in range(0, len(work), _PAIRS)]

    def _submit(self, work: Sequence[tuple[Command, Work]]) -> Batch:
        nbytes = 16 * len(work)
        resolved = self._device.create_buffer(size=nbytes, usage=BufferUsage.QUERY_RESOLVE | BufferUsage.COPY_SRC)
        staging = self._device.create_buffer(size=nbytes, usage=BufferUsage.MAP_READ | BufferUsage.COPY_DST)
        encoder = self._device.create_command_encoder()
        for number, (command, entry) in enumerate(work):
            start, end = 2 * number, 2 * number + 1
            if entry.kernel is None:  # a copy is no pass, and stands between two empty ones
                self._pass(encoder, end_of_pass_write_index=start).end()
                encoder.copy_buffer_to_buffer(*command)
                self._pass(encoder, beginning_of_pass_write_index=end).end()
            else:
                timed = self._pass(encoder, beginning_of_pass_write_index=start, end_of_pass_write_index=end)
                timed.set_pipeline(command.pipeline)
                timed.set_bind_group(0, command.bind_group)
                timed.dispatch_workgroups(*command.grid)
                timed.end()
        encoder.resolve_query_set(self._queries, 0, 2 * len(work), resolved, 0)
        encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, nbytes)
        self._device.queue.submit([encoder.finish()])
        return staging, [entry for _, entry in work]

    def _pass(self, encoder: Any, **indices: int) -> Any:
        return encoder.begin_compute_pass(timestamp_writes={"query_set": self._queries, **indices})

    def times(self, batches: Sequence[Batch]) -> list[Timed]:
        """Return start and end of all kernels and copies of the batches, in seconds. Waits for them."""
        return [timed for batch in batches for timed in self._times(batch)]

    def _times(self, batch: Batch) -> list[Timed]:
        staging, work = batch
        staging.map_sync("READ")
        ticks = struct.unpack(f"<{2 * len(work)}Q", staging.read_mapped())
        staging.unmap()
        staging.destroy()
        if self._origin is None:
            self._origin = ticks[0]
        seconds = [(tick - self._origin) * self._seconds for tick in ticks]
        return [Timed((entry,), *pair) for entry, *pair in zip(work, seconds[::2], seconds[1::2], strict=True)]
