"""What a kernel is in other languages: the texts that ``optirs-web shader`` prints and the demo's page shows."""

from __future__ import annotations

from .targets import TARGETS, NoTextError, is_ours, missing_compiler, readable, translate

__all__ = ["TARGETS", "NoTextError", "is_ours", "missing_compiler", "readable", "translate"]
