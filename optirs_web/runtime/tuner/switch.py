"""The switch that says whether the tuner's choices are used, and the subject that they are kept under."""

from __future__ import annotations

import os

from .. import kept
from ..backend import AdapterInfo

__all__ = ["requested", "set_requested", "subject_of", "uses_choices"]

_requests: list[bool] = []


def set_requested(enabled: bool) -> None:
    """Set whether choices are used. This has precedence over OPTIRS_TUNE."""
    _requests[:] = [enabled]


def requested() -> bool | None:
    """Return whether choices are to be used: True, False, or None where nobody has said.

    Raises:
        ValueError: OPTIRS_TUNE is neither 0 nor 1.
    """
    if _requests:
        return _requests[0]
    setting = os.environ.get("OPTIRS_TUNE", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"OPTIRS_TUNE must be 0 or 1, not '{setting}'")
    return setting == "1" if setting else None


def uses_choices(info: AdapterInfo) -> bool:
    """Return whether a device that is opened is given choices: they are asked for, or a search has saved some."""
    setting = requested()
    return setting is True or (setting is None and bool(kept.load(subject_of(info))))


def subject_of(info: AdapterInfo) -> str:
    """Name what choices are of: the device as the driver calls it, with the driver's version where that is known."""
    return " ".join(part for part in ("tuned kernels:", info.name, info.description, kept.driver()) if part)
