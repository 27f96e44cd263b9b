"""Gradients by name: what happened while a tape was open, differentiated with respect to what is asked for."""

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
    """Gradients by name instead of by `backward`: of a result with respect to the sources asked for.

    A tape inside another one of the same thread or task is differentiated by the outer one: so second derivatives are
    taken.

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
        for one in self._watched:
            one.requires_grad = False

    def _again(self) -> GradientTape:
        return GradientTape(self._persistent)

    def watch(self, *tensors: Tensor) -> None:
        """Differentiate with respect to these too, while the tape is open. Parameters are watched always.

        Raises:
            UnsupportedError: a tensor is not float32.
        """
        for one in tensors:
            if one.dtype is not FLOAT32:
                raise UnsupportedError(f"only float32 tensors have gradients, not {one.dtype}")
            if not one.requires_grad:
                one.requires_grad = True
                self._watched.append(one)

    def stop_recording(self) -> Block[bool]:
        """Operations in the block are constants to every tape."""
        return no_grad()

    def gradient(
        self, target: Tensor, sources: Tensor | Iterable[Tensor], output_gradient: Any = None
    ) -> list[Tensor | None]:
        """The gradient of `target` with respect to each source; None for one that it does not depend on.

        A single tensor as `sources` counts as a list of one.

        Raises:
            UnsupportedError: called a second time on a tape that is not persistent.
            ShapeError: `target` has more than one element and no `output_gradient` was given.
        """
        if self._is_used and not self._persistent:
            raise UnsupportedError("gradient() was called already; use GradientTape(persistent=True)")
        self._is_used = True
        open_tapes = list(_tape.blocks())
        is_watched = any(one is not self for one in open_tapes) or (self._persistent and self in open_tapes)
        return gradients(
            target, sources, output_gradient, retain_graph=self._persistent or is_watched, create_graph=is_watched
        )
