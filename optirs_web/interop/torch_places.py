"""torch parameters that share the memory of a parameter of ours, on `cpu` or `cuda`.

A torch parameter stays the same object; its data becomes a view of our parameter's memory, in an arena of the
optimizer. So a step copies no parameters. Where the torch parameter is given other data (``p.data = ...``),
`SharedParameter.synchronize` notices the other address, and copies the values back before they are used.
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

__all__ = ["SharedParameter", "check", "check_apart", "collect_grads", "remember", "shared_parameter"]

_USE_AUTOCAST = "; keep the parameters in float32 and run the model under torch.autocast"
_OTHER_TYPES = {
    "torch.float16": _USE_AUTOCAST,
    "torch.bfloat16": _USE_AUTOCAST,
    "torch.float64": "; call model.float()",
    "torch.complex64": "; train torch.view_as_real(parameter)",
    "torch.complex128": "; train torch.view_as_real(parameter)",
}
_shared_parameters: Any = None  # by torch parameter, as long as it lives


def _torch() -> Any:
    return importlib.import_module("torch")


def check(theirs: Any, name: str) -> None:
    """Check that a torch parameter can be stored in memory of ours.

    Raises:
        UnsupportedError: it cannot; the message says why, and what to do.
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


class SharedParameter:
    """A torch parameter and the parameter of ours whose memory it shares.

    Attributes:
        ours: our parameter.
    """

    def __init__(self, theirs: Any, name: str) -> None:
        """Copy the values into a parameter of ours, and make the torch parameter a view of it.

        Raises:
            UnsupportedError: the torch parameter is of a kind that cannot be one.
        """
        check(theirs, name)
        values = memory.as_ours(theirs)
        self.ours = Parameter(values, device=None if isinstance(values, Tensor) else "cpu")
        self._id = id(theirs)
        self._attach(theirs)

    @classmethod
    def over(cls, theirs: Any, ours: Parameter) -> SharedParameter:
        """Make a torch parameter a view of an existing parameter of ours, with its values."""
        shared = cls.__new__(cls)
        shared.ours, shared._id = ours, id(theirs)
        shared._attach(theirs)
        return shared

    def _attach(self, theirs: Any) -> None:
        self._buffer = self.ours.view.buffer
        self._grad_view: View | None = None
        memory.give(self.ours.device)  # a copy that has moved ours may not have run yet
        self.data = memory.shown(self.ours) if self.ours.size else theirs.detach().new_empty(self.ours.shape)
        theirs.data = self.data
        self._address = self.data.data_ptr()

    def synchronize(self, theirs: Any, name: str) -> None:
        """Make both parameters share memory again, with the values of the torch parameter, if they do not.

        Raises:
            UnsupportedError: the torch parameter has become one that cannot be shared, has another shape, or is
                another object.
        """
        if id(theirs) != self._id:
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
        """A torch tensor over the memory of our gradient."""
        if self._grad_view is None:
            slot, size = self.ours._home, self.ours.dtype.nbytes(self.ours.size)
            if slot is not None:
                self._grad_view = slot.grad_view()
            else:
                self._grad_view = View(self.ours.device.allocate_zeroed(max(4, size)), 0, size)
                self.ours._grad_view = self._grad_view
            memory.give(self.ours.device)
            self._as_ours = Tensor(self._grad_view, self.ours.shape, FLOAT32)
            self._grad: Any = memory.shown(self._as_ours) if self.ours.size else self.data.new_empty(self.ours.shape)
        return self._grad

    def use_grad(self) -> None:
        """Set our parameter's gradient to the tensor over that memory."""
        self.ours._grad = self._as_ours

    def share_grad(self, theirs: Any) -> None:
        """Make the torch parameter's gradient, which is zero, a view of ours, so that autograd adds to it there.

        A gradient that is part of a larger tensor, as DistributedDataParallel's, is left alone.
        """
        grad = theirs.grad
        if grad is None or grad.layout is not _torch().strided or grad.dtype is not self.data.dtype:
            return
        if grad.untyped_storage().nbytes() == grad.nbytes and grad.data_ptr() != self.grad.data_ptr():
            self.grad.zero_()
            grad.data = self.grad


def collect_grads(shared_params: Iterable[SharedParameter], params: Iterable[Any]) -> None:
    """Set our gradients to those of the torch parameters: those in other memory are copied.

    Raises:
        UnsupportedError: a sparse gradient has more than one sparse axis.
    """
    sources, targets = [], []
    for shared, theirs in zip(shared_params, params, strict=True):
        grad = theirs.grad
        if grad is None:
            set_grad(shared.ours, None)
        elif grad.is_sparse:
            set_grad(shared.ours, _rows(grad, shared.ours))
        else:
            target = shared.grad
            if target.data_ptr() != grad.data_ptr() or not grad.is_contiguous():
                sources.append(grad.detach())
                targets.append(target)
            shared.use_grad()
    if targets:
        memory.give(shared.ours.device)
        _torch()._foreach_copy_(targets, _apart(sources, targets))
        shared.ours.device.stats.bytes_up += sum(target.nbytes for target in targets)
        memory.take(shared.ours.device)


def _apart(sources: list[Any], targets: list[Any]) -> list[Any]:
    """Return the sources, with copies of those that may overlap a target, as gradients exchanged by two parameters."""
    starts = [target.data_ptr() for target in targets]
    lowest, highest = min(starts), max(starts)
    end = highest + targets[starts.index(highest)].nbytes
    return [source.clone() if lowest <= source.data_ptr() < end else source for source in sources]


def _rows(grad: Any, ours: Parameter) -> SparseRows:
    if grad.sparse_dim() != 1:
        raise UnsupportedError(f"a sparse gradient has {grad.sparse_dim()} sparse axes; rows alone can be sparse")
    indices = grad._indices()[0].to(_torch().int32)
    return SparseRows(memory.as_ours(indices), memory.as_ours(grad._values()), ours.shape, device=ours.device)


def check_apart(named: Iterable[tuple[Any, str]]) -> None:
    """Check that no parameters share memory, as each is moved to memory of its own.

    Raises:
        UnsupportedError: two of them do.
    """
    spans = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name) for tensor, name in named if tensor.nbytes
    )
    for (_, end, name), (start, _, other) in itertools.pairwise(spans):
        if start < end:
            raise UnsupportedError(
                f"{name} and {other} share memory, and would not when they are moved: tie weights by using one "
                "torch.nn.Parameter in both modules"
            )


def shared_parameter(theirs: Any, name: str) -> SharedParameter:
    """Return the `SharedParameter` of a torch parameter, which all optimizers use."""
    shared = None if _shared_parameters is None else _shared_parameters.get(theirs)
    if shared is None:
        shared = SharedParameter(theirs, name)
        remember(theirs, shared)
    shared.synchronize(theirs, name)
    result: SharedParameter = shared
    return result


def remember(theirs: Any, shared: SharedParameter) -> None:
    """Register the result of `shared_parameter` for a torch parameter."""
    global _shared_parameters
    if _shared_parameters is None:
        _shared_parameters = importlib.import_module("torch.utils.weak").WeakTensorKeyDictionary()
    _shared_parameters[theirs] = shared
