"""Nested lists, dicts, numbers and arrays as bytes, both ways. Runs natively and in the browser, so without NumPy."""

import json

__all__ = ["decode", "encode"]


def encode(value):
    """JSON behind its length, then the bytes of the arrays in it."""
    arrays = []

    def plain(one):
        if isinstance(one, dict):
            return {key: plain(part) for key, part in one.items()}
        if isinstance(one, list | tuple):
            return [plain(part) for part in one]
        if one is None or isinstance(one, str | bool | int | float):
            return one
        view = memoryview(one)
        arrays.append(view.cast("B") if view.nbytes else b"")
        return {"": [view.format, *view.shape]}

    text = json.dumps(plain(value)).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *arrays])


def decode(content, array=lambda view, shape: view):
    """Decode a value; `array` makes an array of a typed memoryview and a shape."""
    raw = memoryview(content)
    at = 8 + int.from_bytes(raw[:8], "little")
    value = json.loads(bytes(raw[8:at]))

    def rich(one):
        nonlocal at
        if isinstance(one, list):
            return [rich(part) for part in one]
        if not isinstance(one, dict):
            return one
        if "" not in one:
            return {key: rich(part) for key, part in one.items()}
        format_, *shape = one[""]
        nbytes = 4
        for size in shape:
            nbytes *= size
        part = raw[at : at + nbytes]
        at += nbytes
        return array(part.cast(format_, shape) if nbytes else memoryview(b"").cast(format_), shape)

    return rich(value)
