"""The records of a profile: runs of kernels, spans of the host, steps, the bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["Bottleneck", "HostSpan", "KernelRun", "Step"]


class KernelRun(NamedTuple):
    """One run of a kernel, or one copy within a device.

    Attributes:
        name: the kernel's; "copy" for a copy; where a device cannot tell the kernels of a submit apart, how many.
        start: seconds from the beginning of the profile.
        end: likewise. Kernels of one device do not overlap.
        bytes_read: of the views that it reads; an upper bound where it reads only parts of them.
        bytes_written: of the views that it writes, likewise.
        operations: arithmetic operations; None where they are not known.
        grid: workgroups along each dimension.
        parameters: the kernel's, by name.
        device: where it ran.
        submit: the number of the submit that it was part of, from 0.
    """

    name: str
    start: float
    end: float
    bytes_read: int
    bytes_written: int
    operations: int | None
    grid: tuple[int, int, int]
    parameters: dict[str, Any]
    device: str
    submit: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


class HostSpan(NamedTuple):
    """A span of time in which the host did one kind of work.

    Attributes:
        kind: "submit" (encoding included), "replay" (a submit with a recorded program), "compile", "read" and "write"
            (bytes from and to a device; a read waits for the kernels before it), "wait", "profiler" (reading what was
            measured), or "python": everything else.
        start: seconds from the beginning of the profile.
        end: likewise.
        device: the device that it was for; "" for "python".
        details: bytes, kernels, the name of what was compiled.
    """

    kind: str
    start: float
    end: float
    device: str = ""
    details: Mapping[str, Any] = MappingProxyType({})

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class Step(NamedTuple):
    """A step, from one call of `Profile.step`, or the beginning, to the next.

    Attributes:
        number: from 0.
        start: seconds from the beginning of the profile.
        end: likewise; the device had done all that the step enqueued.
    """

    number: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took, waiting for the device included."""
        return self.end - self.start


class Bottleneck(NamedTuple):
    """The kind of work that took most of a profile's time.

    Attributes:
        name: "launch", "bandwidth", "arithmetic" or "transfer": the one with the most seconds.
        seconds: of each of these. Together they are the time of the profile, without what the profiler took.
        reason: the figures behind it, and what to do, in a sentence.
    """

    name: str
    seconds: dict[str, float]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"
