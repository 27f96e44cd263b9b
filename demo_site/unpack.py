"""The `__init__` of the library's wheel for browsers: at the first import it unpacks the library, and becomes it.

`pack` says what the archive is; `__init__` is the last file in it.
"""

import lzma
import os


def _unpack(folder: str) -> None:
    packed = os.path.join(folder, "library.xz")
    with open(packed, "rb") as file:
        words, _, coded = lzma.decompress(file.read()).decode().partition("\0")
    plain = [chr(code) for code in range(2048)]
    codes = [code for code in range(4, 2048) if code != 10 and not 32 <= code < 127]
    for code, word in zip(codes, words.split("\1"), strict=False):
        plain[code] = word
    files, _, strings = coded.partition("\1")
    string = iter(strings.split("\2"))
    for one in files.split("\0"):  # one by one, because a page keeps all memory that it ever took
        first, *others = one.split("\3")
        text = first + "".join(next(string) + other for other in others)
        name, _, content = text.translate(plain).partition("\n")
        path = os.path.join(folder, name)
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(content.encode())
    os.remove(packed)


_unpack(os.path.dirname(__file__))
with open(__file__, "rb") as _file:
    exec(compile(_file.read(), __file__, "exec"))
