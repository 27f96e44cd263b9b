"""The switch that says whether the tuner's choices are used, and the subject that they are kept under."""

from __future__ import annotations

import os

from .. import kept
from ..backend import AdapterInfo

__all__ = ["asked", "set_asked", "subject_of", "uses_choices"]

_asked: list[bool] = []


def set_asked(enabled: bool) -> None:
    """Set whether choices are used. This has precedence over OPTIRS_TUNE."""
    _asked[:] = [enabled]


def asked() -> bool | None:
    """Return whether choices are to be used: True, False, or None where nobody has said.

    Raises:
        ValueError: OPTIRS_TUNE is neither 0 nor 1.
    """
    if _asked:
        return _asked[0]
    said = os.environ.get("OPTIRS_TUNE", "")
    if said not in ("", "0", "1"):
        raise ValueError(f"OPTIRS_TUNE must be 0 or 1, not '{said}'")
    return said == "1" if said else None


def uses_choices(info: AdapterInfo) -> bool:
    """Return whether a device that is opened is given choices: they are asked for, or a search has saved some."""
    said = asked()
    return said is True or (said is None and bool(kept.load(subject_of(info))))


def subject_of(info: AdapterInfo) -> str:
    """Name what choices are of: the device as the driver calls it, with the driver's version where that is known."""
    return " ".join(part for part in ("tuned kernels:", info.name, info.description, kept.driver()) if part)
