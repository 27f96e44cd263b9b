"""Gradients by name: what happened while a tape was open, differentiated with respect to what is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from .autograd import gradients, no_grad
from .errors import UnsupportedError
from .runtime.dtypes import FLOAT32
from .tensors import Tensor

__all__ = ["GradientTape"]

_open_tapes: list[GradientTape] = []


class GradientTape:
    """Gradients by name instead of by `backward`: of a result with respect to the sources asked for.

    A tape inside another one is differentiated by the outer one: so second derivatives are taken.

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
        self._persistent = persistent
        self._is_used = False
        self._watched: list[Tensor] = []

    def __enter__(self) -> GradientTape:
        _open_tapes.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _open_tapes.remove(self)
        for one in self._watched:
            one.requires_grad = False

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

    def stop_recording(self) -> AbstractContextManager[None]:
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
        is_watched = any(one is not self for one in _open_tapes) or (self._persistent and self in _open_tapes)
        return gradients(
            target, sources, output_gradient, retain_graph=self._persistent or is_watched, create_graph=is_watched
        )
