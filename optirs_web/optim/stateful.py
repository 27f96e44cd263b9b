"""The state of an optimizer: as tensors, as torch's state dict, in snapshots and in copies."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from ..errors import CheckpointError
from ..ops.creation import full
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor
from ..wgsl import slot_storage
from . import state
from .built import Built
from .groups import on_host
from .hooks import Hooked

__all__ = ["Stateful"]


class Stateful(Built, Hooked):
    """An optimizer whose state can be read, saved and loaded."""

    scalars_in_state: ClassVar[tuple[str, ...]] = ("step",)
    """The members of Scalars in the state dict; all others follow from them."""

    _snapshot: state.State | None
    _snapshot_rates: list[Any]
    _seen_skipped: int

    @property
    def state(self) -> dict[Parameter, dict[str, Tensor]]:
        """The state of each parameter, as tensors over its memory. Nothing is copied or read.

        The tensors are valid until a group is added or a flag changes.
        """
        views = self._built.tensor_views(self.scalars_in_state)

        def shape(name: str, param: Parameter) -> tuple[int, ...]:
            return () if name in self.scalars_in_state else self._built.state_shape(name, param.shape)

        return {
            param: {name: Tensor(view, shape(name, param), FLOAT32) for name, view in tensor_views.items()}
            for param, tensor_views in zip(self._params(), views, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state in torch's names and layout, on the host. Waits.

        Returns:
            {"state": {index: {"step": float32, "exp_avg": array, ...}}, "param_groups": [{..., "params":
            [index, ...]}], "optimizer": the name of the class}, where a parameter has no entry before its first step.
            The arrays are NumPy's; `optirs_web.interop.torch.to_torch` makes torch tensors of them.
        """
        self._before_state_dict()
        make = self.state_reader()
        return self._after_state_dict(make(self._built.device.read_all(self.state_views())))

    def state_dict_async(self) -> Awaitable[dict[str, Any]]:
        """The awaitable twin of `state_dict`: the state as it is at the call."""
        self._before_state_dict()
        make, reading = self.state_reader(), self._built.device.read_all_async(self.state_views())

        async def finish() -> dict[str, Any]:
            return self._after_state_dict(make(await reading))

        return finish()

    def _before_state_dict(self) -> None:
        for hook in self._hooks["state_dict_pre"]:
            hook(self)

    def _after_state_dict(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        state_dict = {**state_dict, state.KIND: type(self).__name__}
        for hook in self._hooks["state_dict_post"]:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def state_views(self) -> dict[str, View]:
        """Return the views that a state dict is made from, to read them along with others."""
        rates = {f"lr.{number}": lr.view for number, lr in self._rates().items()}
        return {**self._built.state_views(), **rates}

    def numbered_groups(self) -> list[dict[str, Any]]:
        """Return the groups with numbers instead of parameters, as in a state dict; 0 for a tensor lr."""
        groups = []
        first_number = 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(first_number, first_number + count))})
            if isinstance(group.get("lr"), Tensor):
                groups[-1]["lr"] = 0.0
            first_number += count
        return groups

    def state_reader(self) -> Callable[[Mapping[str, memoryview]], dict[str, Any]]:
        """Return a function that makes the current state dict from the contents of `state_views`, also later."""
        layout, params, groups, rates = self._built, self._params(), self.numbered_groups(), list(self._rates())

        def make(contents: Mapping[str, memoryview]) -> dict[str, Any]:
            for number in rates:
                groups[number]["lr"] = contents[f"lr.{number}"].cast("f")[0]
            return {"state": state.read(layout, params, self.scalars_in_state, contents), "param_groups": groups}

        return make

    # The interface `recovery.Recoverable`.

    recovery_order: ClassVar[int] = 1

    def recovery_views(self) -> Mapping[str, View]:
        """Return the views of the state on the device; the options are on the host."""
        return self.state_views()

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Return a function that stores the content of these views as the snapshot."""
        make = self.state_reader()

        def keep(contents: Mapping[str, memoryview]) -> None:
            state_dict = make(contents)
            self._snapshot = state_dict["state"]
            self._snapshot_rates = [group.get("lr") for group in state_dict["param_groups"]]

        return keep

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot."""
        return self._snapshot is not None

    def revive(self, device: Device) -> None:
        """Continue with the snapshot's state on the device of the parameters, which were revived before."""
        assert self._snapshot is not None
        self._layout = None
        self._unused_slots = {}
        self._seen_skipped = 0
        for number, lr in self._rates().items():
            if lr.device is not device:  # a Parameter was revived already
                self.param_groups[number]["lr"] = full(lr.shape, self._snapshot_rates[number], device)
        self._build()
        self._write_state(self._snapshot)

    def _write_state(self, new_state: Mapping[int, Mapping[str, Any]]) -> None:
        self._set_hyper()
        state.write(self._built, self.scalars_in_state, new_state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict of ours or of the torch optimizer of that name: all of it, or nothing.

        Values may be arrays, torch tensors on the CPU, or numbers. Where parameters have names in the state dict and in
        the optimizer, state is matched by name; otherwise by order, as in torch.

        Raises:
            CheckpointError: it is of another kind of optimizer, or the groups, options, shapes or names do not fit.
        """
        for hook in self._hooks["load_pre"]:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        state.check_kind(state_dict, self)
        largest = map(slot_storage.largest_name, self._built.in_fewer_bits(self.rule.state))
        known_names = (*self.rule.state, *largest, *self._built.more_state, *self.scalars_in_state)
        options, new_state = state.check(
            state_dict, self.param_groups, self._knows, known_names, self.scalars_in_state, self._built.state_shape,
            self._built.rule.counters,
        )  # fmt: skip
        before, layout = [dict(group) for group in self.param_groups], self._built
        rates = {number: options[number].pop("lr") for number in self._rates() if "lr" in options[number]}
        try:
            for number, value in rates.items():
                self.validate({**on_host(self.param_groups[number]), "lr": value})
            for group, loaded in zip(self.param_groups, options, strict=True):
                group.update(loaded)
            for group in self.param_groups:
                self._check(group)
            if self._flags() != self._built_flags:
                self._build()
            self._write_state(new_state)
        except BaseException as error:  # also where there is no memory for another layout
            for group, old_group in zip(self.param_groups, before, strict=True):
                group.clear()
                group.update(old_group)
            if self._layout is not layout:
                self._build()
                self._built.take_over(layout, self._unused_slots)
            if isinstance(error, (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)):
                raise CheckpointError(f"the state dict has options or state that do not fit: {error}") from error
            raise
        for number, value in rates.items():
            lr = self.param_groups[number]["lr"].view
            lr.buffer.device.write(lr, memoryview(struct.pack("<f", value)))
        self._built.forget_skipped()
        self._unused_slots = {}
        self._seen_skipped = 0
        for hook in self._hooks["load_post"]:
            hook(self)

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and `pickle`: the groups with their parameters, and the state on the host. Waits."""
        left_out = {
            "_layout", "_schedules", "_unused_slots", "_built_params", "_built_flags", "_refreshed", "_snapshot",
            "_hooks",
        }  # fmt: skip
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        content = self._built.device.read_all(self.state_views())
        return {**kept, "_state": self.state_reader()(content)["state"]}

    def __setstate__(self, content: dict[str, Any]) -> None:
        content = dict(content)
        saved_state = content.pop("_state")
        vars(self).update(content, _layout=None, _schedules=None, _unused_slots={}, _snapshot=None)
        self._make_hooks()
        self._build()
        self._write_state(saved_state)
        keep_track(self)
