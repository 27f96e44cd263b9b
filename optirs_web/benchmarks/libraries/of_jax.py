"""JAX: everything runs under `jax.jit`; training steps donate their parameters and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ...runtime.device import Device
from ..models import MLP_SIZES, training_data
from .library import Array, Library, NotOffered, Operation, float_arguments, is_processor

__all__ = ["Jax"]


def _attention(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    # The suite has heads as the second axis, JAX as the third.
    swapped = (jnp.swapaxes(array, 1, 2) for array in (q, k, v))
    return jnp.swapaxes(jax.nn.dot_product_attention(*swapped, is_causal=is_causal), 1, 2)


def _conv2d(x: Any, weight: Any, stride: int = 1, padding: int = 0) -> Any:
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2)


def _normalized(x: Any, axes: tuple[int, ...]) -> Any:
    return (x - x.mean(axes, keepdims=True)) * jax.lax.rsqrt(x.var(axes, keepdims=True) + 1e-5)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1).mean()


def _adamw(params: Any, state: Any, grads: Any, lr: float = 1e-3) -> Any:
    """Return the parameters and state after a step of AdamW with torch's defaults, over trees of arrays."""
    step, means, squares = state
    step = step + 1
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, grads)
    squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, grads)
    size, root = lr / (1 - 0.9**step), jnp.sqrt(1 - 0.999**step)

    def updated(p: Any, m: Any, v: Any) -> Any:
        return p * (1 - lr * 0.01) - size * m / (jnp.sqrt(v) / root + 1e-8)

    return jax.tree.map(updated, params, means, squares), (step, means, squares)


class Jax(Library):
    """JAX on the hardware of a device."""

    name: ClassVar[str] = "jax"
    operations: Mapping[str, Operation] = {
        "product": lambda a, b: a @ b,
        "product_transposed": lambda a, b: a.T @ b,
        "attention": _attention,
        "conv2d": _conv2d,
        "sum": lambda x, axis: x.sum(axis),
        "softmax": jax.nn.softmax,
        "layer_norm": lambda x: _normalized(x, (-1,)),
        "batch_norm": lambda x: _normalized(x, (0, 2, 3)),
        "cross_entropy": _cross_entropy,
        "mse_loss": lambda x, y: jnp.square(x - y).mean(),
    }

    def __init__(self, device: Device) -> None:
        try:
            self.device = jax.devices("cpu" if is_processor(device) else "gpu")[0]
        except RuntimeError as error:
            raise NotOffered(str(error)) from None
        self._last: Any = None

    def array(self, values: Array) -> Any:
        return jax.device_put(values, self.device)

    def values(self, result: Any) -> Array:
        return np.array(result)

    def wait(self) -> None:
        jax.block_until_ready(self._last)

    def _keeping_result(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Return a call of a function that keeps its result for `wait`."""

        def call() -> Any:
            self._last = function(*arguments)
            return self._last

        return call

    def call(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        function = self._operation(operation)
        return self._keeping_result(
            jax.jit(lambda *arguments: function(*arguments, **options)), *map(self.array, arrays)
        )

    def gradients(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        function = self._operation(operation)
        sums = jax.grad(lambda *arguments: function(*arguments, **options).sum(), float_arguments(arrays))
        return self._keeping_result(jax.jit(sums), *map(self.array, arrays))

    def _trained(self, params: Any, grads: Callable[[Any], Any]) -> Callable[[], Any]:
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = (jnp.float32(0), zeros, jax.tree.map(jnp.zeros_like, params))
        step = jax.jit(lambda params, state: _adamw(params, state, grads(params)), donate_argnums=(0, 1))

        def call() -> Any:
            nonlocal params, state
            params, state = step(params, state)
            self._last = params

        return call

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        params = [self.array(np.ones(size, np.float32)) for size in sizes]
        grads = [self.array(np.ones(size, np.float32)) for size in sizes]
        return self._trained(params, lambda _: grads)

    def training(self, model: str) -> Callable[[], Any]:
        if model != "mlp":
            return super().training(model)
        x, labels = map(self.array, training_data(model))
        random = np.random.default_rng(0)
        params = [
            (self.array(random.normal(0, size**-0.5, (size, out)).astype(np.float32)), jnp.zeros(out))
            for size, out in pairwise(MLP_SIZES)
        ]

        def loss(params: Any) -> Any:
            y = x
            for number, (weight, bias) in enumerate(params):
                y = y @ weight + bias
                y = jax.nn.relu(y) if number + 1 < len(params) else y
            return _cross_entropy(y, labels)

        return self._trained(params, jax.grad(loss))
