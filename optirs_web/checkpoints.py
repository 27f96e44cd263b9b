"""Checkpoints: parameters, optimizer state and metadata of a run in one safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import CheckpointError, quoted
from .hostdata import HostData, host_data
from .interop.safetensors import Entry, Source, data_of, entry_of, load, name_of, parts, save_file, with_digest
from .optim import Optimizer
from .runtime.buffer import View
from .runtime.device import gathered
from .runtime.dtypes import FLOAT32
from .tensors import Parameter, Tensor

if TYPE_CHECKING:
    from .nn import Buffer

__all__ = [
    "Notes",
    "checkpoint_extra",
    "checkpoint_notes",
    "dump_checkpoint",
    "dump_checkpoint_async",
    "load_checkpoint",
    "save_checkpoint",
    "save_checkpoint_async",
]

_FORMAT = "optirs-web 1"
_PARAM = "param."
_STATE = "optimizer."
_NAMED = 5  # names in a message


def save_checkpoint(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Parameter | Buffer],
    optimizer: Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a safetensors file from which `load_checkpoint` restores a run, bit for bit on the same device. Waits.

    The file is replaced as a whole: a write that is killed leaves the old one. Its metadata has the SHA-256 of its
    content (see `optirs_web.interop.safetensors`), which is checked whenever it is read.

    Args:
        path: where to write.
        parameters: by name; stored as ``param.NAME``. Of a module ``module.state_dict(keep_vars=True)``, which has its
            buffers too.
        optimizer: its state is stored as ``optimizer.INDEX.SLOT``, its groups in the metadata.
        extra: JSON values, which `load_checkpoint` returns.

    Raises:
        TypeError: a value is neither a `Parameter` nor an `nn.Buffer`, or JSON cannot hold `extra`.
        ValueError: the optimizer has a parameter that is not among `parameters`.
        FileNotFoundError: there is no such folder.

    Example:
        >>> import os, tempfile
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "run.safetensors")
        ...     ow.save_checkpoint(path, {"w": w}, ow.optim.AdamW([w]), extra={"epoch": 3})
        ...     other = ow.Parameter([0.0], device="cpu")
        ...     notes = ow.load_checkpoint(path, {"w": other}, ow.optim.AdamW([other]))
        >>> other.tolist(), notes
        ([1.0], {'epoch': 3})
    """
    save_file(path, *_contents(parameters, optimizer, extra))


def dump_checkpoint(
    parameters: Mapping[str, Parameter | Buffer],
    optimizer: Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the content of the file that `save_checkpoint` writes, as bytes. Waits.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> content = ow.dump_checkpoint({"w": w}, extra={"epoch": 3})
        >>> ow.load_checkpoint(content, {"w": w})
        {'epoch': 3}
    """
    return b"".join(parts(*_contents(parameters, optimizer, extra)))


def dump_checkpoint_async(
    parameters: Mapping[str, Parameter | Buffer],
    optimizer: Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Awaitable[bytes]:
    """The awaitable twin of `dump_checkpoint`: the state at the call, even if training continues meanwhile."""
    reading = _contents_async(parameters, optimizer, extra)

    async def finish() -> bytes:
        return b"".join(parts(*await reading))

    return finish()


def save_checkpoint_async(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Parameter | Buffer],
    optimizer: Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Awaitable[None]:
    """The awaitable twin of `save_checkpoint`: the state at the call."""
    reading = _contents_async(parameters, optimizer, extra)

    async def finish() -> None:
        save_file(path, *await reading)

    return finish()


_Contents = tuple[dict[str, Entry], dict[str, str]]
"""The tensors and the metadata of a file."""


def _contents(parameters: Any, optimizer: Any, extra: Any) -> _Contents:
    views, pack = _plan(parameters, optimizer, extra)
    return pack({key: view.buffer.device.read(view) for key, view in views.items()})


def _contents_async(parameters: Any, optimizer: Any, extra: Any) -> Awaitable[_Contents]:
    views, pack = _plan(parameters, optimizer, extra)
    reading = gathered({key: view.buffer.device.read_async(view) for key, view in views.items()})

    async def finish() -> _Contents:
        return pack(await reading)

    return finish()


def _plan(
    parameters: Mapping[str, Parameter | Buffer], optimizer: Optimizer | None, extra: Mapping[str, Any] | None
) -> tuple[dict[str, View], Callable[[Mapping[str, memoryview]], _Contents]]:
    """Return the views that a checkpoint reads, and a function that makes the file from their contents."""
    _check_what_to_save(parameters, optimizer)
    views = {_PARAM + name: param.view for name, param in parameters.items()}
    kinds = {_PARAM + name: (param.dtype, param.shape) for name, param in parameters.items()}
    notes: dict[str, Any] = {"extra": dict(extra or {})}
    make = None
    if optimizer is not None:
        views.update({_STATE + name: view for name, view in optimizer.state_views().items()})
        make = optimizer.state_reader()
        notes["optimizer"] = {"type": type(optimizer).__name__, "param_groups": optimizer.numbered_groups()}
    _as_json(notes)  # raises for values that cannot be saved, before anything is read

    def pack(contents: Mapping[str, memoryview]) -> _Contents:
        tensors = {name: entry_of(*kind, contents[name]) for name, kind in kinds.items()}
        if make is not None:
            state = {name.removeprefix(_STATE): raw for name, raw in contents.items() if name.startswith(_STATE)}
            optimizer_state = make(state)
            notes["optimizer"]["param_groups"] = optimizer_state["param_groups"]  # with values from the device
            for number, entry in optimizer_state["state"].items():
                for slot, value in entry.items():
                    tensors[f"{_STATE}{number}.{slot}"] = _entry(value)
        return tensors, with_digest(tensors, {"format": _FORMAT, "optirs_web": _as_json(notes)})

    return views, pack


def _as_json(notes: Mapping[str, Any]) -> str:
    try:
        return json.dumps(notes)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`extra` and the options of groups must be what JSON can hold: {error}") from error


def _is_assignable(value: Any) -> bool:
    """Return whether a value is a parameter or a buffer."""
    return isinstance(value, Tensor) and hasattr(value, "assign")


def _check_arguments(parameters: Any, optimizer: Any) -> None:
    """Check the arguments of saving and loading, before anything is read or changed.

    Raises:
        TypeError: the parameters are no mapping to parameters and buffers, or the optimizer is none.
    """
    wrong = ""
    if not isinstance(parameters, Mapping):
        wrong = type(parameters).__name__
    else:
        for name, param in parameters.items():
            if not _is_assignable(param):
                wrong = f"{quoted(name)} as {type(param).__name__}"
                break
    if wrong:
        raise TypeError(
            f"a checkpoint needs parameters by name, not {wrong}: pass model.state_dict(keep_vars=True), "
            "dict(model.named_parameters()) or {'weight': weight, ...}"
        )
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"the third argument must be an optimizer, not {type(optimizer).__name__}; pass `extra` by name"
        )


def _check_what_to_save(parameters: Any, optimizer: Any) -> None:
    _check_arguments(parameters, optimizer)
    if optimizer is None:
        return
    saved = {id(param) for param in parameters.values()}
    if any(id(param) not in saved for group in optimizer.param_groups for param in group["params"]):
        raise ValueError(
            "the optimizer has a parameter that is not among those to save: the run could not be continued"
        )


def load_checkpoint(
    source: Source,
    parameters: Mapping[str, Parameter | Buffer],
    optimizer: Optimizer | None = None,
) -> dict[str, Any]:
    """Load a checkpoint of `save_checkpoint` into parameters and optimizer: all of it, or nothing. Does not wait.

    Args:
        source: the file, or its content as bytes.
        parameters: `Parameter`s and `nn.Buffer`s, with the names and shapes of the saved ones.
        optimizer: of the type of the saved one; None ignores the saved state.

    Returns:
        The `extra` that was saved.

    Raises:
        CheckpointError: the file is not a checkpoint, is damaged (it does not match its digest, if it has one, as those
            of older versions have not), or belongs to another model or optimizer. Nothing was changed.
        TypeError: a value is neither a `Parameter` nor an `nn.Buffer`. Nothing was changed.
        FileNotFoundError: there is no such file.

    Example: see `save_checkpoint`, and `dump_checkpoint` for bytes.
    """
    _check_arguments(parameters, optimizer)
    tensors, notes = _read(source)
    path = name_of(source)
    _check_parameters(path, tensors, parameters)
    if optimizer is not None:
        if notes.optimizer != type(optimizer).__name__:
            kind = f"the state of {quoted(notes.optimizer)}" if notes.optimizer else "no optimizer's state"
            raise CheckpointError(f"{path} holds {kind}, not that of {type(optimizer).__name__}")
        optimizer.load_state_dict({"state": _state(path, tensors), "param_groups": notes.param_groups})
    for name, param in parameters.items():
        param.assign(data_of(name, tensors[_PARAM + name]))
    return notes.extra


def checkpoint_extra(source: Source) -> dict[str, Any]:
    """Return the `extra` of a checkpoint without loading it, for example before a model is built.

    Raises:
        CheckpointError: the file is not a checkpoint, or is damaged.
        FileNotFoundError: there is no such file.

    Example:
        >>> import optirs_web as ow
        >>> content = ow.dump_checkpoint({"w": ow.Parameter([1.0], device="cpu")}, extra={"width": 256})
        >>> ow.checkpoint_extra(content)
        {'width': 256}
    """
    return checkpoint_notes(source).extra


class Notes(NamedTuple):
    """The metadata of a checkpoint.

    Attributes:
        extra: the saved `extra`.
        optimizer: the name of its class, or empty.
        param_groups: its options, with the numbers of the parameters.
    """

    extra: dict[str, Any]
    optimizer: str
    param_groups: list[dict[str, Any]]


def checkpoint_notes(source: Source) -> Notes:
    """Return the metadata of a checkpoint; see `checkpoint_extra`."""
    return _read(source)[1]


def _read(source: Source) -> tuple[dict[str, Entry], Notes]:
    tensors, metadata = load(source)
    path = name_of(source)
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of optirs-web")
    try:
        notes = json.loads(metadata["optirs_web"])
        optimizer = notes.get("optimizer") or {"type": "", "param_groups": []}
        groups = [{**group, "params": list(group["params"])} for group in optimizer["param_groups"]]
        name = optimizer["type"]
        return tensors, Notes(dict(notes["extra"]), name if isinstance(name, str) else "", groups)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its notes cannot be read ({quoted(error)})") from error


def _entry(values: Any) -> Entry:
    content, shape, _ = host_data(values, FLOAT32)
    return Entry("F32", shape, content)


def _check_parameters(path: Any, tensors: Mapping[str, Entry], parameters: Mapping[str, Parameter | Buffer]) -> None:
    saved = {name.removeprefix(_PARAM) for name in tensors if name.startswith(_PARAM)}
    if saved != set(parameters):
        differing = sorted(saved ^ set(parameters))
        names = ", ".join(map(quoted, differing[:_NAMED])) + ", …" * (len(differing) > _NAMED)
        raise CheckpointError(f"{path} belongs to another model: only one of the two has {names}")
    for name, param in parameters.items():
        entry = tensors[_PARAM + name]
        dtype = entry_of(param.dtype, param.shape, memoryview(b"")).dtype
        if entry.dtype != dtype or entry.shape != param.shape:
            raise CheckpointError(
                f"{path}: {quoted(name)} is {entry.dtype} of shape {quoted(entry.shape)}, "
                f"here it is {dtype} of {param.shape}"
            )


def _state(path: Any, tensors: Mapping[str, Entry]) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, entry in tensors.items():
        if not name.startswith(_STATE):
            continue
        number, _, slot = name.removeprefix(_STATE).partition(".")
        if not (number.isdecimal() and len(number) < 10) or entry.dtype != "F32":
            raise CheckpointError(f"{path} is damaged: it has a tensor {quoted(name)} of {entry.dtype}")
        values = HostData(entry.content, entry.shape, FLOAT32) if entry.shape else entry.content.cast("f")[0]
        state.setdefault(int(number), {})[slot] = values
    return state
