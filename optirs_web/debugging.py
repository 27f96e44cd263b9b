"""Checks that read values back: which indices name nothing, and where."""

from __future__ import annotations

from .errors import ShapeError
from .runtime.modes import Block, Mode
from .tensors import Tensor

__all__ = ["check_indices", "debug", "is_debugging", "set_debug"]

_in_block: Mode[bool | None] = Mode("debug", None)
_elsewhere = False


def debug(enabled: bool = True) -> Block[bool | None]:
    """A ``with`` block, or a decorator, in which indices in tensors are read back and checked.

    Elsewhere a class or index that names nothing gives NaN (0 for integers), since a device cannot refuse it: so for
    `cross_entropy`, `nll_loss`, `embedding`, `take`, `gather`, `scatter_add`, brackets and `one_hot`. In the block it
    is a `ShapeError` that names the operation, the index, its position and how many there are. Each such operation
    waits for the device, and compiled steps run operation by operation instead of being replayed. It holds for the
    thread or asyncio task that it is in; see `set_debug` for all.

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
    """Turn the checks of `debug` on or off wherever no such block says otherwise, in all threads.

    Example:
        >>> import optirs_web as ow
        >>> ow.set_debug(True)
        >>> ow.set_debug(False)
    """
    global _elsewhere
    _elsewhere = enabled


def is_debugging() -> bool:
    """Values are checked here."""
    value = _in_block.setting().value
    return _elsewhere if value is None else bool(value)


def check_indices(
    operation: str, index: Tensor, count: int, *, wraps: bool = False, ignored: int | None = None, what: str = "indices"
) -> None:
    """Where values are checked, read indices and refuse those not from 0 (-count, if it wraps) to count - 1.

    Raises:
        ShapeError: the message names the first such value, its position and the range.
    """
    if not is_debugging() or index.device.recording is not None or not index.size:
        return
    lowest = -count if wraps else 0
    for place, value in enumerate(index.reshape(-1).tolist()):
        if not lowest <= value < count and value != ignored:
            position = _position(place, index.shape)
            raise ShapeError(
                f"{operation}: {value} at position {position} is none of the {count} {what}, {lowest} to {count - 1}"
            )


def _position(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    position: list[int] = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        position.insert(0, at)
    return tuple(position)
