"""Vulkan, Metal, DX12 and OpenGL through wgpu-py: each a device of its own, all given the same WGSL."""

from __future__ import annotations

import re
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import wgpu
from wgpu import BufferBindingType, BufferUsage

from ...errors import DeviceLostError, DeviceNotAvailableError, OptirsError, ShaderError
from ...runtime.backend import (
    ANY_ITERATIONS,
    AdapterInfo,
    AllocationFailed,
    Backend,
    BoundBuffer,
    Capabilities,
    Command,
)
from ...runtime.failures import consequence, independent, launch_error, lost_message
from ...runtime.products import ask_for_quads, note_quads, tile_class
from ...runtime.stats import Stats
from ...runtime.subgroups import reduces_by_subgroups
from ...runtime.timing import GPU_TIMESTAMPS, WALL_TIME, Timed, Work
from ...runtime.tuner.attaching import attach_choices
from ..compiler_pool import CompilerPool
from .commands import Copy, Recorded, Run, Upload, encoded, flattened, touched, work_of
from .packages import WgpuPackage
from .timestamps import Timestamps

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["WgpuBackend", "list_adapters", "open_backend", "open_through"]

_LLVMPIPE_ITERATIONS = 65_535
"""LP_MAX_TGSI_LOOP_ITERATIONS of Mesa's llvmpipe, after which its loops end."""

_USAGE = BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST

_BIND_GROUPS_KEPT = 4096
_UNIFORMS_KEPT = 4096


class _Pipeline(NamedTuple):
    pipeline: Any
    layout: Any


_wgpu = WgpuPackage(wgpu)

list_adapters = _wgpu.list_adapters


def open_backend(info: AdapterInfo) -> WgpuBackend:
    """Open an adapter that `list_adapters` gave; see `open_through`."""
    return open_through(_wgpu, info)


def open_through(package: WgpuPackage, info: AdapterInfo) -> WgpuBackend:
    """Open an adapter that the package's `list_adapters` gave.

    Raises:
        DeviceNotAvailableError: the adapter refuses, or this process was forked from one that used the package.
    """
    if package.forks.reason:
        raise DeviceNotAvailableError(package.forks.reason)
    backend = WgpuBackend(package, info)
    counted = ask_for_quads(backend)
    if counted is not None:
        note_quads(backend, counted, backend.read(counted, 0, 4))
    attach_choices(backend)
    return backend


_PIECE = 32
"""Commands of a replay that hardware gets at once: it computes them while the host encodes the next."""


class WgpuBackend(Backend):
    """One wgpu device. Bind groups, pipelines and parameter blocks are made once and cached."""

    def __init__(self, package: WgpuPackage, info: AdapterInfo) -> None:
        """Ask the adapter for a device with all of its limits that matter here."""
        self.info = info
        self._package = package
        self._wgpu = package.module
        adapter = package.adapters(info.name)[info.index]
        self.stats = Stats()
        limits = {
            name: adapter.limits[name]
            for name in (
                "max-buffer-size",
                "max-storage-buffer-binding-size",
                "max-storage-buffers-per-shader-stage",
                "max-compute-invocations-per-workgroup",
                "max-compute-workgroup-size-x",
                "max-compute-workgroup-storage-size",
                "max-compute-workgroups-per-dimension",
                "min-storage-buffer-offset-alignment",
            )
        }
        matrices, largest_subgroup = package.matrices(adapter)
        try:
            self._device: Any = package.request_device(adapter, limits)
        except self._wgpu.GPUError as error:
            raise DeviceNotAvailableError(f"{info} refused to open: {error}") from error
        self.capabilities = Capabilities(
            max_buffer_bytes=limits["max-buffer-size"],
            max_binding_bytes=limits["max-storage-buffer-binding-size"],
            max_storage_buffers=limits["max-storage-buffers-per-shader-stage"],
            offset_alignment=limits["min-storage-buffer-offset-alignment"],
            max_workgroups=limits["max-compute-workgroups-per-dimension"],
            features=info.features,
            max_invocations=min(
                limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"]
            ),
            max_workgroup_bytes=limits["max-compute-workgroup-storage-size"],
            max_iterations=_LLVMPIPE_ITERATIONS if info.software else ANY_ITERATIONS,
            tiles=tile_class(info),
            subgroups=reduces_by_subgroups(info),
            matrices=matrices,
            largest_subgroup=largest_subgroup,
        )
        self._loss = ""
        package.forks.add(self)
        self._pipelines: dict[Kernel, _Pipeline] = {}
        self._compilers = CompilerPool[_Pipeline]()
        self._bind_groups: OrderedDict[Any, Any] = OrderedDict()
        self._keys_of: dict[Any, set[Any]] = {}
        self._uniforms: OrderedDict[bytes, Any] = OrderedDict()
        self._freed: weakref.WeakSet[Any] = weakref.WeakSet()  # what somebody still names
        self._fence = self.allocate(4)
        self.clock = GPU_TIMESTAMPS if "timestamp-query" in self.capabilities.features else WALL_TIME
        self._timestamps: Timestamps | None = None

    def lose(self, why: str) -> None:
        """Every call from now on raises DeviceLostError with this message."""
        self.lost = True
        self._loss = why

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn wgpu's errors into ours."""
        if self.lost:
            raise DeviceLostError(self._loss)
        try:
            yield
        except self._wgpu.GPUError as error:
            message = str(error)
            if re.search(r"not enough memory|out of memory", message, re.IGNORECASE):
                raise AllocationFailed(message) from error
            if re.search(r"device is lost|device lost", message, re.IGNORECASE):
                self.lose(lost_message(self.info))
                raise DeviceLostError(self._loss) from error
            raise OptirsError(f"device '{self.info.name}' refused the work: {message}") from error

    def allocate(self, nbytes: int) -> Any:
        with self._errors():
            handle = self._device.create_buffer(size=nbytes, usage=_USAGE)
        # Held until it is freed: were it part of a garbage cycle, it would be finalized before it is given back.
        self._keys_of[handle] = set()
        return handle

    def free(self, handle: Any) -> None:
        for key in self._keys_of.pop(handle, ()):
            self._bind_groups.pop(key, None)
            for other, _, _ in key[1:-1]:
                if other in self._keys_of:
                    self._keys_of[other].discard(key)
        self._freed.add(handle)
        if not self.lost:
            handle.destroy()

    def _need(self, handle: Any) -> None:
        """Refuse memory that was freed: wgpu-native ends the process where it is submitted."""
        if handle in self._freed:
            raise OptirsError(f"freed memory of device '{self.info.name}' is used")

    def write(self, handle: Any, offset: int, data: memoryview) -> None:
        self._need(handle)
        with self._errors():
            self._device.queue.write_buffer(handle, offset, data)

    def read(self, handle: Any, offset: int, nbytes: int) -> memoryview:
        self._need(handle)
        with self._errors():
            return memoryview(self._device.queue.read_buffer(handle, offset, nbytes)).cast("B")

    def read_async(self, handle: Any, offset: int, nbytes: int) -> Awaitable[memoryview]:
        self._need(handle)
        with self._errors():
            staging = self._device.create_buffer(size=nbytes, usage=BufferUsage.MAP_READ | BufferUsage.COPY_DST)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(handle, offset, staging, 0, nbytes)
            self._device.queue.submit([encoder.finish()])
        return self._map(staging)

    async def _map(self, staging: Any) -> memoryview:
        with self._errors():
            await staging.map_async("READ")
            data = memoryview(bytearray(staging.read_mapped()))
            staging.unmap()
            staging.destroy()
            return data

    def upload(self, handle: Any, offset: int, data: bytes) -> Command:
        return Upload(handle, offset, data)

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        pipeline = self._pipelines.get(kernel) or self._compile(kernel)
        key = (kernel, *buffers, parameters)
        group = self._bind_groups.get(key)
        if group is None:
            group = self._make_bind_group(key, pipeline, buffers, parameters)
        else:
            self._bind_groups.move_to_end(key)
        return Run(pipeline.pipeline, group, grid, key)

    def expect(self, kernel: Kernel) -> None:
        if kernel not in self._pipelines and kernel not in self._compilers:
            self._compilers.start(kernel, partial(self._create_pipeline, kernel.name, *self._source_of(kernel)))

    def _source_of(self, kernel: Kernel) -> tuple[str, list[dict[str, Any]]]:
        """Return a kernel's WGSL, and the entries of its bind group layout; a kernel itself belongs to one thread."""
        kinds = [
            BufferBindingType.storage if binding.writes else BufferBindingType.read_only_storage
            for binding in kernel.bindings
        ]
        if kernel.parameters:
            kinds.append(BufferBindingType.uniform)
        entries = [
            {"binding": number, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for number, kind in enumerate(kinds)
        ]
        return kernel.wgsl_for(self._package.host, self.info.software), entries

    def _compile(self, kernel: Kernel) -> _Pipeline:
        pipeline = self._compilers.take(kernel) or self._create_pipeline(kernel.name, *self._source_of(kernel))
        self.stats.pipelines += 1
        self._pipelines[kernel] = pipeline
        return pipeline

    def _create_pipeline(self, name: str, code: str, entries: Sequence[dict[str, Any]]) -> _Pipeline:
        """Compile the WGSL of a kernel of this name. Callable in any thread."""
        with self._errors():
            try:
                shader = self._device.create_shader_module(label=name, code=code)
                layout = self._device.create_bind_group_layout(entries=[*entries])
                pipeline = self._device.create_compute_pipeline(
                    layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={"module": shader, "entry_point": "main"},
                )
            except self._wgpu.GPUValidationError as error:
                if "lost" in str(error):
                    raise
                raise ShaderError(f"refused by the device's compiler: {error}", file=name, line=1, column=1) from error
        return _Pipeline(pipeline, layout)

    def _make_bind_group(self, key: Any, pipeline: _Pipeline, buffers: Sequence[BoundBuffer], parameters: bytes) -> Any:
        entries = [
            {"binding": number, "resource": {"buffer": handle, "offset": offset, "size": size}}
            for number, (handle, offset, size) in enumerate(buffers)
        ]
        for handle, _, _ in buffers:
            self._need(handle)
        with self._errors():
            if parameters:
                resource = {"buffer": self._uniform(parameters), "offset": 0, "size": len(parameters)}
                entries.append({"binding": len(entries), "resource": resource})
            group = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
        self.stats.bind_groups += 1
        self._bind_groups[key] = group
        for handle, _, _ in buffers:
            self._keys_of[handle].add(key)
        if len(self._bind_groups) > _BIND_GROUPS_KEPT:
            oldest, _ = self._bind_groups.popitem(last=False)
            for handle, _, _ in oldest[1:-1]:
                self._keys_of[handle].discard(oldest)
        return group

    def _uniform(self, parameters: bytes) -> Any:
        """A buffer that holds these parameters; equal ones are shared. Bind groups keep it alive."""
        buffer = self._uniforms.get(parameters)
        if buffer is None:
            buffer = self._device.create_buffer_with_data(data=parameters, usage=BufferUsage.UNIFORM)
            self.stats.bytes_up += len(parameters)
            self._uniforms[parameters] = buffer
            if len(self._uniforms) > _UNIFORMS_KEPT:
                self._uniforms.popitem(last=False)
        return buffer

    def copy(self, source: BoundBuffer, target: BoundBuffer) -> Command:
        return Copy(source[0], source[1], target[0], target[1], source[2])

    def record(self, commands: Sequence[Command]) -> Command:
        # WebGPU has no bundles of compute commands; what is spared is the binding.
        return Recorded(commands)

    def submit(self, commands: Sequence[Command]) -> None:
        with self._errors():
            if self._freed:
                self._check_freed(commands)
            try:
                self._send(commands)
            except self._wgpu.GPUValidationError as error:
                if "lost" in str(error):
                    raise
                self._send_independent(commands, error)

    def _send(self, commands: Sequence[Command]) -> None:
        """Submit commands. What wgpu refuses is refused before anything runs."""
        recordings = [command for command in commands if isinstance(command, Recorded)]
        is_new = any(isinstance(command, Run | Copy) for command in commands)
        is_valid = not is_new and all(recording.is_valid for recording in recordings)
        work = []
        for command in flattened(commands):
            if isinstance(command, Upload):
                self._device.queue.write_buffer(*command)
            else:
                work.append(command)
        piece = _PIECE if is_valid and self.capabilities.tiles != "software" else max(1, len(work))
        for first in range(0, len(work), piece):
            runs = encoded(self._device, work[first : first + piece])
            self._device.queue.submit([runs])
        for recording in recordings:
            recording.is_valid = True

    def _check_freed(self, commands: Sequence[Command]) -> None:
        """To submit what names memory that was freed ends the process: wgpu-native raises no errors there."""
        if any(map(self._names_freed, flattened(commands))):
            self._send_independent(commands, "it refers to freed memory")

    def _names_freed(self, command: Run | Copy | Upload) -> bool:
        needs, writes = touched(command)
        return any(handle in self._freed for handle in (*needs, *writes))

    def _is_wrong(self, command: Run | Copy | Upload) -> bool:
        if self._names_freed(command):
            return True
        if not isinstance(command, Upload):
            try:
                encoded(self._device, [command])
            except self._wgpu.GPUValidationError:
                return True
        return False

    def _send_independent(self, commands: Sequence[Command], why: object) -> NoReturn:
        """Nothing of it has run: send what does not need the operation that is wrong, and raise whose fault it is."""
        every = flattened(commands)
        wrong = [part for part in every if self._is_wrong(part)]
        spoiled: set[Any] = set()
        sent = []
        for part in independent(every, spoiled, touched):
            if part in wrong:
                spoiled.update(touched(part)[1])
            else:
                sent.append(part)
        self._send(sent)
        left_out = consequence(len(every) - len(sent) - 1)
        raise launch_error(self, commands, wrong[0] if wrong else None, why, left_out)

    def synchronize(self) -> None:
        # A read waits for all that was submitted; wgpu-py 0.32's own call for this does not match its library.
        self.read(self._fence, 0, 4)

    async def synchronize_async(self) -> None:
        await self.read_async(self._fence, 0, 4)

    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        return [(part, work_of(part)) for part in flattened((command,))]

    def submit_timed(self, commands: Sequence[Command]) -> Any:
        if self.clock == WALL_TIME:
            return super().submit_timed(commands)
        with self._errors():
            if self._freed:
                self._check_freed(commands)
            self._timestamps = self._timestamps or Timestamps(
                self._device, self._package.seconds_per_tick(self._device)
            )
            timed = []
            for command in flattened(commands):
                work = work_of(command)
                if work is None:
                    self._device.queue.write_buffer(*command)
                else:
                    timed.append((command, work))
            return self._timestamps.submit(timed)

    def times(self, ticket: Any) -> list[Timed]:
        if self._timestamps is None or self.clock == WALL_TIME:
            return super().times(ticket)
        with self._errors():
            return self._timestamps.times(ticket)

    def close(self) -> None:
        self._compilers.close()
        self._timestamps = None
        self._bind_groups.clear()
        self._keys_of.clear()
        self._uniforms.clear()
        self._pipelines.clear()
        if not self.lost:
            self.lose(f"device '{self.info.name}' was closed")
            self._device.destroy()
