"""The benchmark suite: speed and memory by case and device, alternating with other libraries.

`Benchmark` runs one case; ``optirs-web bench`` runs them by group and writes JSON, tables and plots.

Example:
    >>> import optirs_web as ow
    >>> ow.benchmarks.cases("attention")
    ['attention/full', 'attention/full-gradients', 'attention/causal', 'attention/causal-gradients']
"""

from __future__ import annotations

from .benchmark import Benchmark
from .cases import CASES, GROUPS
from .results import Figure, Result

__all__ = ["Benchmark", "Figure", "Result", "cases"]


def cases(*groups: str) -> list[str]:
    """Return the names of the suite's cases in the order in which they run, all or those of some groups.

    Args:
        groups: "steps", "products", "attention", "conv", "reduce", "train", "startup", "transfer" or "memory".

    Raises:
        ValueError: there is no such group.

    Example:
        >>> import optirs_web as ow
        >>> ow.benchmarks.cases("startup")
        ['startup/import', 'startup/tensor', 'startup/result']
    """
    unknown = set(groups) - set(GROUPS)
    if unknown:
        raise ValueError(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    return [name for name, case in CASES.items() if not groups or case.group in groups]
