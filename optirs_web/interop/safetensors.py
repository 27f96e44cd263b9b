"""The safetensors file format, read and written without a library, as in a browser there is none.

A file is the length of the header (8 bytes, little-endian), the header (JSON: for each tensor its dtype,
shape and offsets; under ``__metadata__`` strings by name), and the tensors' bytes, without gaps.

The format has no digest. A file that `with_digest` signed, as every checkpoint is, has the SHA-256 of its content in
its metadata, under ``optirs_web.sha256``, and `load` checks it: of the compact JSON, with sorted keys, of
``{"metadata": ..., "tensors": {name: [dtype, shape]}}`` without the digest itself, followed by the tensors' bytes in
the order of their names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CheckpointError, UnsupportedError, quoted
from ..files import write_whole
from ..hostdata import HostData, host_data
from ..runtime.device import gathered
from ..runtime.dtypes import BOOL, FLOAT32, INT32, DType, widened
from ..tensors import Tensor

__all__ = [
    "Entry",
    "Source",
    "data_of",
    "dump_state_dict",
    "dump_state_dict_async",
    "entry_of",
    "load",
    "load_state_dict",
    "name_of",
    "parts",
    "save_file",
    "save_state_dict",
    "with_digest",
]

Source = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A file, or its content."""

_ITEMSIZE = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
             "I8": 1, "U8": 1, "BOOL": 1}  # fmt: skip
_METADATA = "__metadata__"
_DIGEST = "optirs_web.sha256"
_MAX_ELEMENTS = 1 << 60
_MAX_DIGITS = 19  # of 2**60
_MAX_AXES = 64  # as many as a memoryview can have
_MAX_HEADER = 100_000_000  # as the reference implementation


class Entry(NamedTuple):
    """A tensor of a file. `dtype` is the format's name of the type: "F32", "I32", ..."""

    dtype: str
    shape: tuple[int, ...]
    content: memoryview


def parts(tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Return the content of a file as parts to concatenate. Tensors are not copied.

    Raises:
        CheckpointError: a tensor has the name that the format reserves for metadata.
    """
    if _METADATA in tensors:
        raise CheckpointError(f"the format has no tensor of the name '{_METADATA}': rename it")
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, entry in tensors.items():
        end = offset + entry.content.nbytes
        header[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(entry.content for entry in tensors.values())]


def with_digest(tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata with the SHA-256 of metadata and tensors added, which `load` checks."""
    return {**metadata, _DIGEST: _digest(tensors, metadata)}


def _digest(tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> str:
    names = sorted(tensors)
    described = {"metadata": dict(metadata), "tensors": {name: tensors[name][:2] for name in names}}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, separators=(",", ":")).encode())
    for name in names:
        digest.update(tensors[name].content)
    return digest.hexdigest()


def save_file(path: str | os.PathLike[str], tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
    """Write a file atomically; see `files.write_whole`."""
    write_whole(path, parts(tensors, metadata))


def name_of(source: Source) -> str:
    """Return the name of a source for messages: its path, or "the checkpoint" for bytes."""
    return "the checkpoint" if isinstance(source, (bytes, bytearray, memoryview)) else str(source)


def load(source: Source) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors and metadata of a file, or of its content.

    Raises:
        CheckpointError: it is not a safetensors file, is damaged, or is not what its digest was computed from.
        FileNotFoundError: there is no such file.

    Example:
        >>> import optirs_web as ow
        >>> content = ow.interop.safetensors.dump_state_dict({"weight": ow.ones((2, 3), device="cpu")})
        >>> tensors, metadata = ow.interop.safetensors.load(content)
        >>> tensors["weight"].dtype, tensors["weight"].shape, metadata
        ('F32', (2, 3), {'format': 'pt'})
    """
    path = name_of(source)
    is_content = isinstance(source, (bytes, bytearray, memoryview))
    view = memoryview(source if is_content else Path(source).read_bytes())  # type: ignore[arg-type]
    raw = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(_MAX_HEADER, len(raw) - 8):
        raise CheckpointError(f"{path} is not a safetensors file, or is cut off: its header does not fit")
    try:
        text = bytes(raw[8 : 8 + length]).decode()
        header = json.loads(text, object_pairs_hook=_without_duplicates, parse_int=_size, parse_constant=_constant)
        if not isinstance(header, dict):
            raise ValueError("it is not an object")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: its header cannot be read ({error})") from error
    body = raw[8 + length :]
    try:
        metadata = _strings(header.pop(_METADATA, {}))
        tensors = {name: _entry(name, described, body) for name, described in header.items()}
        "".join([*tensors, *metadata, *metadata.values()]).encode()  # JSON can hold half of a surrogate pair
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    end = 0
    for begin, stop in sorted(described["data_offsets"] for described in header.values()):
        if begin != end:
            raise CheckpointError(f"{path} is damaged: its tensors overlap or leave gaps at byte {min(begin, end):,}")
        end = stop
    if end != len(body):
        raise CheckpointError(f"{path} is damaged: its tensors take {end:,} bytes of {len(body):,}")
    digest = metadata.pop(_DIGEST, None)
    if digest is not None and digest != _digest(tensors, metadata):
        raise CheckpointError(
            f"{path} is damaged or was edited: its content does not match the SHA-256 in its metadata "
            f"('{_DIGEST}'; without that entry nothing is compared)"
        )
    return tensors, metadata


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for name, value in pairs:
        if name in unique:
            raise ValueError(f"the name {quoted(name)} occurs twice")
        unique[name] = value
    return unique


def _size(digits: str) -> int:
    """Return a size or an offset. More digits are refused: Python parses them in quadratic time."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _strings(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not strings by name")
    return metadata


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= _MAX_ELEMENTS for value in values)


def _entry(name: str, described: Any, body: memoryview) -> Entry:
    if not isinstance(described, dict) or not {"dtype", "shape", "data_offsets"} <= described.keys():
        raise ValueError(f"{quoted(name)} lacks its dtype, shape or offsets")
    dtype, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEMSIZE:
        raise ValueError(f"{quoted(name)} has an unknown dtype, {quoted(dtype)}")
    if not (_are_sizes(shape) and len(shape) <= _MAX_AXES and _are_sizes(offsets) and len(offsets) == 2):
        raise ValueError(f"{quoted(name)} has the shape {quoted(shape)} and the offsets {quoted(offsets)}")
    begin, end = offsets
    elements = 1
    for size in shape:  # the product of many sizes takes quadratic time
        elements *= max(1, size)
        if elements > _MAX_ELEMENTS:
            raise ValueError(f"{quoted(name)} is too large: it has the shape {quoted(shape)}")
    if not begin <= end <= len(body) or end - begin != math.prod(shape) * _ITEMSIZE[dtype]:
        raise ValueError(
            f"{quoted(name)}, {dtype} of shape {quoted(shape)}, does not fill the bytes {begin:,} to {end:,} "
            f"of {len(body):,}"
        )
    return Entry(dtype, tuple(shape), body[begin:end])


# State dicts of models.

_FORMATS = {"F64": "d", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U32": "I", "U8": "B", "BOOL": "?"}
_WORDS = {"float32": "F32", "int32": "I32", "uint32": "U32", "bool": "BOOL", "float16": "F16", "bfloat16": "BF16"}


def load_state_dict(source: Source) -> dict[str, HostData]:
    """The tensors of a file by name, ready for `Module.load_state_dict` or `optirs_web.tensor`.

    Floats of other sizes, bfloat16 too, become float32, and integers int32.

    Args:
        source: the file, as torch's users save weights, or its content as bytes.

    Raises:
        CheckpointError: it is not a safetensors file, or is damaged.
        FileNotFoundError: there is no such file.
        OverflowError: an integer does not fit int32.
        UnsupportedError: a tensor has a type that no tensor of ours can have.

    Example:
        >>> import optirs_web as ow
        >>> layer, other = (ow.nn.Linear(3, 2, device="cpu") for _ in range(2))
        >>> content = ow.interop.safetensors.dump_state_dict(layer.state_dict())
        >>> other.load_state_dict(ow.interop.safetensors.load_state_dict(content))
        IncompatibleKeys(missing_keys=[], unexpected_keys=[])
    """
    return {name: data_of(name, entry) for name, entry in load(source)[0].items()}


def data_of(name: str, entry: Entry) -> HostData:
    """Return the data of a tensor of a file in a type that tensors have; see `load_state_dict`."""
    if entry.dtype == "F32":
        return HostData(entry.content, entry.shape, FLOAT32)
    if entry.dtype == "BF16":
        return HostData(widened(entry.content), entry.shape, FLOAT32)
    if entry.dtype == "F16":  # which no memoryview can be cast to
        values = array("f", struct.unpack(f"<{entry.content.nbytes // 2}e", entry.content))
        return HostData(memoryview(values).cast("B"), entry.shape, FLOAT32)
    if entry.dtype not in _FORMATS:
        raise UnsupportedError(f"{quoted(name)} is of {entry.dtype}, which is not supported; save it as F32 or I32")
    type_ = FLOAT32 if entry.dtype[0] == "F" else None if entry.dtype in ("U32", "BOOL") else INT32
    raw: Any = entry.content
    return host_data(raw.cast(_FORMATS[entry.dtype]), type_)._replace(shape=entry.shape)


def dump_state_dict(state_dict: Mapping[str, Tensor]) -> bytes:
    """The content of a file with these tensors, which torch's users can load. Waits.

    Tied parameters are written under each of their names.

    Example:
        >>> import optirs_web as ow
        >>> content = ow.interop.safetensors.dump_state_dict({"weight": ow.ones((2, 3), device="cpu")})
        >>> {name: data.shape for name, data in ow.interop.safetensors.load_state_dict(content).items()}
        {'weight': (2, 3)}
    """
    return b"".join(parts({name: _read(tensor) for name, tensor in state_dict.items()}, {"format": "pt"}))


def save_state_dict(path: str | os.PathLike[str], state_dict: Mapping[str, Tensor]) -> None:
    """Write a file with these tensors atomically; see `dump_state_dict`.

    Raises:
        FileNotFoundError: there is no such folder.

    Example:
        >>> import optirs_web as ow
        >>> import os
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "weights.safetensors")
        ...     ow.interop.safetensors.save_state_dict(path, {"weight": ow.ones((2, 3), device="cpu")})
        ...     sorted(ow.interop.safetensors.load_state_dict(path))
        ['weight']
    """
    save_file(path, {name: _read(tensor) for name, tensor in state_dict.items()}, {"format": "pt"})


async def dump_state_dict_async(state_dict: Mapping[str, Tensor]) -> bytes:
    """The awaitable twin of `dump_state_dict`."""
    reading = gathered({name: tensor.device.read_async(tensor.view) for name, tensor in state_dict.items()})
    contents = await reading
    entries = {name: entry_of(tensor.dtype, tensor.shape, contents[name]) for name, tensor in state_dict.items()}
    return b"".join(parts(entries, {"format": "pt"}))


def _read(tensor: Tensor) -> Entry:
    return entry_of(tensor.dtype, tensor.shape, tensor.device.read(tensor.view))


def entry_of(dtype: DType, shape: tuple[int, ...], content: memoryview) -> Entry:
    """Return the entry of a file for the content of a tensor on a device."""
    if dtype is BOOL:  # a byte each
        content = memoryview(bytes(content.cast("B")[:: dtype.itemsize]))
    return Entry(_WORDS[dtype.name], shape, content[: dtype.itemsize * math.prod(shape)])
