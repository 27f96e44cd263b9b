"""The operations that torch and this library have under the same names: one table for both."""

from __future__ import annotations

from typing import Any

from .library import Operation

__all__ = ["operations_of"]


def operations_of(functional: Any) -> dict[str, Operation]:
    """Return the operations by name, with the functions of `torch.nn.functional` or of a module like it."""
    return {
        "product": lambda a, b: a @ b,
        "product_transposed": lambda a, b: a.T @ b,
        "attention": lambda q, k, v, is_causal=False: functional.scaled_dot_product_attention(
            q, k, v, is_causal=is_causal
        ),
        "conv2d": lambda x, weight, stride=1, padding=0: functional.conv2d(x, weight, None, stride, padding),
        "sum": lambda x, axis: x.sum(axis),
        "softmax": lambda x: functional.softmax(x, dim=-1),
        "layer_norm": lambda x: functional.layer_norm(x, (x.shape[-1],)),
        "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
        "cross_entropy": functional.cross_entropy,
        "mse_loss": functional.mse_loss,
    }
