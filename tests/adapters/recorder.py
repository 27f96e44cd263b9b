"""A device that runs nothing and keeps what it is asked to run: which kernels a program makes, at no cost."""

from collections.abc import Sequence
from dataclasses import replace

from optirs_web.native_backends.cpu.device import CpuBackend
from optirs_web.native_backends.steps import Step
from optirs_web.runtime.backend import AdapterInfo, BoundBuffer, Capabilities, Command
from optirs_web.runtime.device import Device
from optirs_web.runtime.kernels import Kernel

__all__ = ["PROMISED", "Recorder"]

# What WebGPU promises of every adapter, but for the buffers: as many as most have.
PROMISED = Capabilities(
    max_buffer_bytes=256 << 20,
    max_binding_bytes=128 << 20,
    max_storage_buffers=16,
    offset_alignment=256,
    max_workgroups=65535,
    features=frozenset(),
    max_invocations=256,
    max_workgroup_bytes=16384,
)


class Recorder(CpuBackend):
    """Its memory stays as it was written.

    Attributes:
        device: it, as the library sees it.
    """

    def __init__(self, features: Sequence[str] = (), runs: bool = False) -> None:
        """With these optional features, in WebGPU's words; `runs`: it does compute, as `cpu` does."""
        super().__init__(AdapterInfo("vulkan", 0, "nothing is run here"))
        self.capabilities = replace(PROMISED, features=frozenset(features))
        self._runs = runs
        self.device = Device(self, "to see what it is asked")
        self._known: set[Kernel] = set()
        self._bound: list[Kernel] = []

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        """A command that does nothing, unless it computes."""
        if kernel not in self._known:
            self._known.add(kernel)
            self._bound.append(kernel)
        if self._runs:
            return super().bind(kernel, buffers, parameters, grid)
        return Step(lambda: None, kernel, buffers, parameters, grid)

    def take(self) -> list[Kernel]:
        """The kernels that were bound for the first time since the last call."""
        result, self._bound = self._bound, []
        return result
