"""The `__init__` of the library's wheel for browsers: at the first import it unpacks the library, and becomes it.

The archive is one text: a name and a text for each file, `__init__` last.
"""

import lzma
import os


def _unpack(folder: str) -> None:
    packed = os.path.join(folder, "library.xz")
    with open(packed, "rb") as file:
        files = lzma.decompress(file.read()).decode().split("\0")
    for one in files:
        name, _, text = one.partition("\n")
        path = os.path.join(folder, name)
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(text.encode())
    os.remove(packed)


_unpack(os.path.dirname(__file__))
with open(__file__, "rb") as _file:
    exec(compile(_file.read(), __file__, "exec"))
