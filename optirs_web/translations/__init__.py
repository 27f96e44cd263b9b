"""Translate kernels to other languages, for ``optirs-web shader`` and the demo's shader page."""

from __future__ import annotations

from .targets import PYTHON_DIALECTS, TARGETS, NoTextError, is_ours, missing_compiler, readable, translate

__all__ = ["PYTHON_DIALECTS", "TARGETS", "NoTextError", "is_ours", "missing_compiler", "readable", "translate"]
