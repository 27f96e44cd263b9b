"""Recordings as CUDA graphs: what a stream was given once, launched again by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ...errors import OptirsError
from ..steps import Recorded, Step
from . import driver

__all__ = ["Graph", "Replayed"]


class Graph:
    """Made at the second replay. The steps are what it is made of, and are run one by one where it cannot be made.

    At the first they are, too: what CUDA and cuBLAS load or allocate when something runs for the first time they could
    not while a stream is captured.
    """

    def __init__(self, stream: driver.Handle, retire: Callable[[driver.Handle], None]) -> None:
        """`retire` is given what is to be destroyed, at any moment and in any thread."""
        self._stream = stream
        self._retire = retire
        self._executable: driver.Handle | None = None
        self._is_possible = True
        self._has_run = False

    def launched(self, steps: Sequence[Step]) -> bool:
        """Enqueue all steps at once. False where nothing was enqueued: then they are to be run one by one."""
        if not self._is_possible or not self._has_run:
            self._has_run = True
            return False
        try:
            if self._executable is None:
                self._executable = _executable_of(steps, self._stream)
            driver.launch_graph(self._executable, self._stream)
        except (driver.CudaError, OptirsError):  # it comes again when the steps are run one by one
            self.break_up()
        return self._is_possible

    def break_up(self) -> None:
        """Run the steps one by one from now on, as when one of them names memory that was freed."""
        self._is_possible = False

    def close(self) -> None:
        """Destroy the graph, which must not be running."""
        self.break_up()
        if self._executable is not None:
            driver.destroy_executable(self._executable)
            self._executable = None

    def __del__(self) -> None:
        """It may still run."""
        if self._executable is not None:
            self._retire(self._executable)


def _executable_of(steps: Sequence[Step], stream: driver.Handle) -> driver.Handle:
    driver.begin_capture(stream)
    try:
        for step in steps:
            step.run()
    except BaseException:
        with suppress(driver.CudaError):  # of a capture that failed there is no graph
            driver.destroy_graph(driver.end_capture(stream))
        raise
    graph = driver.end_capture(stream)
    try:
        return driver.executable_of(graph)
    finally:
        driver.destroy_graph(graph)


class Replayed(Recorded):
    """Steps that are replayed, and their graph."""

    graph: Graph

    @classmethod
    def of(cls, steps: Sequence[Step], graph: Graph) -> Replayed:
        """The graph is made of the steps, and of nothing else that needs memory."""
        made = cls(tuple(steps))
        made.graph = graph
        for step in steps:
            for handle in (*(buffer for buffer, _, _ in step.buffers), step.target):
                if handle is not None:
                    handle.graphs.add(graph)
        return made
