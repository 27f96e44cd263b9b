r"""Texts as one archive, smaller than what they compress to as they are; `unpack` takes it apart.

Strings lie behind the code, because each is more like its own kind. Frequent words, parts of words, and what stands
between them become one character each. What comes out is a text of four parts, whose separators are in no source:

    words, by "\1"  "\0"  the files, by "\0", with "\3" for each string  "\1"  the strings, by "\2"
"""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Mapping

__all__ = ["pack"]

# Those of `unpack`: one byte each for what is most frequent, then two.
_CODES = [chr(code) for code in range(4, 2048) if code != 10 and not 32 <= code < 127]
_IN_ONE_BYTE = 28
_STRING = re.compile(r"""(?s)\"{3}.*?\"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
# What these leave compressed best of about thirty phrases. Characters that are codes are words.
_WORD = re.compile(r"\n {1,3}|, | = |self\.| in |return |: |[A-Z]?[a-z]+|[A-Z]+|[\x80-\u07ff]")
# Text of few different bytes: their position says nothing, the byte before much. Unpacking takes as much memory as the
# dictionary.
_FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 4, "lp": 0, "pb": 0},
]


def pack(texts: Mapping[str, str]) -> bytes:
    """The archive of texts by their names, in this order. None holds a control character."""
    files = "\0".join(f"{name}\n{text}" for name, text in texts.items())
    strings = _STRING.findall(files)
    whole = _STRING.sub("\3", files) + "\1" + "\2".join(strings)
    words = _words(whole)
    codes = dict(zip(words, _CODES, strict=False))
    coded = "\1".join(words) + "\0" + _WORD.sub(lambda found: codes.get(found[0], found[0]), whole)
    return lzma.compress(coded.encode(), check=lzma.CHECK_CRC32, filters=_FILTERS)


def _words(text: str) -> list[str]:
    """What gets a code: the most frequent first, the others by the alphabet, which compresses best."""
    counts = Counter(_WORD.findall(text))
    often = [word for word, count in counts.items() if (len(word) > 1 and count > 2) or word in _CODES]
    often = sorted(often, key=lambda word: (word not in _CODES, -counts[word], word))[: len(_CODES)]
    often.sort(key=lambda word: (-counts[word], word))
    return [*often[:_IN_ONE_BYTE], *sorted(often[_IN_ONE_BYTE:])]
