"""Devices that fail: those on which nothing runs are avoided by "auto"; and what is said once."""

from __future__ import annotations

from ..backend import Backend
from ..open_devices import avoid

__all__ = ["note_failure", "say_once"]

_AT_MOST = 3
"""Submits that fail one after the other before a device is avoided."""

_failed: dict[str, tuple[int, int]] = {}
"""By label: how many submits have failed in a row, and the submits that had gone well by then."""

_said: set[str] = set()


def note_failure(backend: Backend) -> None:
    """A submit has failed on this device. Want of memory is no failure."""
    label, well = backend.info.label, backend.stats.submits
    count, then = _failed.get(label, (0, well))
    count = count + 1 if then == well else 1
    _failed[label] = count % _AT_MOST, well
    if count == _AT_MOST:
        avoid(label, f"{count} submits in a row failed on it")


def say_once(text: str, *, is_trouble: bool) -> None:
    """Log it, unless this process has done so: as a warning where something is wrong that could be mended."""
    import logging  # which wgpu loads too

    if text not in _said:
        _said.add(text)
        logging.getLogger("optirs_web").log(logging.WARNING if is_trouble else logging.INFO, text)
