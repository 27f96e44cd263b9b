"""Options that follow schedules or metrics, in JAX: `OptionKernel` over all rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from ...runtime.option_kernels import OptionKernel, OptionWords
from ..arrays.jax_arrays import as_type, floats, functions_of, put, put_at

__all__ = ["follow"]


def follow(kernel: OptionKernel, values: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, Array]:
    """Return the new contents of the table of rows (words) and of `hyper`."""
    bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
    width, functions, hyper = len(kernel.members), functions_of(kernel), bound["hyper"]
    words = floats(bound["rows"])
    columns = words[: words.size // width * width].reshape(-1, width).T
    row = functions["Row"](*columns)
    targets = [getattr(row, name) for name in OptionWords._fields]
    inputs = {
        **values,
        "row": row,
        "current": jnp.take(floats(hyper), targets[0].astype(jnp.int32), mode="clip"),
    }
    if "metric" in bound:
        inputs["metric"] = floats(bound["metric"])[0]
    followed = functions["follow"](*(inputs[name] for name in kernel.arguments))
    is_changed, *numbers = (jnp.broadcast_to(member, columns[0].shape) for member in followed.option)
    for word, number in zip(targets, numbers, strict=True):
        hyper = put_at(hyper, word.astype(jnp.uint32), as_type(number, hyper.dtype), is_changed & (word >= 0))
    rows = jnp.stack([jnp.broadcast_to(member, columns[0].shape) for member in followed.row], axis=1)
    return put(bound["rows"], rows), hyper
