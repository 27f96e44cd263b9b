"""torch parameters whose memory is that of a parameter of ours, on `cpu` or `cuda`: what either writes, both have.

A torch parameter stays the object that it is; its data becomes a view of the place where ours lies, in an arena of the
optimizer. So a step copies no parameters. Whoever gives the torch parameter other data (``p.data = ...``) takes it out
of that place: `Place.bring` sees it by the address, and copies the values back in before they are used.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable
from typing import Any

from ..autograd import set_grad
from ..errors import UnsupportedError
from ..runtime.buffer import View
from ..runtime.dtypes import FLOAT32
from ..sparse import SparseRows
from ..tensors import Parameter, Tensor
from . import torch_memory as memory

__all__ = ["Place", "bring_grads", "check", "check_apart", "place_of", "remember"]

_HALVES = "; keep the parameters in float32 and run the model under torch.autocast"
_OTHER_TYPES = {
    "torch.float16": _HALVES,
    "torch.bfloat16": _HALVES,
    "torch.float64": "; call model.float()",
    "torch.complex64": "; train torch.view_as_real(parameter)",
    "torch.complex128": "; train torch.view_as_real(parameter)",
}
_places: Any = None  # by torch parameter, as long as it lives


def _torch() -> Any:
    return importlib.import_module("torch")


def check(theirs: Any, name: str) -> None:
    """Refuse a torch parameter that cannot lie in memory of ours.

    Raises:
        UnsupportedError: the message says why, and what to do.
    """
    torch = _torch()
    if isinstance(theirs, torch.nn.parameter.UninitializedTensorMixin):
        raise UnsupportedError(f"{name} has no shape yet: run the model once before the optimizer is made")
    if theirs.is_meta:
        raise UnsupportedError(f"{name} is a meta tensor, without values: give the model some (to_empty, a checkpoint)")
    if theirs.layout is not torch.strided:
        raise UnsupportedError(f"{name} is a tensor of layout {theirs.layout}; parameters are dense")
    if theirs.device.type != "cpu" and not memory.is_on_gpu(theirs):
        raise UnsupportedError(
            f"{name} is on {theirs.device}; optirs_web.interop.torch steps parameters in CPU memory or on an "
            "NVIDIA GPU: call model.cpu() before the optimizer is made, or use torch's optimizer"
        )
    if theirs.dtype is not torch.float32:
        raise UnsupportedError(
            f"{name} is of {theirs.dtype}; float32 is needed{_OTHER_TYPES.get(str(theirs.dtype), '')}"
        )
    if type(theirs.detach()) is not torch.Tensor:
        raise UnsupportedError(f"{name} is a {type(theirs.detach()).__name__}; parameters are plain tensors")
    if theirs.is_shared() and not memory.is_on_gpu(theirs):  # which torch says of all memory there
        raise UnsupportedError(f"{name} is in memory shared by processes, and moving it would end that")


class Place:
    """Where one torch parameter lies.

    Attributes:
        ours: the parameter whose memory it is.
    """

    def __init__(self, theirs: Any, name: str) -> None:
        """Copy the values, and have the torch parameter lie where the copy does.

        Raises:
            UnsupportedError: it is of a kind that cannot.
        """
        check(theirs, name)
        values = memory.as_ours(theirs)
        self.ours = Parameter(values, device=None if isinstance(values, Tensor) else "cpu")
        self._of = id(theirs)
        self._attach(theirs)

    @classmethod
    def over(cls, theirs: Any, ours: Parameter) -> Place:
        """Have a torch parameter lie where a parameter of ours does already, and have its values."""
        place = cls.__new__(cls)
        place.ours, place._of = ours, id(theirs)
        place._attach(theirs)
        return place

    def _attach(self, theirs: Any) -> None:
        self._buffer = self.ours.view.buffer
        self._grad_view: View | None = None
        memory.give(self.ours.device)  # what has moved ours may still have to run
        self.data = memory.shown(self.ours) if self.ours.size else theirs.detach().new_empty(self.ours.shape)
        theirs.data = self.data
        self._address = self.data.data_ptr()

    def bring(self, theirs: Any, name: str) -> None:
        """See to it that both have one memory, with the values that the torch parameter has.

        Raises:
            UnsupportedError: the torch parameter has become one that cannot, has another shape, or is another one.
        """
        if id(theirs) != self._of:
            raise UnsupportedError(
                f"{name} is a different parameter: those in param_groups cannot be replaced; make a new optimizer"
            )
        is_there = theirs.data_ptr() == self._address and theirs.is_contiguous()
        if not is_there or theirs.shape != self.data.shape or theirs.dtype is not self.data.dtype:
            check(theirs, name)
            if theirs.shape != self.data.shape:
                raise UnsupportedError(
                    f"{name} had the shape {tuple(self.data.shape)} and has {tuple(theirs.shape)}: make a new optimizer"
                )
            memory.give(self.ours.device)
            values = theirs.detach().clone()  # which may be the same memory, transposed
            if self.ours.view.buffer is not self._buffer:
                self._attach(theirs)
            self.data.copy_(values)
            self.ours.device.stats.bytes_up += 4 * self.ours.size
            self.ours._version += 1
            theirs.data = self.data
        elif self.ours.view.buffer is not self._buffer:  # an optimizer has moved it into an arena
            self._attach(theirs)

    @property
    def grad(self) -> Any:
        """A torch tensor over the place of the gradient."""
        if self._grad_view is None:
            home, size = self.ours._home, self.ours.dtype.nbytes(self.ours.size)
            if home is not None:
                self._grad_view = home.grad_view()
            else:
                self._grad_view = View(self.ours.device.allocate_zeroed(max(4, size)), 0, size)
                self.ours._grad_place = self._grad_view
            memory.give(self.ours.device)
            self._as_ours = Tensor(self._grad_view, self.ours.shape, FLOAT32)
            self._grad: Any = memory.shown(self._as_ours) if self.ours.size else self.data.new_empty(self.ours.shape)
        return self._grad

    def have_grad(self) -> None:
        """What lies in the place of the gradient is the gradient."""
        self.ours._grad = self._as_ours

    def share_grad(self, theirs: Any) -> None:
        """Have the gradient of the torch parameter, which is zero, lie where ours does: autograd adds to it there.

        One that is part of a larger tensor, as DistributedDataParallel's, stays where it is.
        """
        grad = theirs.grad
        if grad is None or grad.layout is not _torch().strided or grad.dtype is not self.data.dtype:
            return
        if grad.untyped_storage().nbytes() == grad.nbytes and grad.data_ptr() != self.grad.data_ptr():
            self.grad.zero_()
            grad.data = self.grad


def bring_grads(places: Iterable[Place], params: Iterable[Any]) -> None:
    """Take the gradients of the torch parameters: those that lie elsewhere are copied.

    Raises:
        UnsupportedError: a sparse gradient has more than one sparse axis.
    """
    sources, targets = [], []
    for place, theirs in zip(places, params, strict=True):
        grad = theirs.grad
        if grad is None:
            set_grad(place.ours, None)
        elif grad.is_sparse:
            set_grad(place.ours, _rows(grad, place.ours))
        else:
            target = place.grad
            if target.data_ptr() != grad.data_ptr() or not grad.is_contiguous():
                sources.append(grad.detach())
                targets.append(target)
            place.have_grad()
    if targets:
        memory.give(place.ours.device)
        _torch()._foreach_copy_(targets, _apart(sources, targets))
        place.ours.device.stats.bytes_up += sum(one.nbytes for one in targets)
        memory.take(place.ours.device)


def _apart(sources: list[Any], targets: list[Any]) -> list[Any]:
    """The sources; copies of those that may lie in a target, as gradients that two parameters have exchanged."""
    starts = [one.data_ptr() for one in targets]
    first, last = min(starts), max(starts)
    end = last + targets[starts.index(last)].nbytes
    return [one.clone() if first <= one.data_ptr() < end else one for one in sources]


def _rows(grad: Any, ours: Parameter) -> SparseRows:
    if grad.sparse_dim() != 1:
        raise UnsupportedError(f"a sparse gradient has {grad.sparse_dim()} sparse axes; rows alone can be sparse")
    indices = grad._indices()[0].to(_torch().int32)
    return SparseRows(memory.as_ours(indices), memory.as_ours(grad._values()), ours.shape, device=ours.device)


def check_apart(named: Iterable[tuple[Any, str]]) -> None:
    """Refuse parameters that share memory: each is to have a place of its own.

    Raises:
        UnsupportedError: two of them do.
    """
    spans = sorted((one.data_ptr(), one.data_ptr() + one.nbytes, name) for one, name in named if one.nbytes)
    for (_, end, name), (start, _, other) in itertools.pairwise(spans):
        if start < end:
            raise UnsupportedError(
                f"{name} and {other} share memory, and would not when they are moved: tie weights by using one "
                "torch.nn.Parameter in both modules"
            )


def place_of(theirs: Any, name: str) -> Place:
    """The place of a torch parameter, which optimizers share."""
    known = None if _places is None else _places.get(theirs)
    if known is None:
        known = Place(theirs, name)
        remember(theirs, known)
    known.bring(theirs, name)
    found: Place = known
    return found


def remember(theirs: Any, place: Place) -> None:
    """Have `place_of` find it."""
    global _places
    if _places is None:
        _places = importlib.import_module("torch.utils.weak").WeakTensorKeyDictionary()
    _places[theirs] = place
