"""The state of an optimizer: as tensors, as torch's state dict, in a snapshot, in a copy."""

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
    """Shows its state, and takes over another."""

    scalars_in_state: ClassVar[tuple[str, ...]] = ("step",)
    """The members of Scalars that the state dict shows; all others follow from them."""

    _snapshot: state.State | None
    _snapshot_rates: list[Any]
    _seen_skipped: int

    @property
    def state(self) -> dict[Parameter, dict[str, Tensor]]:
        """The state of each parameter, as tensors in the places where it lies. Nothing is copied or read.

        The tensors are those of now: they are dropped when a group is added or a flag changes.
        """
        places = self._built.places(self.scalars_in_state)

        def shape(name: str, param: Parameter) -> tuple[int, ...]:
            return () if name in self.scalars_in_state else self._built.state_shape(name, param.shape)

        return {
            param: {name: Tensor(view, shape(name, param), FLOAT32) for name, view in its_places.items()}
            for param, its_places in zip(self._params(), places, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's names and layout, on the host. Waits.

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

    def _after_state_dict(self, made: dict[str, Any]) -> dict[str, Any]:
        made = {**made, state.KIND: type(self).__name__}
        for hook in self._hooks["state_dict_post"]:
            changed = hook(self, made)
            made = made if changed is None else changed
        return made

    def state_views(self) -> dict[str, View]:
        """What a state dict is made of, for those who read it along with other things."""
        rates = {f"lr.{number}": lr.view for number, lr in self._rates().items()}
        return {**self._built.state_views(), **rates}

    def numbered_groups(self) -> list[dict[str, Any]]:
        """The groups with numbers instead of parameters, as a state dict has them; 0 for what the host does not see."""
        groups = []
        first = 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(first, first + count))})
            if isinstance(group.get("lr"), Tensor):
                groups[-1]["lr"] = 0.0
            first += count
        return groups

    def state_reader(self) -> Callable[[Mapping[str, memoryview]], dict[str, Any]]:
        """What makes the state dict of now from the contents of `state_views`, whatever happens in between."""
        layout, params, groups, rates = self._built, self._params(), self.numbered_groups(), list(self._rates())

        def make(contents: Mapping[str, memoryview]) -> dict[str, Any]:
            for number in rates:
                groups[number]["lr"] = contents[f"lr.{number}"].cast("f")[0]
            return {"state": state.read(layout, params, self.scalars_in_state, contents), "param_groups": groups}

        return make

    # What `recovery.Recoverable` asks for.

    recovery_order: ClassVar[int] = 1

    def recovery_views(self) -> Mapping[str, View]:
        """The state on the device; the options are on the host."""
        return self.state_views()

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Takes the state as the snapshot."""
        make = self.state_reader()

        def keep(contents: Mapping[str, memoryview]) -> None:
            made = make(contents)
            self._snapshot = made["state"]
            self._snapshot_rates = [group.get("lr") for group in made["param_groups"]]

        return keep

    @property
    def has_snapshot(self) -> bool:
        """There is one."""
        return self._snapshot is not None

    def revive(self, device: Device) -> None:
        """Go on with the snapshot's state where the parameters lie now: they were revived before."""
        assert self._snapshot is not None
        self._layout = None
        self._resting = {}
        self._seen_skipped = 0
        for number, lr in self._rates().items():
            if lr.device is not device:  # a Parameter was revived already
                self.param_groups[number]["lr"] = full(lr.shape, self._snapshot_rates[number], device)
        self._build()
        self._write_state(self._snapshot)

    def _write_state(self, its_state: Mapping[int, Mapping[str, Any]]) -> None:
        self._set_hyper()
        state.write(self._built, self.scalars_in_state, its_state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state dict of ours or of the torch optimizer of that name. All of it, or nothing.

        Values may be arrays, torch tensors on the CPU, or numbers. Where parameters have names here and there, state
        goes by them; otherwise by order, as in torch.

        Raises:
            CheckpointError: it is of another kind of optimizer, or the groups, options, shapes or names do not fit.
        """
        for hook in self._hooks["load_pre"]:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        state.check_kind(state_dict, self)
        largest = map(slot_storage.largest_name, self._built.in_fewer_bits(self.rule.state))
        known = (*self.rule.state, *largest, *self._built.more_state, *self.scalars_in_state)
        options, its_state = state.check(
            state_dict, self.param_groups, self._knows, known, self.scalars_in_state, self._built.state_shape,
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
            self._write_state(its_state)
        except BaseException as error:  # or no memory for another layout
            for group, old in zip(self.param_groups, before, strict=True):
                group.clear()
                group.update(old)
            if self._layout is not layout:
                self._build()
                self._built.take_over(layout, self._resting)
            if isinstance(error, (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)):
                raise CheckpointError(f"the state dict has options or state that do not fit: {error}") from error
            raise
        for number, value in rates.items():
            lr = self.param_groups[number]["lr"].view
            lr.buffer.device.write(lr, memoryview(struct.pack("<f", value)))
        self._built.forget_skipped()
        self._resting = {}
        self._seen_skipped = 0
        for hook in self._hooks["load_post"]:
            hook(self)

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and `pickle`: the groups with their parameters, and the state on the host. Waits."""
        left_out = {
            "_layout", "_schedules", "_resting", "_built_params", "_built_flags", "_refreshed", "_snapshot", "_hooks",
        }  # fmt: skip
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        content = self._built.device.read_all(self.state_views())
        return {**kept, "_state": self.state_reader()(content)["state"]}

    def __setstate__(self, content: dict[str, Any]) -> None:
        content = dict(content)
        its_state = content.pop("_state")
        vars(self).update(content, _layout=None, _schedules=None, _resting={}, _snapshot=None)
        self._make_hooks()
        self._build()
        self._write_state(its_state)
        keep_track(self)
