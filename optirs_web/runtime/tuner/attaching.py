"""The tuner's choices for a device that was just opened."""

from __future__ import annotations

from ..backend import Backend
from .switch import uses_choices

__all__ = ["attach_choices"]


def attach_choices(backend: Backend) -> None:
    """Let the tuner's choices apply to a device's launches, if they are asked for or a search has saved some."""
    if uses_choices(backend.info):
        from .choices import Choices  # most devices have none, and save the 20 ms that it takes to load

        Choices(backend).attach()
