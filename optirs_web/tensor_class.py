"""The class of tensors: arrays on a device, with the history by which gradients are computed.

Its methods call operations, which import the class; `tensors` connects the two. Modules below that, by the layers in
pyproject.toml, import the class from here, all others from `tensors`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar, cast

from .errors import ShapeError, UnsupportedError
from .hostdata import HostData, host_data
from .recovery import KeepsValues, keep_track
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.dtypes import DTYPES, FLOAT32, DType, DTypeLike, dtype as dtype_of
from .runtime.flags import flag_changed, flag_used
from .runtime.registry import device as device_of
from .runtime.strides import row_major_strides

if TYPE_CHECKING:
    from .runtime.arena import Home

__all__ = [
    "Above",
    "Edge",
    "Operations",
    "Parameter",
    "Strided",
    "Tensor",
    "as_shape",
    "connect",
    "empty",
    "tensor",
]

Axes = int | Sequence[int] | None
Converted = TypeVar("Converted")

_TYPE_NAMES = tuple(DTYPES)


class Operations(Protocol):
    """The package `ops`. Its own types are unknown here: they name the class."""

    def __getattr__(self, name: str, /) -> Callable[..., Tensor]: ...


class Above(NamedTuple):
    """Functions that methods of tensors call, of modules that import this one."""

    backward: Callable[[Tensor, Any, bool | None, bool], None]
    note_grad: Callable[..., None]
    set_grad: Callable[[Tensor, Any], None]
    to_dlpack: Callable[..., Any]
    dlpack_device: Callable[[Tensor], tuple[int, int]]
    note_16_bits: Callable[[], None]
    restore: Callable[..., Tensor]


class _Connecting:
    """Imports `tensors` when it is first used, by name as that imports this module, and is replaced by `connect`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        import_module(f"{__package__}.tensors")
        return getattr(globals()[self._name], name)


ops = cast("Operations", _Connecting("ops"))
above = cast("Above", _Connecting("above"))


def connect(operations: Operations, functions: Above) -> None:
    """Give the methods of tensors what they call."""
    global above, ops
    ops, above = operations, functions


class Edge(NamedTuple):
    """An input of an operation, and the rule that computes its gradient from that of the result.

    The rule is called with that gradient and the result. `used` has the parameters whose values the operation used,
    with their versions.
    """

    source: Tensor
    rule: Callable[[Tensor, Tensor], Tensor]
    used: tuple[tuple[Parameter, int], ...]


class Strided(NamedTuple):
    """A strided view of memory: the first element, counted from the view's beginning, and the strides in elements."""

    view: View
    start: int
    strides: tuple[int, ...]


class Tensor:
    """An array of float32, float16, bfloat16, int32, uint32 or bool on one device.

    Make it with `optirs_web.tensor`, `zeros`, `ones`, `full` or `randn`. Arithmetic follows NumPy's
    broadcasting; work is enqueued, and waits only when a value is read: by `numpy`, `tolist`, `item` or
    `read`, and not by `print`, which shows shape, type and device.

    Transposing, slicing and broadcasting give another strided view of the same memory, not a copy.

    Attributes:
        shape: a tuple of ints.
        dtype: "float32", "float16", "bfloat16", "int32", "uint32" or "bool", as a `DType`.
        strided: its strided view: the memory, the offset of the first element, and the strides along each axis, in
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
            above.note_16_bits()
            view = View(view.buffer, view.offset, view.nbytes, dtype.name)
        self.shape = shape
        self.dtype = dtype
        self.strided = Strided(view, start, row_major_strides(shape) if strides is None else strides)
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
            view, start, _ = self.strided
            nbytes = self.dtype.nbytes(math.prod(self.shape))
            return view if view.nbytes == nbytes else view.part(start * self.dtype.itemsize, nbytes)
        copied = ops.clone(self.detach())
        return copied.strided.view

    @view.setter
    def view(self, view: View) -> None:
        self.strided = Strided(view, 0, row_major_strides(self.shape))

    @property
    def is_contiguous(self) -> bool:
        """True if its elements are contiguous, and begin at an offset where a binding may begin."""
        view, start, strides = self.strided
        wanted = row_major_strides(self.shape)
        if strides != wanted:
            axes = zip(self.shape, strides, wanted, strict=True)
            if any(size != 1 and own != other for size, own, other in axes):
                return False
        alignment = view.buffer.device.capabilities.offset_alignment
        return start == 0 or (view.offset + start * self.dtype.itemsize) % alignment == 0

    @property
    def _tracked(self) -> Parameter | None:
        """The parameter whose memory this is, if any: itself, or the one that it was detached or reshaped from."""
        return self if isinstance(self, Parameter) else self._shares

    @property
    def walk(self) -> Strided:
        """The attribute `strided`, by its earlier name."""
        return self.strided

    @property
    def device(self) -> Device:
        """The device of its memory."""
        return self.strided.view.buffer.device

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
        above.note_grad(self, reads=True)
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        above.set_grad(self, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = ops.clone(self.detach())
        copied._requires_grad = self._requires_grad
        copied.grad = self.grad  # which torch copies too, but not for parameters
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values, which are written to a device of the same name when they are loaded. Waits."""
        name = self.name if isinstance(self, Parameter) else None
        content, types = bytes(self.device.read(self.view)), (self.dtype.name, self.device.name)
        return above.restore, (type(self), content, self.shape, *types, self.requires_grad, name)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        kind = "Parameter" if isinstance(self, Parameter) else "Tensor"
        grad = ", requires_grad=True" if self.requires_grad and kind == "Tensor" else ""
        return f"<{kind} {self.shape} {self.dtype} on {self.device.name}{grad}>"

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
        above.backward(self, gradient, retain_graph, create_graph)

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
        view, start, strides = self.strided
        result = Tensor(view, self.shape, self.dtype, strides=strides, start=start)
        result._shares = self._tracked
        return result

    # The values on the host. These wait, but for the awaitable twins, which begin to read at the call.

    def read(self) -> memoryview:
        """Return the values as a typed memoryview of this shape (one empty axis where there are none). Waits.

        Example:
            >>> import optirs_web as ow
            >>> ow.tensor([1.0, 2.0], device="cpu").read().tolist()
            [1.0, 2.0]
        """
        return self._on_host().typed()

    def read_async(self) -> Coroutine[Any, Any, memoryview]:
        """The awaitable twin of `read`."""
        return self._on_host_async(HostData.typed)

    def numpy(self) -> Any:
        """Return the values as a NumPy array of this shape and dtype. Waits."""
        return self._on_host().array()

    def numpy_async(self) -> Coroutine[Any, Any, Any]:
        """The awaitable twin of `numpy`."""
        return self._on_host_async(HostData.array)

    def tolist(self) -> Any:
        """Return the values as nested lists, or as a number where there are no axes. Waits."""
        return self._on_host().tolist()

    def tolist_async(self) -> Coroutine[Any, Any, Any]:
        """The awaitable twin of `tolist`."""
        return self._on_host_async(HostData.tolist)

    def item(self) -> float | int:
        """Return the only value. Waits.

        Raises:
            ShapeError: there is more than one, or none.
        """
        self._need_one_element("item")
        return self._on_host().item()

    def item_async(self) -> Coroutine[Any, Any, float | int]:
        """The awaitable twin of `item`."""
        self._need_one_element("item_async")
        return self._on_host_async(HostData.item)

    def _on_host(self) -> HostData:
        return HostData(self.device.read(self.view), self.shape, self.dtype)

    def _on_host_async(self, convert: Callable[[HostData], Converted]) -> Coroutine[Any, Any, Converted]:
        """Begin to read the values, so that several reads overlap, and return a coroutine that converts them."""
        return _converted(self.device.read_async(self.view), self.shape, self.dtype, convert)

    def _need_one_element(self, call: str) -> None:
        if self.size != 1:
            raise ShapeError(f"{call}() needs a tensor of one element; this one has the shape {self.shape}")

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    __array_ufunc__ = None  # so that NumPy leaves `array + tensor` to the tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return above.to_dlpack(self, **options)

    def __dlpack_device__(self) -> Any:
        return above.dlpack_device(self)

    # Arithmetic.

    def __add__(self, other: Any) -> Tensor:
        return ops.add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tensor:
        return ops.subtract(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return ops.subtract(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return ops.multiply(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        return ops.divide(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return ops.divide(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return ops.power(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return ops.power(other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return ops.matmul(other, self)

    def __neg__(self) -> Tensor:
        return ops.negate(self)

    def __pos__(self) -> Tensor:
        return ops.clone(self)

    def __abs__(self) -> Tensor:
        return ops.abs(self)

    # Comparisons and logic, element by element. == with objects that are no numbers or arrays, as None, is False.

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return ops.equal(self, other) if _is_comparable(other) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return ops.not_equal(self, other) if _is_comparable(other) else NotImplemented

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Tensor:
        return ops.less(self, other)

    def __le__(self, other: Any) -> Tensor:
        return ops.less_equal(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return ops.greater(self, other)

    def __ge__(self, other: Any) -> Tensor:
        return ops.greater_equal(self, other)

    def __and__(self, other: Any) -> Tensor:
        return ops.logical_and(*_bools("&", self, other))

    __rand__ = __and__

    def __or__(self, other: Any) -> Tensor:
        return ops.logical_or(*_bools("|", self, other))

    __ror__ = __or__

    def __xor__(self, other: Any) -> Tensor:
        return ops.logical_xor(*_bools("^", self, other))

    __rxor__ = __xor__

    def __invert__(self) -> Tensor:
        return ops.logical_not(*_bools("~", self))

    def isnan(self) -> Tensor:
        """Return True where an element is NaN."""
        return ops.isnan(self)

    def isinf(self) -> Tensor:
        """Return True where an element is infinite."""
        return ops.isinf(self)

    def isfinite(self) -> Tensor:
        """Return True where an element is neither infinite nor NaN."""
        return ops.isfinite(self)

    # Functions of each element.

    def abs(self) -> Tensor:
        """Return the magnitude."""
        return ops.abs(self)

    def sign(self) -> Tensor:
        """Return the sign of each element: 1, 0 or -1."""
        return ops.sign(self)

    def exp(self) -> Tensor:
        """Return the exponential."""
        return ops.exp(self)

    def expm1(self) -> Tensor:
        """Return the exponential less 1."""
        return ops.expm1(self)

    def log(self) -> Tensor:
        """Return the natural logarithm."""
        return ops.log(self)

    def log1p(self) -> Tensor:
        """Return the logarithm of 1 + x."""
        return ops.log1p(self)

    def sqrt(self) -> Tensor:
        """Return the square root."""
        return ops.sqrt(self)

    def rsqrt(self) -> Tensor:
        """Return one over the square root."""
        return ops.rsqrt(self)

    def square(self) -> Tensor:
        """Return the square."""
        return ops.square(self)

    def reciprocal(self) -> Tensor:
        """Return one over each element."""
        return ops.reciprocal(self)

    def pow(self, exponent: Any) -> Tensor:
        """Return each element to a power."""
        return ops.power(self, exponent)

    def sin(self) -> Tensor:
        """Return the sine."""
        return ops.sin(self)

    def cos(self) -> Tensor:
        """Return the cosine."""
        return ops.cos(self)

    def tanh(self) -> Tensor:
        """Return the hyperbolic tangent."""
        return ops.tanh(self)

    def erf(self) -> Tensor:
        """Return the error function."""
        return ops.erf(self)

    def sigmoid(self) -> Tensor:
        """Return the logistic function."""
        return ops.sigmoid(self)

    def relu(self) -> Tensor:
        """Return the larger of each element and 0."""
        return ops.relu(self)

    def gelu(self, approximate: str = "none") -> Tensor:
        """Return the Gaussian error linear unit."""
        return ops.gelu(self, approximate)

    def silu(self) -> Tensor:
        """Return each element times its logistic function."""
        return ops.silu(self)

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Return each element clipped to two bounds."""
        return ops.clip(self, min, max)

    clamp = clip

    def softmax(self, axis: int | None = None, *, dim: int | None = None) -> Tensor:
        """Return the softmax along an axis, the last by default."""
        return ops.softmax(self, axis, dim=dim)

    def log_softmax(self, axis: int | None = None, *, dim: int | None = None) -> Tensor:
        """Return the logarithm of the softmax along an axis, the last by default."""
        return ops.log_softmax(self, axis, dim=dim)

    # Reductions: over an axis, several, or all. `dim` and `keepdim` are torch's names of `axis` and `keepdims`.

    def sum(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the sum."""
        return ops.sum(self, axis, keepdims, dim=dim, keepdim=keepdim)

    def mean(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the mean."""
        return ops.mean(self, axis, keepdims, dim=dim, keepdim=keepdim)

    def var(
        self, axis: Axes = None, keepdims: bool = False, correction: float = 1, *, dim: Axes = None,
        keepdim: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the variance, over the number of elements less `correction`."""
        return ops.var(self, axis, keepdims, correction, dim=dim, keepdim=keepdim)

    def std(
        self, axis: Axes = None, keepdims: bool = False, correction: float = 1, *, dim: Axes = None,
        keepdim: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the standard deviation, the square root of the variance."""
        return ops.std(self, axis, keepdims, correction, dim=dim, keepdim=keepdim)

    def max(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the largest element: the value alone."""
        return ops.max(self, axis, keepdims, dim=dim, keepdim=keepdim)

    def min(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the smallest element: the value alone."""
        return ops.min(self, axis, keepdims, dim=dim, keepdim=keepdim)

    def argmax(
        self, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the index of the largest element, as int32."""
        return ops.argmax(self, axis, keepdims, dim=dim, keepdim=keepdim)

    def argmin(
        self, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the index of the smallest element, as int32."""
        return ops.argmin(self, axis, keepdims, dim=dim, keepdim=keepdim)

    def logsumexp(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """Return the logarithm of the sum of the exponentials."""
        return ops.logsumexp(self, axis, keepdims, dim=dim, keepdim=keepdim)

    # Shapes, and parts.

    def __getitem__(self, index: Any) -> Tensor:
        return ops.getitem(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("a tensor without axes cannot be iterated over")
        return (self[number] for number in range(self.shape[0]))

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return these elements in another shape, with at most one axis -1. No copy is made if they are contiguous."""
        return ops.reshape(self, _as_sequence(shape))

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Return a tensor with the axes from `start` to `end` merged into one."""
        return ops.flatten(self, start, end)

    def unsqueeze(self, axis: int) -> Tensor:
        """Return a view with a new axis of length 1."""
        return ops.unsqueeze(self, axis)

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Tensor:
        """Return a view without axes of length 1."""
        return ops.squeeze(self, axis)

    def transpose(self, first: int, second: int) -> Tensor:
        """Return a view with two axes exchanged."""
        return ops.transpose(self, first, second)

    def permute(self, *axes: int | Sequence[int]) -> Tensor:
        """Return a view with the axes in another order."""
        return ops.permute(self, _as_sequence(axes))

    @property
    def T(self) -> Tensor:
        """A view with the axes in reverse order."""
        return ops.permute(self, tuple(reversed(range(len(self.shape)))))

    @property
    def mT(self) -> Tensor:
        """A view with the last two axes exchanged: each matrix transposed."""
        return ops.transpose(self, -2, -1)

    # Copies.

    def clone(self) -> Tensor:
        """Return a copy in memory of its own; gradients pass through."""
        return ops.clone(self)

    def contiguous(self) -> Tensor:
        """Return the tensor, or a copy if it is not contiguous; gradients pass through."""
        return ops.in_order(self)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """Return the values as another type; the tensor itself if it has that type."""
        return ops.astype(self, dtype)

    def to(self, target: str | Device | DType | type) -> Tensor:
        """Return a copy on another device or of another type; the tensor itself if nothing changes.

        Gradients pass through.

        Args:
            target: what `optirs_web.device` takes, or "float32", "float16", "bfloat16", "int32", "uint32", "bool",
                or NumPy's or Python's type.
        """
        is_type = isinstance(target, (DType, type)) or target in _TYPE_NAMES  # to which NumPy's dtypes are equal
        return ops.astype(self, cast("DType", target)) if is_type else ops.to_device(self, cast("Device", target))

    def cpu(self) -> Tensor:
        """Return a copy on the device `cpu`; the tensor itself if it is there."""
        return ops.to_device(self, "cpu")

    # Conversions. They stand last, so that above `float`, `int` and `bool` are Python's types.

    def float(self) -> Tensor:
        """Convert to float32."""
        return ops.astype(self, "float32")

    def half(self) -> Tensor:
        """Convert to float16."""
        return ops.astype(self, "float16")

    def bfloat16(self) -> Tensor:
        """Convert to bfloat16."""
        return ops.astype(self, "bfloat16")

    def int(self) -> Tensor:
        """Convert to int32, truncated towards zero."""
        return ops.astype(self, "int32")

    def bool(self) -> Tensor:
        """Convert to bool: True where it is not 0."""
        return ops.astype(self, "bool")


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
            source = ops.clone(source.detach()).float()
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


async def _converted(
    reading: Awaitable[memoryview], shape: tuple[int, ...], dtype: DType, convert: Callable[[HostData], Converted]
) -> Converted:
    return convert(HostData(await reading, shape, dtype))


def _is_comparable(other: object) -> bool:
    return isinstance(other, (Tensor, bool, int, float, list, tuple)) or hasattr(other, "__array__")


def _bools(operator: str, *operands: Any) -> tuple[Any, ...]:
    """Return the operands of logic, after checking that tensors among them are of bools.

    Raises:
        UnsupportedError: one is not.
    """
    for operand in operands:
        if isinstance(operand, Tensor) and operand.dtype.name != "bool":
            raise UnsupportedError(f"{operator} is for bools, as in (x > 0) & (x < 1), not for {operand!r}")
    return operands


def _as_sequence(values: tuple[int | Sequence[int], ...]) -> Any:
    """Return ints that are passed as separate arguments, or as one sequence."""
    return values[0] if len(values) == 1 and not isinstance(values[0], int) else values


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
    result = ops.clone(data.detach())
    result._requires_grad = requires_grad
    return result
