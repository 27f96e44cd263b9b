"""Format figures with three digits and a unit."""

from __future__ import annotations

__all__ = ["bytes_text", "rate_text", "seconds_text", "share_text"]

_LARGE = ("", "k", "M", "G", "T", "P")


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rate_text(value: float, unit: str) -> str:
    """Return "1.23 GB/s" for 1.23e9 and "B/s"."""
    step = 0
    while value >= 999.5 and step + 1 < len(_LARGE):
        value, step = value / 1000, step + 1
    return f"{_three_digits(value)} {_LARGE[step]}{unit}"


def bytes_text(nbytes: float) -> str:
    """Return "1.23 MB" for 1.23e6; powers of ten, as in rates."""
    return f"{nbytes:.0f} B" if nbytes < 1000 else rate_text(nbytes, "B")


def seconds_text(seconds: float) -> str:
    """Return "1.23 ms" for 0.00123."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.9995 or unit == "µs":
            return f"{_three_digits(seconds * factor)} {unit}"
    raise AssertionError("unreachable")


def share_text(share: float) -> str:
    """Return "12.3%" for 0.123."""
    return f"{100 * share:.1f}%"
