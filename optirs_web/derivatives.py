"""Derivatives of functions of tensors: gradients, Jacobians, and products with Jacobians and Hessians.

All use the backward pass, whose rules are differentiable, so that they can be nested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import ops
from .autograd import as_variable, gradients_or_zeros
from .errors import ShapeError, UnsupportedError
from .hostdata import host_data
from .tensors import Tensor, tensor

__all__ = ["grad", "hessian_vector_product", "jacobian", "jvp", "value_and_grad", "vjp"]

Function = Callable[..., Any]


def value_and_grad(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the value of `function` and its gradients.

    Args:
        function: of tensors; returns a tensor of one element.
        argnums: the positions of the arguments to differentiate with respect to.

    Returns:
        A function of the same arguments (tensors, or what `tensor` takes), which returns the value and the gradient,
        or a tuple of gradients where `argnums` is a sequence. Its results can be differentiated.

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

    def value_and_slopes(*arguments: Any) -> tuple[Tensor, Any]:
        positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        tensors = _as_tensors(arguments, positions)
        sources = [as_variable(tensors[position]) for position in positions]
        for position, source in zip(positions, sources, strict=True):
            tensors[position] = source
        value = _only_tensor(function(*tensors))
        if value.size != 1:
            raise ShapeError(f"grad needs a function that returns one element, not the shape {value.shape}")
        slopes = gradients_or_zeros(value, sources)
        return value, slopes[0] if isinstance(argnums, int) else tuple(slopes)

    return value_and_slopes


def grad(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the gradient of `function`; see `value_and_grad`.

    Example:
        >>> import optirs_web as ow
        >>> cube = lambda x: (x * x * x).sum()
        >>> x = ow.tensor([2.0], device="cpu")
        >>> ow.grad(cube)(x).tolist(), ow.grad(lambda y: ow.grad(cube)(y).sum())(x).tolist()
        ([12.0], [12.0])
    """
    value_and_gradients = value_and_grad(function, argnums)
    return lambda *arguments: value_and_gradients(*arguments)[1]


def vjp(function: Function, *primals: Any) -> tuple[Tensor, Callable[[Any], tuple[Tensor, ...]]]:
    """Return the value of `function`, and a function that multiplies a vector with its Jacobian from the left.

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
    sources = [as_variable(primal) for primal in _as_tensors(primals, range(len(primals)))]
    value = _only_tensor(function(*sources))
    return value, lambda cotangent: tuple(gradients_or_zeros(value, sources, cotangent))


def jvp(function: Function, primals: Tensor | Sequence[Any], tangents: Any) -> tuple[Tensor, Tensor]:
    """Return the value of `function`, and its derivative along `tangents`: the Jacobian times a vector from the right.

    Backward twice: the product with a cotangent is linear in it, and the result is the derivative by the cotangent
    (Townsend 2017, "A new trick for calculating Jacobian vector products"). It takes two backward passes. A single
    tensor as `primals` counts as a list of one, with a single tangent.

    Raises:
        ShapeError: a tangent has another shape than its primal, or there are more of one than of the other.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, 2.0], device="cpu")
        >>> ow.jvp(lambda x: (x * x).sum(), [x], [[1.0, 10.0]])[1].item()
        42.0
    """
    primals, tangents = _as_lists(primals, tangents)
    if len(primals) != len(tangents):
        raise ShapeError(f"{len(primals)} primals and {len(tangents)} tangents")
    value, pull = vjp(function, *primals)
    cotangent = tensor(_zeros(value), requires_grad=True)
    products = pull(cotangent)
    along = [
        tensor(tangent, device=value.device) if not isinstance(tangent, Tensor) else tangent for tangent in tangents
    ]
    for tangent, product in zip(along, products, strict=True):
        if tangent.shape != product.shape:
            raise ShapeError(f"a tangent of shape {tangent.shape} for a primal of shape {product.shape}")
    total = _sum([(product * tangent).sum() for product, tangent in zip(products, along, strict=True)])
    if not total.requires_grad:
        return value, _zeros(value)
    return value, gradients_or_zeros(total, [cotangent])[0]


def hessian_vector_product(
    function: Function, primals: Tensor | Sequence[Any], vectors: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the value and the Hessian's product with `vectors`, as the gradient of (gradient · vectors).

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
    primals, vectors = _as_lists(primals, vectors)
    if len(primals) != len(vectors):
        raise ShapeError(f"{len(primals)} primals and {len(vectors)} vectors")
    sources = [as_variable(primal) for primal in _as_tensors(primals, range(len(primals)))]
    value = _only_tensor(function(*sources))
    slopes = gradients_or_zeros(value, sources)
    along = [vector if isinstance(vector, Tensor) else tensor(vector, device=value.device) for vector in vectors]
    total = _sum([(slope * vector).sum() for slope, vector in zip(slopes, along, strict=True)])
    if not total.requires_grad:  # linear: the gradient does not depend on the arguments
        return value, tuple(_zeros(source) for source in sources)
    return value, tuple(gradients_or_zeros(total, sources))


def jacobian(function: Function, argnums: int = 0) -> Function:
    """Return a function that returns all derivatives of `function` by one argument.

    Their shape is (*shape of value, *shape of argument). It takes one backward pass for each element of the value.

    Example:
        >>> import optirs_web as ow
        >>> ow.jacobian(lambda x: x * x)(ow.tensor([1.0, 2.0], device="cpu")).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """

    def all_derivatives(*arguments: Any) -> Tensor:
        tensors = _as_tensors(arguments, (argnums,))
        source = tensors[argnums] = as_variable(tensors[argnums])
        value = _only_tensor(function(*tensors))
        flat = value.reshape(-1)
        rows = []
        for number in range(flat.size):
            unit = [float(index == number) for index in range(flat.size)]
            rows.append(gradients_or_zeros(flat, [source], unit)[0])
        if not rows:
            return ops.zeros((*value.shape, *source.shape), device=value.device)
        return ops.stack(rows).reshape(*value.shape, *source.shape)

    return all_derivatives


def _as_lists(primals: Any, vectors: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return a single primal and its vector as lists of one; lists unchanged."""
    return ([primals], [vectors]) if isinstance(primals, Tensor) else (primals, vectors)


def _as_tensors(arguments: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    """Return the arguments, with tensors at these positions."""
    device = next((argument.device for argument in arguments if isinstance(argument, Tensor)), None)
    tensors = list(arguments)
    for position in positions:
        if not isinstance(tensors[position], Tensor):
            tensors[position] = tensor(host_data(tensors[position]), device=device)
    return tensors


def _only_tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise UnsupportedError(f"a function to differentiate returns a tensor, not {type(value).__name__}")
    return value


def _zeros(like: Tensor) -> Tensor:
    return ops.zeros(like.shape, device=like.device)


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
