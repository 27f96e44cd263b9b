"""The `__init__` of the library's wheel for browsers: at the first import it unpacks the library, and becomes it.

`pack` says what the archive is; `__init__` is the last file in it.
"""

import lzma
import os


class _Words(dict[int, str]):
    """Words by their codes; any other code stands for itself."""

    def __missing__(self, code: int) -> str:
        return chr(code)


def _unpack(folder: str) -> None:
    packed = os.path.join(folder, "library.xz")
    with open(packed, "rb") as file:
        words, _, coded = lzma.decompress(file.read()).decode().partition("\0")
    plain = _Words((code, chr(code)) for code in range(128))
    codes = [code for code in range(4, 2048) if code != 10 and not 32 <= code < 127]
    for code, word in zip(codes, words.split("\1"), strict=False):
        plain[code] = word
    files, _, strings = coded.partition("\1")
    string = iter(strings.split("\2"))
    made = set()
    for one in files.split("\0"):  # one by one, because a page keeps all memory that it ever took
        first, *others = one.split("\3")
        text = first + "".join(next(string) + other for other in others)
        # Faster than str.translate, which looks every character up as a number of its own.
        units = memoryview(text.encode("utf-16-le")).cast("H")
        name, _, content = "".join(map(plain.__getitem__, units)).partition("\n")
        path = os.path.join(folder, name)
        parent = os.path.dirname(path)
        if parent not in made:
            made.add(parent)
            os.makedirs(parent, exist_ok=True)
        with open(path, "wb") as file:
            file.write(content.encode())
    os.remove(packed)


_unpack(os.path.dirname(__file__))
with open(__file__, "rb") as _file:
    exec(compile(_file.read(), __file__, "exec"))
