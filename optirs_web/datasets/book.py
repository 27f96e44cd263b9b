"""A text for language models: the first half of Jane Austen's "Northanger Abbey", which is in the public domain."""

from __future__ import annotations

import gzip
from importlib.resources import files

__all__ = ["load_book"]


def load_book() -> str:
    """Return the first half (chapters 1 to 15) of "Northanger Abbey": 204,693 ASCII characters in lines of about 70.

    Needs no NumPy. `optirs_web/datasets/README.md` names the source.

    Example:
        >>> book = load_book()
        >>> len(book), len(set(book)), book[:9]
        (204693, 73, 'CHAPTER 1')

    Reference:
        J. Austen, Northanger Abbey, London, 1817.
    """
    return gzip.decompress(files(__package__).joinpath("book.txt.gz").read_bytes()).decode("ascii")
