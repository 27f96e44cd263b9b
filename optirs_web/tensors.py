"""Tensors: arrays on a device, with the history by which gradients are computed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .errors import ShapeError, UnsupportedError
from .hostdata import HostData, host_data
from .recovery import KeepsValues, keep_track
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.dtypes import FLOAT32, DType, DTypeLike, dtype as dtype_of
from .runtime.flags import flag_changed, flag_used
from .runtime.registry import device as device_of
from .tensor_methods import TensorMethods, call_operation
from .tensor_values import TensorValues

if TYPE_CHECKING:
    from .runtime.arena import Home

__all__ = ["Edge", "Parameter", "Tensor", "Walk", "as_shape", "empty", "row_major_strides", "tensor"]


class Edge(NamedTuple):
    """An input of an operation, and the rule that computes its gradient from that of the result.

    The rule is called with that gradient and the result. `used` has the parameters whose values the operation used,
    with their versions.
    """

    source: Tensor
    rule: Callable[[Tensor, Tensor], Tensor]
    used: tuple[tuple[Parameter, int], ...]


class Walk(NamedTuple):
    """A strided view of memory: the first element, counted from the view's beginning, and the strides in elements."""

    view: View
    start: int
    strides: tuple[int, ...]


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous array: elements from one index to the next along each axis."""
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


class Tensor(TensorMethods, TensorValues):
    """An array of float32, float16, bfloat16, int32, uint32 or bool on one device.

    Make it with `optirs_web.tensor`, `zeros`, `ones`, `full` or `randn`. Arithmetic follows NumPy's
    broadcasting; work is enqueued, and waits only when a value is read: by `numpy`, `tolist`, `item` or
    `read`, and not by `print`, which shows shape, type and device.

    Transposing, slicing and broadcasting give another strided view of the same memory, not a copy.

    Attributes:
        shape: a tuple of ints.
        dtype: "float32", "float16", "bfloat16", "int32", "uint32" or "bool", as a `DType`.
        walk: its strided view: the memory, the offset of the first element, and the strides along each axis, in
            elements.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> (x @ x.T + 1.0).sum(axis=0).tolist()
        [18.0, 38.0]
        >>> x
        <Tensor (2, 2) float32 on cpu>
    """

    _keeps_edges = False
    """`backward` does not free its history, which holds no memory and is shared by several results."""

    def __init__(
        self,
        view: View,
        shape: tuple[int, ...],
        dtype: DType,
        *,
        requires_grad: bool = False,
        strides: tuple[int, ...] | None = None,
        start: int = 0,
    ) -> None:
        """Make a tensor over a view of its size, or a strided view of a larger one; for use by operations."""
        if requires_grad and dtype.wgsl != "f32":
            raise UnsupportedError(f"only float32 and shorter floats have gradients, not {dtype}")
        if dtype.itemsize < 4:
            from .precision import of_16_bits

            view = of_16_bits(view, dtype)
        self.shape = shape
        self.dtype = dtype
        self.walk = Walk(view, start, row_major_strides(shape) if strides is None else strides)
        self._requires_grad = requires_grad
        self._grad: Tensor | None = None
        self._grad_view: View | None = None
        self._edges: tuple[Edge, ...] | None = None
        self._hooks: list[Callable[[Tensor], Any]] | None = None
        self._shares: Parameter | None = None

    @property
    def view(self) -> View:
        """Its elements, contiguous: its memory, or a copy made now if it is not contiguous."""
        if self.is_contiguous:
            view, start, _ = self.walk
            nbytes = self.dtype.nbytes(math.prod(self.shape))
            return view if view.nbytes == nbytes else view.part(start * self.dtype.itemsize, nbytes)
        copied = call_operation("clone", self.detach())
        return copied.walk.view

    @view.setter
    def view(self, view: View) -> None:
        self.walk = Walk(view, 0, row_major_strides(self.shape))

    @property
    def is_contiguous(self) -> bool:
        """True if its elements are contiguous, and begin at an offset where a binding may begin."""
        view, start, strides = self.walk
        if strides != row_major_strides(self.shape):
            return False
        alignment = view.buffer.device.capabilities.offset_alignment
        return start == 0 or (view.offset + start * self.dtype.itemsize) % alignment == 0

    @property
    def _tracked(self) -> Parameter | None:
        """The parameter whose memory this is, if any: itself, or the one that it was detached or reshaped from."""
        return self if isinstance(self, Parameter) else self._shares

    @property
    def device(self) -> Device:
        """The device of its memory."""
        return self.walk.view.buffer.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def requires_grad(self) -> bool:
        """True if operations on it record history, so that gradients can be computed."""
        flag_used(self, "requires_grad", self._requires_grad)
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        before, self._requires_grad = self._requires_grad, bool(value)
        if before is not self._requires_grad:
            flag_changed(self, "requires_grad", before)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` computed, or None. Assigning an array or tensor of the same shape copies it.

        A parameter of an optimizer keeps its gradient in the same memory, to which the next `backward` adds.
        """
        from .autograd import note_grad

        note_grad(self, reads=True)
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        from .autograd import set_grad

        set_grad(self, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = call_operation("clone", self.detach())
        copied._requires_grad = self._requires_grad
        copied.grad = self.grad  # which torch copies too, but not for parameters
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values, which are written to a device of the same name when they are loaded. Waits."""
        name = self.name if isinstance(self, Parameter) else None
        content = bytes(self.device.read(self.view))
        return _restore, (type(self), content, self.shape, self.dtype.name, self.device.name, self.requires_grad, name)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        what = "Parameter" if isinstance(self, Parameter) else "Tensor"
        grad = ", requires_grad=True" if self.requires_grad and what == "Tensor" else ""
        return f"<{what} {self.shape} {self.dtype} on {self.device.name}{grad}>"

    # Gradients.

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Add the gradients of this tensor to the `grad` of every leaf that it was computed from.

        Args:
            gradient: the gradient with respect to this tensor, of its shape; may be omitted for a tensor
                of one element, where it is 1.
            retain_graph: keep the history, so that backward can be called again; otherwise its memory is
                freed during the pass. As `create_graph` if None.
            create_graph: record a history of the gradients, so that they can be differentiated.

        Raises:
            ShapeError: no gradient was passed and there is more than one element, or its shape is wrong.
            UnsupportedError: nothing that it was computed from requires a gradient, or its history was
                freed by an earlier call.
        """
        from .autograd import backward

        backward(self, gradient, retain_graph, create_graph)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Callable[[], None]:
        """Have `hook` called with the gradient of this tensor whenever one is computed; return a function to remove it.

        The result of the hook, unless it is None, replaces the gradient.

        Example:
            >>> import optirs_web as ow
            >>> x = ow.tensor([1.0, 2.0], device="cpu", requires_grad=True)
            >>> remove = x.register_hook(lambda g: g * 10.0)
            >>> (x * 3.0).sum().backward()
            >>> x.grad.tolist()
            [30.0, 30.0]
        """
        hooks = self._hooks = self._hooks or []
        hooks.append(hook)
        return lambda: hooks.remove(hook) if hook in hooks else None

    def detach(self) -> Tensor:
        """Return a tensor over the same memory without the history."""
        view, start, strides = self.walk
        result = Tensor(view, self.shape, self.dtype, strides=strides, start=start)
        result._shares = self._tracked
        return result


class Parameter(Tensor, KeepsValues):
    """A float32 tensor that is trained.

    The first optimizer of a parameter moves it into an arena: one buffer for many parameters.

    Args:
        data: what `tensor` takes.
        device: what `optirs_web.device` takes.
        name: for state dicts and messages.
        requires_grad: False freezes it: no gradients are computed.

    Example:
        >>> import optirs_web as ow
        >>> ow.Parameter([[1.0, 2.0]], device="cpu", name="weight")
        <Parameter (1, 2) float32 on cpu>
    """

    def __init__(
        self, data: Any, device: str | Device | None = None, name: str | None = None, requires_grad: bool = True
    ) -> None:
        """Copy `data` to a device."""
        source = data if isinstance(data, Tensor) and device in (None, data.device) else None
        if source is None:
            source = tensor(data, device=device, dtype="float32")
        else:
            source = call_operation("clone", source.detach()).float()
        super().__init__(source.view, source.shape, source.dtype, requires_grad=requires_grad)
        self.name = name
        self._home: Home | None = None
        self._version = 0  # grows with every step that changes the values
        self._snapshot: memoryview | None = None
        keep_track(self)

    def assign(self, values: Any) -> None:
        """Write new values of the same shape, in place: programs and optimizers continue with them.

        Raises:
            ShapeError: the shape differs.

        Example:
            >>> import optirs_web as ow
            >>> w = ow.Parameter([1.0, 2.0], device="cpu")
            >>> w.assign([3.0, 4.0])
            >>> w.tolist()
            [3.0, 4.0]
        """
        source = values if isinstance(values, Tensor) else tensor(values, device=self.device, dtype=FLOAT32)
        if source.shape != self.shape or source.dtype is not FLOAT32:
            raise ShapeError(f"a float32 parameter of shape {self.shape} cannot take {source!r}")
        if source.device is self.device:
            self.device.copy(source.view, self.view)
        else:
            self.device.write(self.view, source.device.read(source.view))
        self._version += 1

    def revive(self, device: Device) -> None:
        """Continue with the snapshot's values on this device, outside any arena and without a gradient."""
        assert self._snapshot is not None
        self.view = tensor(HostData(self._snapshot, self.shape, self.dtype), device=device).view
        self._home = self._grad = self._grad_view = None
        self._version += 1

    def _refuse_in_place(self, other: Any) -> NoReturn:
        raise UnsupportedError("a parameter is changed by an optimizer, or by w.assign(values)")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __imatmul__ = _refuse_in_place

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copied = Parameter(self, name=self.name)
        copied._requires_grad = self._requires_grad
        return copied


def _restore(
    kind: type[Tensor],
    content: bytes,
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    requires_grad: bool,
    name: str | None,
) -> Tensor:
    """Return a pickled tensor or parameter."""
    values = tensor(HostData(memoryview(content), shape, dtype_of(dtype)), device=device)
    restored = kind(values, name=name) if issubclass(kind, Parameter) else values
    restored._requires_grad = requires_grad
    return restored


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape, as a tuple, from an int or a sequence of ints.

    Raises:
        ShapeError: a dimension is negative, or not an int.
    """
    try:
        dimensions = tuple(map(operator.index, shape if hasattr(shape, "__iter__") else (shape,)))
    except TypeError:
        raise ShapeError(f"a shape must be ints from 0, not {shape!r}") from None
    if any(size < 0 for size in dimensions):
        raise ShapeError(f"a shape must be ints from 0, not {dimensions}")
    return dimensions


def empty(shape: tuple[int, ...], dtype: DType, device: Device) -> Tensor:
    """Allocate an uninitialized tensor, for an operation to write."""
    nbytes = dtype.nbytes(math.prod(shape))
    return Tensor(View(device.allocate(nbytes), 0, nbytes), shape, dtype)


def tensor(
    data: Any,
    device: str | Device | None = None,
    dtype: DTypeLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a tensor with a copy of `data`.

    Args:
        data: an array, anything with the buffer protocol, nested lists, a number, or a tensor.
        device: what `optirs_web.device` takes.
        dtype: "float32", "float16", "bfloat16", "int32", "uint32" or "bool", or NumPy's or Python's type, such as
            ``np.float32`` or float; by default that of the data, where float64 and float16 become float32, and int64
            becomes int32.
        requires_grad: record operations on it, so that its gradient can be computed.

    Raises:
        UnsupportedError: the data or dtype is of a type that no tensor can have.
        ShapeError: nested lists are ragged.
        OverflowError: a value does not fit.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([[1, 2], [3, 4]], device="cpu", dtype="float32")
        <Tensor (2, 2) float32 on cpu>
    """
    if isinstance(data, Tensor):
        if device is None or device_of(device) is data.device:
            return _of_tensor(data, dtype, requires_grad)
        dtype = dtype or data.dtype
        data = data.read() if data.size else data.numpy()
    requested = None if dtype is None else dtype_of(dtype)
    if requested is not None and requested.itemsize < 4:
        return _of_tensor(tensor(data, device, FLOAT32), requested, requires_grad)
    content, shape, data_type = host_data(data, requested)
    target = device_of(device)
    recording = target.recording
    buffer = target.allocate(content.nbytes) if recording is None else target.allocate_zeroed(max(4, content.nbytes))
    if recording is not None:
        recording.keep(buffer)
    view = View(buffer, 0, content.nbytes)
    target.write(view, content)
    return Tensor(view, shape, data_type, requires_grad=requires_grad)


def _of_tensor(data: Tensor, dtype: DTypeLike | None, requires_grad: bool) -> Tensor:
    """Return a copy on the same device, of another type if one is requested."""
    target_type = data.dtype if dtype is None else dtype_of(dtype)
    if target_type.itemsize < 4:
        data = data.detach().astype(target_type)
    if target_type is not data.dtype:
        raise UnsupportedError(
            f"a {data.dtype} tensor cannot be converted to {target_type}; convert the array it came from"
        )
    result = call_operation("clone", data.detach())
    result._requires_grad = requires_grad
    return result
