"""The error classes of this library. Each message says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "CheckpointError",
    "DeviceLimitError",
    "DeviceLostError",
    "DeviceNotAvailableError",
    "GradcheckError",
    "LaunchError",
    "NonFiniteError",
    "OptirsError",
    "OutOfDeviceMemoryError",
    "ShaderError",
    "ShapeError",
    "UnsupportedError",
]

_LONGEST = 60  # characters of what a message quotes


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that a user probably meant, whatever its capitals; "" if none is near.

    Example:
        >>> nearest("adanw", ["AdamW", "SGD"]), nearest("nope", ["AdamW", "SGD"])
        ('AdamW', '')
    """
    import difflib  # only where there is an error

    by_lower = {name_.lower(): name_ for name_ in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, 1)
    return by_lower[matches[0]] if matches else ""


def quoted(value: object) -> str:
    """Return a value of a file or a user for a message: a string in quotes, control characters escaped, and cut."""
    try:
        text = repr(value[: _LONGEST + 1] if isinstance(value, (str, bytes, list, tuple)) else value)
    except ValueError:  # Python prints no number of more than 4,300 digits
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class OptirsError(Exception):
    """The base of all errors of this library."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, so that an error of a worker process is raised again in its parent."""
        return Exception.__new__, (type(self), *self.args), vars(self)


class DeviceNotAvailableError(OptirsError, RuntimeError):
    """No such device here. The message lists what was probed and what to install."""


class OutOfDeviceMemoryError(OptirsError, MemoryError):
    """The device, or the limit set for it, has no room. All figures in bytes.

    Attributes:
        asked: the size of the allocation that failed.
        in_use: what this process held on the device at that moment.
        pooled: memory that was kept for reuse and could not be freed then.
        limit: the limit set by the user or reported by the device; None when neither is known.
        excess: the bytes to free so that it fits; or by how much it is larger than the whole limit. None when the
            limit is not exceeded.
    """

    def __init__(
        self, asked: int, in_use: int, limit: int | None, device: str, *, pooled: int = 0, note: str = ""
    ) -> None:
        """Compose the message from the request, the memory in use, the limit and remedies; `note` is appended."""
        self.asked = asked
        self.in_use = in_use
        self.pooled = pooled
        self.limit = limit
        self.excess: int | None = None
        bound = "an unknown device limit"
        if limit is not None:
            bound = f"a limit of {limit:,} bytes"
            room = limit if asked > limit else limit - in_use - pooled
            if asked > room:
                self.excess = asked - room
                bound += f", {self.excess:,} bytes too many" + " by itself" * (asked > limit)
        super().__init__(
            f"device '{device}' is out of memory: asked for {asked:,} bytes with {in_use:,} in use, {pooled:,} pooled "
            f"and {bound}. Free tensors, use a smaller batch, recompute activations "
            f"(optirs_web.checkpoint), or raise the limit (optirs_web.set_memory_limit).{note and ' ' + note}"
        )


class DeviceLostError(OptirsError, RuntimeError):
    """The device was lost (driver reset, unplugged, destroyed), and its buffers with it."""


class LaunchError(OptirsError, RuntimeError):
    """An operation failed on the device after it was enqueued. Raised when work is next submitted or waited for.

    Attributes:
        operation: the name of its kernel, "copy" or "upload"; None where that is unknown.
        step: its number, from 1, in the recorded program that it belongs to, if it does.
    """

    def __init__(self, message: str, operation: str | None = None, step: int | None = None) -> None:
        """Set the message and the attributes."""
        self.operation = operation
        self.step = step
        super().__init__(message)


class ShaderError(OptirsError, ValueError):
    """WGSL outside the subset, or wrong. The message begins with file:line:column.

    Attributes:
        file: the file as the user would name it.
        line: from 1.
        column: from 1.
    """

    def __init__(self, message: str, *, file: str, line: int, column: int) -> None:
        """Put file, line and column before the message."""
        self.file = file
        self.line = line
        self.column = column
        super().__init__(f"{file}:{line}:{column}: {message}")


class ShapeError(OptirsError, ValueError):
    """Shapes that do not fit together."""


class UnsupportedError(OptirsError, NotImplementedError):
    """An operation that this device, data type or version does not support."""


class DeviceLimitError(UnsupportedError):
    """A kernel exceeds a limit of a device: on the size of a binding, the number of buffers, or of workgroups.

    Attributes:
        kernel: its name.
        asked: the amount that it needs.
        limit: the amount that the device allows.
        device: the name of the device.
    """

    def __init__(self, kernel: str, asked: int, limit: int, device: str, what: str) -> None:
        """Compose the message; `what` is the unit of the amounts, such as "bytes of one buffer"."""
        self.kernel, self.asked, self.limit, self.device = kernel, asked, limit, device
        super().__init__(
            f"kernel '{kernel}' needs {asked:,} {what} at once; '{device}' allows a kernel at most {limit:,}. Split "
            'the tensor, or use another device or optirs_web.placement("auto")'
        )


class CheckpointError(OptirsError, ValueError):
    """A file that is no checkpoint of ours, is damaged, or belongs to another model."""


class GradcheckError(OptirsError, RuntimeError):
    """A gradient rule that differs from difference quotients of the function's values."""


class NonFiniteError(OptirsError, FloatingPointError):
    """Gradients or parameters are NaN or infinite."""
