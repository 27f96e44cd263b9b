"""The choices for one device, and the launches that are given them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from .. import kept
from ..backend import Backend
from ..launches import Launch
from .candidates import Choice, Tunable, tunable_of
from .records import Record, parse_record
from .shipped import shipped_for
from .switch import requested, subject_of

__all__ = ["Choices", "Work"]

Work = tuple[Tunable, str]
"""A tunable and a class of shapes, which have a choice."""


class Choices:
    """Called with each launch of a device, gives it the kernel and the grid that were chosen for its shape.

    Attributes:
        searched: the choices of searches.
        shipped: those that came with the library; used where no search has found one, and asked for.
        seen: while a search listens, the launches of each work that came by: one of them, and how many; None otherwise.
    """

    def __init__(self, backend: Backend) -> None:
        """Begin without choices."""
        self.backend = backend
        self.searched: dict[Work, Choice] = {}
        self.shipped: Mapping[Work, Choice] = {}
        self.seen: dict[Work, tuple[Launch, int]] | None = None

    def attach(self) -> None:
        """Take those that are kept for the device, and be asked for each launch from now on."""
        self.take(kept.load(subject_of(self.backend.info)))

    def take(self, figures: Mapping[str, Any]) -> None:
        """Take choices as they are kept, and be asked for each launch from now on.

        Those of other kernels are left out, and what is no choice with a warning.
        """
        for name, figure in figures.items():
            try:
                record = parse_record(name, figure)
            except ValueError as error:
                warnings.warn(f"'{name}' in {kept.path()} is not a tuned choice, and is ignored: {error}", stacklevel=3)
                continue
            if record is not None:
                self.add(record)
        self.shipped = shipped_for(self.backend.info) if requested() else {}
        self.backend.tuned = self

    def add(self, record: Record) -> None:
        """Use a choice."""
        self.searched[record.tunable, record.shape_class] = record.choice

    def chosen(self, work: Work, launch: Launch) -> Choice:
        """The choice for a work, or the default of this launch of it."""
        return self.searched.get(work) or self.shipped.get(work) or work[0].default(launch)

    def __call__(self, launch: Launch) -> Launch:
        """The launch as it is to run."""
        tunable = tunable_of(launch.kernel)
        if tunable is None:
            return launch
        work = tunable, tunable.shape_class(launch)
        if self.seen is not None:
            example, count = self.seen.get(work, (launch, 0))
            self.seen[work] = example, count + 1
        return tunable.tuned(launch, self.chosen(work, launch), self.backend.capabilities)
