"""Options that follow schedules or metrics, on the processor: `OptionKernel` over Python's floats, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ....runtime.option_kernels import OptionKernel, OptionWords, host_functions
from .library import Array, Parameters

__all__ = ["bind_options"]

_functions_of = cache(lambda kernel: host_functions(kernel.map_module, "follow"))


def bind_options(kernel: OptionKernel, arrays: Sequence[Array], values: Parameters) -> Callable[[], None]:
    """Return a call that applies `follow` to every row of the table."""
    bound = {binding.name: array.view(np.float32) for binding, array in zip(kernel.bindings, arrays, strict=True)}
    hyper, table = bound["hyper"], bound["rows"].reshape(-1, len(kernel.members))
    functions = _functions_of(kernel)

    def run() -> None:
        inputs: dict[str, Any] = dict(values)
        if "metric" in bound:
            inputs["metric"] = float(bound["metric"][0])
        for row in table:
            inputs["row"] = functions["Row"](*row.tolist())
            option_words = OptionWords(*map(int, inputs["row"][: len(OptionWords._fields)]))
            inputs["current"] = float(hyper[max(option_words.at, 0)])
            followed = functions["follow"](*(inputs[name] for name in kernel.arguments))
            row[:] = followed.row
            is_changed, *numbers = followed.option
            for word, number in zip(option_words, numbers, strict=True):
                if is_changed and word >= 0:
                    hyper[word] = number

    return run
