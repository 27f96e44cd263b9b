"""A row of the table."""

from typing import Any, NamedTuple

__all__ = ["MATRICES", "VECTORS", "Case"]

VECTORS = ((1,), (3,), (255,), (256,), (257,), (16, 65))
MATRICES = ((3, 5), (16, 16), (40, 24), (7, 130))


class Case(NamedTuple):
    """One optimizer with one set of options.

    Attributes:
        name: of the case.
        optimizer: the class in `optirs_web.optim`.
        options: what it is given.
        source: what it is compared with: "torch" (the class of that name in `torch.optim`, in float64), or a function
            of a module in `tests/optimizer_references`, as "optax_twins.lamb" or "norms.lars".
        more: options of the source besides; a "name" there is that of the class in `torch.optim`.
        shapes: of the parameters.
        steps: how many.
        tolerance: of the parameters' largest magnitude.
        state_tolerance: of that of each state; None where the source has no state of that name.
    """

    name: str
    optimizer: str
    options: dict[str, Any]
    source: str = "torch"
    more: dict[str, Any] = {}  # noqa: RUF012 (a NamedTuple's default)
    shapes: tuple[tuple[int, ...], ...] = VECTORS
    steps: int = 100
    tolerance: float = 5e-6
    state_tolerance: float = 1e-5
