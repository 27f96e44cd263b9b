"""Derivatives of functions of tensors: gradients, products with Jacobians and Hessians, and checks of gradient rules.

All are made of the backward pass, whose rules are differentiable: each can be taken of a function that takes another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .autograd import gradients, record
from .errors import ShapeError, UnsupportedError
from .hostdata import host_data
from .tensors import Tensor, tensor

__all__ = ["grad", "hessian_vector_product", "jacobian", "jvp", "value_and_grad", "vjp"]

Function = Callable[..., Any]


def value_and_grad(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns what `function` returns, and its gradients.

    Args:
        function: of tensors; returns a tensor of one element.
        argnums: the positions of the arguments to differentiate with respect to.

    Returns:
        A function of the same arguments (tensors, or what `tensor` takes), which returns the value and the gradient,
        or a tuple of gradients where `argnums` is a sequence. Its results can be differentiated in turn.

    Raises:
        TypeError: `function` is a tensor; `gradients` takes the gradient of one.
        ShapeError: at a call, if the function returns more than one element.

    Example:
        >>> import optirs_web as ow
        >>> value, slope = ow.value_and_grad(lambda x: (x * x).sum())(ow.tensor([3.0], device="cpu"))
        >>> value.item(), slope.tolist()
        (9.0, [6.0])
    """
    if isinstance(function, Tensor):
        raise TypeError("grad takes a function; optirs_web.gradients(target, sources) takes the gradients of a tensor")

    def both(*arguments: Any) -> tuple[Tensor, Any]:
        positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        given = _as_tensors(arguments, positions)
        sources = [_fresh(given[one]) for one in positions]
        for position, source in zip(positions, sources, strict=True):
            given[position] = source
        value = _only_tensor(function(*given))
        if value.size != 1:
            raise ShapeError(f"grad needs a function that returns one element, not the shape {value.shape}")
        found = _or_zeros(_gradients(value, sources, None), sources)
        return value, found[0] if isinstance(argnums, int) else tuple(found)

    return both


def grad(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns the gradient of `function`; see `value_and_grad`.

    Example:
        >>> import optirs_web as ow
        >>> cube = lambda x: (x * x * x).sum()
        >>> x = ow.tensor([2.0], device="cpu")
        >>> ow.grad(cube)(x).tolist(), ow.grad(lambda y: ow.grad(cube)(y).sum())(x).tolist()
        ([12.0], [12.0])
    """
    both = value_and_grad(function, argnums)
    return lambda *arguments: both(*arguments)[1]


def vjp(function: Function, *primals: Any) -> tuple[Tensor, Callable[[Any], tuple[Tensor, ...]]]:
    """The value of `function`, and a function that multiplies a vector with its Jacobian from the left.

    Args:
        function: of tensors; returns a tensor.
        primals: its arguments.

    Returns:
        The value, and a function of a cotangent of the value's shape that returns one product for each argument. It
        can be called any number of times.

    Example:
        >>> import optirs_web as ow
        >>> value, pull = ow.vjp(lambda x: x * x, ow.tensor([1.0, 2.0], device="cpu"))
        >>> pull([1.0, 10.0])[0].tolist()
        [2.0, 40.0]
    """
    sources = [_fresh(one) for one in _as_tensors(primals, range(len(primals)))]
    value = _only_tensor(function(*sources))
    return value, lambda cotangent: tuple(_or_zeros(_gradients(value, sources, cotangent), sources))


def jvp(function: Function, primals: Tensor | Sequence[Any], tangents: Any) -> tuple[Tensor, Tensor]:
    """The value of `function`, and its derivative along `tangents`: the Jacobian times a vector from the right.

    Backward twice: the product with a cotangent is linear in it, and the derivative by the cotangent is what is asked
    for (Townsend 2017, "A new trick for calculating Jacobian vector products"). Costs two backward passes. A single
    tensor as `primals` counts as a list of one, with one tangent beside it.

    Raises:
        ShapeError: a tangent has another shape than its primal, or there are more of one than of the other.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, 2.0], device="cpu")
        >>> ow.jvp(lambda x: (x * x).sum(), [x], [[1.0, 10.0]])[1].item()
        42.0
    """
    primals, tangents = _several(primals, tangents)
    if len(primals) != len(tangents):
        raise ShapeError(f"{len(primals)} primals and {len(tangents)} tangents")
    value, pull = vjp(function, *primals)
    cotangent = tensor(_zeros(value), requires_grad=True)
    products = pull(cotangent)
    along = [tensor(one, device=value.device) if not isinstance(one, Tensor) else one for one in tangents]
    for one, product in zip(along, products, strict=True):
        if one.shape != product.shape:
            raise ShapeError(f"a tangent of shape {one.shape} for a primal of shape {product.shape}")
    total = _sum([(product * one).sum() for product, one in zip(products, along, strict=True)])
    if not total.requires_grad:
        return value, _zeros(value)
    return value, _or_zeros(_gradients(total, [cotangent], None), [cotangent])[0]


def hessian_vector_product(
    function: Function, primals: Tensor | Sequence[Any], vectors: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The gradient's derivative along `vectors`, without the Hessian: the gradient of (gradient · vectors).

    Args:
        function: of tensors; returns a tensor of one element.
        primals: its arguments; a single tensor counts as a list of one.
        vectors: one for each, of its shape.

    Returns:
        The value of the function, and one product for each argument.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, 2.0], device="cpu")
        >>> ow.hessian_vector_product(lambda x: (x * x * x).sum(), [x], [[1.0, 1.0]])[1][0].tolist()
        [6.0, 12.0]
    """
    primals, vectors = _several(primals, vectors)
    if len(primals) != len(vectors):
        raise ShapeError(f"{len(primals)} primals and {len(vectors)} vectors")
    sources = [_fresh(one) for one in _as_tensors(primals, range(len(primals)))]
    value = _only_tensor(function(*sources))
    slopes = _or_zeros(_gradients(value, sources, None), sources)
    along = [one if isinstance(one, Tensor) else tensor(one, device=value.device) for one in vectors]
    total = _sum([(slope * one).sum() for slope, one in zip(slopes, along, strict=True)])
    if not total.requires_grad:  # linear: the gradient does not depend on the arguments
        return value, tuple(_zeros(one) for one in sources)
    return value, tuple(_or_zeros(_gradients(total, sources, None), sources))


def jacobian(function: Function, argnums: int = 0) -> Function:
    """A function that returns all derivatives of `function` by one argument, (*shape of value, *shape of argument).

    One backward pass for each element of the value.

    Example:
        >>> import optirs_web as ow
        >>> ow.jacobian(lambda x: x * x)(ow.tensor([1.0, 2.0], device="cpu")).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """

    def all_derivatives(*arguments: Any) -> Tensor:
        from . import ops

        given = _as_tensors(arguments, (argnums,))
        source = given[argnums] = _fresh(given[argnums])
        value = _only_tensor(function(*given))
        flat = value.reshape(-1)
        rows = []
        for number in range(flat.size):
            unit = [float(one == number) for one in range(flat.size)]
            rows.append(_or_zeros(_gradients(flat, [source], unit), [source])[0])
        if not rows:
            return ops.zeros((*value.shape, *source.shape), device=value.device)
        return ops.stack(rows).reshape(*value.shape, *source.shape)

    return all_derivatives


def _gradients(value: Tensor, sources: Sequence[Tensor], gradient: Any) -> list[Tensor | None]:
    if not value.requires_grad:
        return [None for _ in sources]
    return gradients(value, sources, gradient, create_graph=True)


def _several(primals: Any, along: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """A single primal and what lies beside it, as lists of one."""
    return ([primals], [along]) if isinstance(primals, Tensor) else (primals, along)


def _as_tensors(arguments: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    """The arguments, with tensors at these positions."""
    device = next((one.device for one in arguments if isinstance(one, Tensor)), None)
    given = list(arguments)
    for one in positions:
        if not isinstance(given[one], Tensor):
            given[one] = tensor(host_data(given[one]), device=device)
    return given


def _fresh(one: Tensor) -> Tensor:
    """The same values as a variable of its own, whose history goes on to `one`."""
    alias = record(one.detach(), (one, lambda g, _: g))
    alias._requires_grad = True
    return alias


def _only_tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise UnsupportedError(f"a function to differentiate returns a tensor, not {type(value).__name__}")
    return value


def _zeros(like: Tensor) -> Tensor:
    from . import ops

    return ops.zeros(like.shape, device=like.device)


def _or_zeros(found: Sequence[Tensor | None], sources: Sequence[Tensor]) -> list[Tensor]:
    return [_zeros(source) if one is None else one for one, source in zip(found, sources, strict=True)]


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for one in terms[1:]:
        total = total + one
    return total
