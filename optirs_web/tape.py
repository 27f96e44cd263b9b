"""GradientTape: gradients of results computed within a block, with respect to given tensors."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from .autograd import gradients, no_grad
from .errors import UnsupportedError
from .runtime.dtypes import FLOAT32
from .runtime.modes import Block, Mode
from .tensors import Tensor

__all__ = ["GradientTape"]

_tape: Mode[None] = Mode("tape", None)


class GradientTape(Block[None]):
    """A block whose results can be differentiated with respect to given tensors, without `backward`.

    The gradients of a tape inside another one, of the same thread or task, can be differentiated by the outer one,
    for second derivatives.

    Args:
        persistent: `gradient` may be called more than once.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([3.0], device="cpu")
        >>> with ow.GradientTape() as outer, ow.GradientTape() as inner:
        ...     outer.watch(x)
        ...     inner.watch(x)
        ...     y = (x * x * x).sum()
        ...     dy = inner.gradient(y, [x])[0]
        >>> dy.tolist(), outer.gradient(dy, [x])[0].tolist()
        ([27.0], [18.0])
    """

    def __init__(self, persistent: bool = False) -> None:
        super().__init__(_tape, None)
        self._persistent = persistent
        self._is_used = False
        self._watched: list[Tensor] = []

    def __enter__(self) -> GradientTape:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        for tensor in self._watched:
            tensor.requires_grad = False

    def _again(self) -> GradientTape:
        return GradientTape(self._persistent)

    def watch(self, *tensors: Tensor) -> None:
        """Record operations on these tensors too, while the tape is open. Parameters are always watched.

        Raises:
            UnsupportedError: a tensor is not float32.
        """
        for tensor in tensors:
            if tensor.dtype is not FLOAT32:
                raise UnsupportedError(f"only float32 tensors have gradients, not {tensor.dtype}")
            if not tensor.requires_grad:
                tensor.requires_grad = True
                self._watched.append(tensor)

    def stop_recording(self) -> Block[bool]:
        """Exclude the operations in the block from all tapes."""
        return no_grad()

    def gradient(
        self, target: Tensor, sources: Tensor | Iterable[Tensor], output_gradient: Any = None
    ) -> list[Tensor | None]:
        """The gradient of `target` with respect to each source; None for one that it does not depend on.

        A single tensor as `sources` counts as a list of one.

        Raises:
            UnsupportedError: called a second time on a tape that is not persistent.
            ShapeError: `target` has more than one element and no `output_gradient` was passed.
        """
        if self._is_used and not self._persistent:
            raise UnsupportedError("gradient() was called already; use GradientTape(persistent=True)")
        self._is_used = True
        open_tapes = list(_tape.blocks())
        is_watched = any(tape is not self for tape in open_tapes) or (self._persistent and self in open_tapes)
        return gradients(
            target, sources, output_gradient, retain_graph=self._persistent or is_watched, create_graph=is_watched
        )
