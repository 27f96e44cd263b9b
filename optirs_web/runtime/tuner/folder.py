"""The folder where choices are kept, a file for each, and whether they are used at all."""

from __future__ import annotations

import os
import warnings

from .. import user_cache

__all__ = ["Folder", "asked", "folder_of_user", "set_asked", "uses_choices"]

_asked: list[bool] = []


def set_asked(enabled: bool) -> None:
    """What a program says has precedence over OPTIRS_TUNE."""
    _asked[:] = [enabled]


def asked() -> bool | None:
    """Whether choices are to be used: True, False, or None where nobody has said.

    Raises:
        ValueError: OPTIRS_TUNE is neither 0 nor 1.
    """
    if _asked:
        return _asked[0]
    said = os.environ.get("OPTIRS_TUNE", "")
    if said not in ("", "0", "1"):
        raise ValueError(f"OPTIRS_TUNE must be 0 or 1, not '{said}'")
    return said == "1" if said else None


def folder_of_user() -> str:
    """Where this user's choices are kept."""
    return os.path.join(user_cache.folder(), "tuned")


def uses_choices() -> bool:
    """A device that is opened is given choices: they are asked for, or a search has saved some."""
    said = asked()
    return said is True or (said is None and os.path.isdir(folder_of_user()))


class Folder:
    """The choices for one device: each is a file, which is replaced as a whole, so that processes may write at once."""

    def __init__(self, key: str) -> None:
        """`key` names the device and the kernels that were measured."""
        self._path = os.path.join(folder_of_user(), key)

    def load(self) -> dict[str, str]:
        """The texts by where they stand."""
        found: dict[str, str] = {}
        try:
            names = sorted(os.listdir(self._path))
        except OSError:
            return found
        for name in names:
            if name.endswith(".json"):
                path = os.path.join(self._path, name)
                try:
                    with open(path, encoding="utf-8", errors="replace") as file:
                        found[path] = file.read()
                except OSError as error:
                    warnings.warn(f"{path} cannot be read, and is ignored: {error}", stacklevel=2)
        return found

    def save(self, name: str, text: str) -> None:
        """Keep a text. Where that is impossible, a warning says so."""
        path = os.path.join(self._path, f"{name.replace(' ', '_')}.json")
        try:
            user_cache.write(path, text)
        except OSError as error:
            warnings.warn(f"a tuned choice is used, but cannot be saved for other processes: {error}", stacklevel=2)
