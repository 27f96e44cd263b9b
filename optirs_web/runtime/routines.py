"""The interfaces of the routines that training begins with, as their shaders have them.

Where library calls take their place, nobody then reads the shaders, which takes longer than all else of a first step.
Those of other kernels are read from their shaders.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["INTERFACES", "Binding", "Interface"]


class Binding(NamedTuple):
    """A storage buffer as a kernel sees it: its name, its WGSL type, and whether the kernel writes it."""

    name: str
    type: str
    writes: bool


class Interface(NamedTuple):
    """The buffers and parameters that a launch of a kernel binds.

    Attributes:
        bindings: the storage buffers, in order.
        parameters: name and WGSL type of each parameter.
        overrides: those on which neither depends.
    """

    bindings: tuple[Binding, ...]
    parameters: tuple[tuple[str, str], ...]
    overrides: frozenset[str] = frozenset()


def _read(*names: str, type: str = "f32") -> tuple[Binding, ...]:
    return tuple(Binding(name, f"array<{type}>", writes=False) for name in names)


def _written(*names: str, type: str = "f32") -> tuple[Binding, ...]:
    return tuple(Binding(name, f"array<{type}>", writes=True) for name in names)


def _words(names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, "u32") for name in names.split())


_ROWS = _words("count rows length")

_PAIRS = "own", "other", "own_values", "other_values"
_STRIDES = "start", "outer", "batch", "row", "column"
_ATTENTION = (
    *_words("own_rows other_rows depth value_depth columns first_column is_causal owns_queries adds_values mask_kind"),
    ("scale", "f32"),
    ("result_scale", "f32"),
    *_words("first_product batch_inner"),
    *((f"{name}_{stride}", "u32") for name in _PAIRS for stride in _STRIDES),
    *_words("mask_start mask_outer mask_batch mask_own mask_other"),
)
_OF_ATTENTION = frozenset({"IN_REGISTERS", "OWN_ROWS", "OWN_TILE", "column_tiles"})

INTERFACES = {
    "attention": Interface(
        (*_read(*_PAIRS), *_read("mask", type="u32"), *_written("result", "log_sums")), _ATTENTION, _OF_ATTENTION
    ),
    "attention_delta": Interface(
        (*_read("grad", "values", "log_sums"), *_written("of_queries", type="vec2<f32>")),
        _words("queries rows columns batch_inner start outer_stride batch_stride row_stride column_stride"),
    ),
    "attention_grad": Interface(
        (
            *_read(*_PAIRS),
            *_read("mask", type="u32"),
            *_written("result"),
            *_read("of_queries", type="vec2<f32>"),
        ),
        _ATTENTION,
        _OF_ATTENTION,
    ),
    "join_rows": Interface((*_read("sorted", type="u32"), *_written("sums")), _ROWS),
    "matmul": Interface(
        (*_read("a", "b"), *_written("c")),
        _words(
            "rows columns inner a_row_stride a_inner_stride b_inner_stride b_column_stride a_start b_start "
            "first_product batch_inner a_outer_stride a_batch_stride b_outer_stride b_batch_stride"
        ),
    ),
    "merge_rows": Interface(
        (*_read("rows_in_blocks", "order_in_blocks", type="u32"), *_written("sorted", "order", type="u32")),
        _words("count block"),
    ),
    "scatter": Interface(
        (*_read("values"), *_read("indices", type="i32"), *_written("sums")),
        _words("size count inner length outer_stride entry_stride inner_stride first end"),
    ),
    "sort_rows": Interface(
        (*_read("indices", type="i32"), *_written("sorted", "order", type="u32")), _words("count rows block")
    ),
    "spread_rows": Interface(
        (*_read("sorted", type="u32"), *_read("sums"), *_written("dense")), (*_ROWS, ("first", "u32"))
    ),
    "sum_rows": Interface(
        (*_read("values"), *_read("sorted", "order", type="u32"), *_written("sums")), _ROWS
    ),
}  # fmt: skip
"""By the name of the file of ``shaders/kernels``."""
