"""The rows, columns and matrices of a tensor of which a rule keeps state, for NumPy and JAX; see `wgsl.line_lookup`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...wgsl import line_lookup

__all__ = ["KINDS", "Shape"]

KINDS = tuple(line_lookup.LINE_STRUCTS)


class Shape(NamedTuple):
    """The members of Shape in WGSL; here all of an arena is seen at once."""

    first: int
    matrices: int
    rows: int
    columns: int
    lines: int
    partials: int
    log_rows: int
    log_columns: int
    turns: int
    is_matrix: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.matrices * self.rows * self.columns

    def count(self, kind: str) -> int:
        """Return the number of lines of a kind."""
        return line_lookup.line_counts(self.matrices, self.rows, self.columns)[kind]

    def length(self, kind: str) -> int:
        """Return the number of elements of a line of a kind."""
        return {"row": self.columns, "column": self.rows, "matrix": self.rows * self.columns}[kind]

    def partials_of(self, kind: str) -> tuple[int, int]:
        """Return the first of the partials of a kind, and their number for each line; for "" the end of all."""
        tiles = line_lookup.tiles_of_lines(self.rows, self.columns, self.log_rows, self.log_columns)
        first = self.partials + sum(self.turns * tiles[other] * self.count(other) for other in _before(kind))
        return first, self.turns * tiles.get(kind, 0)

    def state_of(self, kind: str, members: Mapping[str, Sequence[str]]) -> int:
        """Return the first word of the state of lines of a kind, by the members of each kind; for "" the end of all."""
        return self.lines + sum(len(members.get(other, ())) * self.count(other) for other in _before(kind))


def _before(kind: str) -> tuple[str, ...]:
    return KINDS[: KINDS.index(kind)] if kind else KINDS
