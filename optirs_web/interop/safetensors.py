"""The safetensors file format, read and written without a library: the browser has none for it.

A file is the length of the header (8 bytes, little-endian), the header (JSON: for each tensor its dtype,
shape and place; under ``__metadata__`` strings by name), and the tensors' bytes, without gaps.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CheckpointError

__all__ = ["Entry", "Source", "load", "name_of", "parts", "save_file"]

Source = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A file, or its content."""

_ITEMSIZE = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
             "I8": 1, "U8": 1, "BOOL": 1}  # fmt: skip
_MAX_HEADER = 100_000_000  # as the reference implementation


class Entry(NamedTuple):
    """One tensor in a file. `dtype` is the format's word: "F32", "I32", ..."""

    dtype: str
    shape: tuple[int, ...]
    content: memoryview


def parts(tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """The content of a file: these, one after the other. Tensors are not copied."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, entry in tensors.items():
        end = offset + entry.content.nbytes
        header[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(entry.content for entry in tensors.values())]


def save_file(path: str | os.PathLike[str], tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
    """Write a file. Whoever reads `path` sees the old file or the new one, never a part, whatever is killed when."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb") as file:
            for part in parts(tensors, metadata):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def name_of(source: Source) -> str:
    """What messages call it: the path, or "the checkpoint" for bytes."""
    return "the checkpoint" if isinstance(source, (bytes, bytearray, memoryview)) else str(source)


def load(source: Source) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors and metadata of a file, or of its content.

    Raises:
        CheckpointError: it is no safetensors file, or damaged.
        FileNotFoundError: there is no such file.
    """
    path = name_of(source)
    is_content = isinstance(source, (bytes, bytearray, memoryview))
    raw = memoryview(source if is_content else Path(source).read_bytes())  # type: ignore[arg-type]
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(_MAX_HEADER, len(raw) - 8):
        raise CheckpointError(f"{path} is no safetensors file, or is cut off: its header does not fit")
    try:
        header = json.loads(bytes(raw[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no safetensors file: its header is not JSON ({error})") from error
    body = raw[8 + length :]
    try:
        metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
        tensors = {name: _entry(place, body) for name, place in header.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from error
    end = 0
    for begin, stop in sorted(place["data_offsets"] for place in header.values()):
        if begin != end:
            raise CheckpointError(f"{path} is damaged: its tensors overlap or leave gaps at byte {min(begin, end):,}")
        end = stop
    if end != len(body):
        raise CheckpointError(f"{path} is damaged: its tensors take {end:,} bytes of {len(body):,}")
    return tensors, metadata


def _entry(place: Mapping[str, Any], body: memoryview) -> Entry:
    dtype, shape, (begin, end) = place["dtype"], tuple(place["shape"]), place["data_offsets"]
    if dtype not in _ITEMSIZE or not all(isinstance(one, int) and one >= 0 for one in (*shape, begin, end)):
        raise ValueError(f"a tensor of dtype {dtype} and shape {shape}")
    if not begin <= end <= len(body) or end - begin != math.prod(shape) * _ITEMSIZE[dtype]:
        raise ValueError(f"a tensor of shape {shape} lies in bytes {begin} to {end} of {len(body)}")
    return Entry(dtype, shape, body[begin:end])
