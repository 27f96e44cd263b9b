"""Checks that read values back, to find indices that are out of range."""

from __future__ import annotations

from .errors import ShapeError
from .runtime.modes import Block, Mode
from .tensor_class import Tensor

__all__ = ["check_indices", "debug", "is_debugging", "set_debug"]

_in_block: Mode[bool | None] = Mode("debug", None)
_default = False


def debug(enabled: bool = True) -> Block[bool | None]:
    """Read indices in tensors back and check them, within a ``with`` block or a decorated function.

    Elsewhere a class or index out of range gives NaN (0 for integers), as a device cannot raise an error: in
    `cross_entropy`, `nll_loss`, `embedding`, `take`, `gather`, `scatter_add`, brackets and `one_hot`. In the block it
    is a `ShapeError` with the operation, the index, its position and the range. Each such operation waits for the
    device, and compiled steps run operation by operation instead of being replayed. It applies to its own thread or
    asyncio task; see `set_debug` for all.

    Args:
        enabled: False turns the checks off in the block.

    Example:
        >>> import optirs_web as ow
        >>> logits = ow.zeros((2, 3), device="cpu")
        >>> with ow.debug():
        ...     ow.cross_entropy(logits, ow.tensor([1, 3], device="cpu"))
        Traceback (most recent call last):
        optirs_web.errors.ShapeError: cross_entropy: 3 at position (1,) is none of the 3 classes, 0 to 2
    """
    return Block(_in_block, enabled)


def set_debug(enabled: bool) -> None:
    """Turn the checks of `debug` on or off outside of such blocks, in all threads.

    Example:
        >>> import optirs_web as ow
        >>> ow.set_debug(True)
        >>> ow.set_debug(False)
    """
    global _default
    _default = enabled


def is_debugging() -> bool:
    """Return whether indices are checked now, in this thread or task."""
    value = _in_block.setting().value
    return _default if value is None else bool(value)


def check_indices(
    operation: str, index: Tensor, count: int, *, wraps: bool = False, ignored: int | None = None, what: str = "indices"
) -> None:
    """Read indices, if `is_debugging()`, and check that they are from 0 (-count, if it wraps) to count - 1.

    Raises:
        ShapeError: one is not; the message has the first such value, its position and the range.
    """
    if not is_debugging() or index.device.recording is not None or not index.size:
        return
    lowest = -count if wraps else 0
    for offset, value in enumerate(index.reshape(-1).tolist()):
        if not lowest <= value < count and value != ignored:
            position = _position(offset, index.shape)
            raise ShapeError(
                f"{operation}: {value} at position {position} is none of the {count} {what}, {lowest} to {count - 1}"
            )


def _position(offset: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    position: list[int] = []
    for size in reversed(shape):
        offset, index = divmod(offset, size)
        position.insert(0, index)
    return tuple(position)
